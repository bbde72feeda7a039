//! What a server's task and its manager both see.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::seen::Seen;
use crate::config::ServerConfig;
use crate::manager::{ManagerPolicy, Metrics, NoticeKind, Notices, ServerState, ServerStatus};
use crate::{Client, Greeting, McpError, Offer, ServerProcess, lock};

/// A list that is asked for anew has this long. Past it the old one stands until the server says again
/// that it has changed: a slow server must not slow down every step of a session.
const LISTING: Duration = Duration::from_secs(5);

/// After its lists were asked for, a server is left in peace this many times as long as that took: one
/// that has ever new ones, and is slow to tell them, costs a session at most a tenth of its time.
const PAUSE: u32 = 10;
/// Bytes of all servers' offers together, each being bounded by itself.
const MAX_OFFERS: usize = 64 * 1024 * 1024;

/// What all servers of a manager share.
#[derive(Default)]
pub(crate) struct Common {
    pub(crate) notices: Notices,
    /// Counts what a refresh would have to take in.
    pub(crate) news: AtomicU64,
    /// Bytes of their offers.
    offered: AtomicUsize,
}

impl Common {
    /// Makes room for an offer in the place of one, if there is.
    fn room(&self, before: usize, now: usize) -> bool {
        let exchanged = |all: usize| {
            let all = all.saturating_sub(before) + now;
            (now <= before || all <= MAX_OFFERS).then_some(all)
        };
        let exchange = self
            .offered
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, exchanged);
        exchange.is_ok()
    }
}

/// One server.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) policy: Arc<ManagerPolicy>,
    pub(crate) common: Arc<Common>,
    pub(crate) metrics: Metrics,
    phase: watch::Sender<Phase>,
    record: Mutex<Record>,
    /// Held here and not by the task, so that whoever ends the manager can end it at once.
    process: Mutex<Option<Arc<dyn ServerProcess>>>,
}

/// What the server is doing.
#[derive(Clone)]
pub(crate) enum Phase {
    Starting,
    Ready(Arc<Live>),
    Restarting(McpError),
    Failed(McpError),
    /// The manager has ended it.
    Stopped,
}

/// A connection that works, or did a moment ago.
pub(crate) struct Live {
    pub(crate) client: Client,
    /// Why it works no longer.
    pub(crate) gone: watch::Sender<Option<McpError>>,
    /// The count of changes that the offer takes in.
    listed: Mutex<u64>,
    /// When its lists may be asked for anew.
    not_before: Mutex<Instant>,
}

/// What is kept over restarts.
#[derive(Default)]
struct Record {
    seen: Seen,
    offer: Arc<Offer>,
    /// What it counts for.
    bytes: usize,
    greeting: Option<Greeting>,
    started_in: Option<Duration>,
    restarts: u32,
    /// Of the last process that ended.
    stderr: String,
    logs: Vec<String>,
}

impl Live {
    pub(crate) fn new(client: Client) -> Self {
        let listed = *client.changes().borrow();
        Self {
            client,
            gone: watch::Sender::new(None),
            listed: Mutex::new(listed),
            not_before: Mutex::new(Instant::now()),
        }
    }

    /// Resolves when it works no longer.
    pub(crate) async fn gone(&self) -> McpError {
        let mut gone = self.gone.subscribe();
        match gone.wait_for(Option::is_some).await {
            Ok(error) => error.clone(),
            Err(_) => None,
        }
        .unwrap_or_else(|| McpError::Protocol {
            server: self.client.server().to_owned(),
            detail: "the connection was let go".into(),
        })
    }
}

