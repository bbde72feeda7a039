//! What a person sees while a call waits: for another try, or for a server that is silent.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, interval_at};

use crate::model::Delta;

/// How far one try has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The request is being sent, or has been.
    Sent,
    /// A response began, without content.
    Answered,
    /// Only comments of a stream have arrived, which keep the connection alive.
    Comments,
    /// The reply began.
    Reply,
}

/// The notices of one call.
pub(crate) struct Notices<'a> {
    host: &'a str,
    every: Duration,
    watch: Option<&'a UnboundedSender<Delta>>,
    stage: Mutex<Stage>,
}

impl<'a> Notices<'a> {
    /// For a call of the API at `host`. A silent server is reported each time that `every` has passed.
    pub(crate) fn new(
        host: &'a str,
        every: Duration,
        watch: Option<&'a UnboundedSender<Delta>>,
    ) -> Self {
        let stage = Mutex::new(Stage::Sent);
        Self {
            host,
            every,
            watch,
            stage,
        }
    }

    /// Records how far the current try has come.
    pub(crate) fn reach(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    /// Reports that the call is tried again. `what` is what the server does, as the end of a sentence.
    pub(crate) fn retry(&self, what: &str, detail: &str, delay: Duration) {
        let (host, seconds) = (self.host, delay.as_secs_f64());
        let hint = match self.stage() {
            // The detail may have a better one.
            Stage::Sent if !detail.contains("hint: ") => {
                ". hint: check model.base_url, and that the server runs"
            }
            Stage::Sent | Stage::Answered | Stage::Comments | Stage::Reply => "",
        };
        self.show(format!(
            "{host} {what}: {detail}; trying again in {seconds:.1} s{hint}"
        ));
    }

    fn stage(&self) -> Stage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work`, and reports a server that stays silent meanwhile.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        self.reach(Stage::Sent);
        let mut tick = interval_at(begun + self.every, self.every);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = tick.tick() => self.silence(begun.elapsed()),
            }
        }
    }

    fn silence(&self, waited: Duration) {
        let what = match self.stage() {
            Stage::Sent => "has not answered",
            Stage::Answered => "answered, but sends no reply",
            Stage::Comments => "sends keep-alive comments, but no reply",
            Stage::Reply => return,
        };
        let (host, seconds) = (self.host, waited.as_secs());
        self.show(format!(
            "still waiting for the model ({seconds} s): {host} {what}. hint: check model.base_url and the server, unless the model is slow"
        ));
    }

    fn show(&self, text: String) {
        tracing::warn!("{text}");
        if let Some(watch) = self.watch {
            // A watcher may have gone away.
            let _ = watch.send(Delta::Waiting(text));
        }
    }
}