impl Shared {
    pub(crate) fn new(
        config: ServerConfig,
        policy: Arc<ManagerPolicy>,
        common: Arc<Common>,
    ) -> Self {
        let metrics = Metrics::of(&config);
        metrics.entered(ServerState::Starting.word());
        Self {
            config,
            policy,
            metrics,
            phase: watch::Sender::new(Phase::Starting),
            record: Mutex::default(),
            process: Mutex::default(),
            common,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    pub(crate) fn tell(&self, kind: NoticeKind, text: &str) {
        self.common.notices.tell(self.name(), kind, text);
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub(crate) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(crate) fn enter(&self, phase: Phase) {
        let before = self.phase.send_replace(phase);
        self.metrics.left(before.state().word());
        self.metrics.entered(self.phase().state().word());
        self.common.news.fetch_add(1, Ordering::SeqCst);
    }

    /// Nobody cares for it any longer.
    pub(crate) fn abandon(&self, error: McpError) {
        self.kill_process();
        if let Phase::Ready(live) = self.phase() {
            live.gone.send_replace(Some(error.clone()));
        }
        self.tell(NoticeKind::GivenUp, &error.to_string());
        self.enter(Phase::Failed(error));
    }

    /// What it offers, without what is refused. `None` where it does not run and will not.
    pub(crate) fn offer(&self) -> Option<Arc<Offer>> {
        match self.phase() {
            Phase::Ready(_) | Phase::Restarting(_) => Some(lock(&self.record).offer.clone()),
            Phase::Starting | Phase::Failed(_) | Phase::Stopped => None,
        }
    }

    pub(crate) fn take_offer(&self, offer: Offer) {
        let tell = {
            let mut record = lock(&self.record);
            let (mut offer, tell) = record.seen.take(offer, self.policy.changed_descriptions);
            if *record.offer != offer {
                let (before, mut now) = (record.bytes, offer.bytes());
                if !self.common.room(before, now) {
                    let why = format!(
                        "all it offers: with it there would be more than {MAX_OFFERS} bytes of all servers"
                    );
                    offer = Offer {
                        left_out: vec![why],
                        ..Offer::default()
                    };
                    now = offer.bytes();
                    self.common.room(before, now);
                }
                record.bytes = now;
                record.offer = Arc::new(offer);
                self.common.news.fetch_add(1, Ordering::SeqCst);
            }
            tell
        };
        for (kind, text) in tell {
            self.tell(kind, &text);
        }
    }

    pub(crate) fn connected(&self, greeting: &Greeting, started_in: Duration) {
        let mut record = lock(&self.record);
        record.greeting = Some(greeting.clone());
        record.started_in = Some(started_in);
    }

    pub(crate) fn count_restart(&self) {
        lock(&self.record).restarts += 1;
        self.metrics.restarted();
    }

    /// Asks for its lists anew if it said that they have changed.
    pub(crate) async fn relist(&self) {
        let Phase::Ready(live) = self.phase() else {
            return;
        };
        let changes = *live.client.changes().borrow();
        if *lock(&live.listed) == changes {
            return;
        }
        let began = Instant::now();
        if began < *lock(&live.not_before) {
            return;
        }
        let listing = timeout(LISTING, Box::pin(live.client.offer())).await;
        *lock(&live.not_before) = Instant::now() + began.elapsed() * PAUSE;
        // Whatever comes of it: it is asked again when it next says that something has changed.
        *lock(&live.listed) = changes;
        let what = match listing {
            // One that has ended since may have been started again, with a newer offer.
            Ok(_) if live.client.closed() => return,
            Ok(Ok(offer)) => return self.take_offer(offer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("there was no answer within {} s", LISTING.as_secs()),
        };
        tracing::warn!(
            mcp.server = self.name(),
            "an MCP server's changed lists cannot be read"
        );
        let text =
            format!("what it offers has changed and could not be read, so the old stands: {what}");
        self.tell(NoticeKind::Changed, &text);
    }

    /// Waits until it can be called.
    pub(crate) async fn ready_within(&self, limit: Duration) -> Result<Arc<Live>, String> {
        let mut phases = self.phases();
        let settled = phases.wait_for(|phase| match phase {
            Phase::Ready(live) => live.gone.borrow().is_none(),
            Phase::Failed(_) | Phase::Stopped => true,
            Phase::Starting | Phase::Restarting(_) => false,
        });
        match timeout(limit, settled).await {
            Ok(Ok(phase)) => match &*phase {
                Phase::Ready(live) => Ok(live.clone()),
                phase => Err(unavailable(self.name(), &phase.state())),
            },
            Ok(Err(_)) => Err("it was let go".into()),
            Err(_) => Err(format!(
                "the server is being started again and was not ready within {} s; it may be later",
                limit.as_secs_f64()
            )),
        }
    }

    // --- the process ---

    pub(crate) fn hold(&self, process: Box<dyn ServerProcess>) -> Arc<dyn ServerProcess> {
        let process: Arc<dyn ServerProcess> = process.into();
        *lock(&self.process) = Some(process.clone());
        process
    }

    pub(crate) fn process(&self) -> Option<Arc<dyn ServerProcess>> {
        lock(&self.process).clone()
    }

    /// Ends the process, if there is one, and returns when nothing of it is left.
    pub(crate) async fn end_process(&self, grace: Duration) {
        if let Some(process) = self.process() {
            process.stop(grace).await;
            let stderr = process.stderr().await;
            lock(&self.record).stderr = stderr;
            lock(&self.process).take();
        }
    }

    /// The same at once.
    pub(crate) fn kill_process(&self) {
        let process = lock(&self.process).take();
        if let Some(process) = process {
            process.kill();
        }
    }

    pub(crate) async fn stderr(&self) -> String {
        match self.process() {
            Some(process) => process.stderr().await,
            None => lock(&self.record).stderr.clone(),
        }
    }

    /// Keeps what a connection that ends had logged.
    pub(crate) fn keep_logs(&self, live: &Live) {
        lock(&self.record).logs = live.client.logs();
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let phase = self.phase();
        let record = lock(&self.record);
        ServerStatus {
            config: self.config.clone(),
            state: phase.state(),
            greeting: record.greeting.clone(),
            started_in: record.started_in,
            restarts: record.restarts,
            pid: self.process().and_then(|process| process.pid()),
            logs: match &phase {
                Phase::Ready(live) => live.client.logs(),
                _ => record.logs.clone(),
            },
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.metrics.left(self.phase().state().word());
    }
}

impl Phase {
    pub(crate) fn state(&self) -> ServerState {
        match self {
            Self::Starting => ServerState::Starting,
            Self::Ready(_) => ServerState::Ready,
            Self::Restarting(after) => ServerState::Restarting {
                after: after.clone(),
            },
            Self::Failed(error) => ServerState::Failed(error.clone()),
            Self::Stopped => ServerState::Withheld("the session has ended".into()),
        }
    }
}

/// Why a server cannot be called, for the model.
pub(crate) fn unavailable(name: &str, state: &ServerState) -> String {
    let why = match state {
        ServerState::Disabled => "it is disabled".to_owned(),
        ServerState::Withheld(why) => why.clone(),
        ServerState::Starting | ServerState::Restarting { .. } | ServerState::Ready => {
            "it is being started".to_owned()
        }
        ServerState::Failed(error) => error.to_string(),
    };
    format!("the MCP server {name:?} is not running: {why}")
}
