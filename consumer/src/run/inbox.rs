//! What people write on the item while the agent works.
//!
//! The comments are read before a model call, unless that was done a moment ago, and at the interval of the looks at the
//! item while a call or a command takes long. The journal says which remarks the model was given, so a worker that takes
//! over gives it the others, and none twice. A tracker that does not answer changes nothing.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use agentmine_agent::{Inbox, Remark};
use agentmine_trackers::TrackerError;
use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::prepare::{Remarks, remarks};
use crate::session::context::SessionContext;

/// How long a model call waits for a look at most.
const LONGEST_LOOK: Duration = Duration::from_secs(3);
/// A look before a model call is due after this part of the interval.
const PART: u32 = 6;

/// Where the remarks come from.
#[async_trait]
pub(super) trait Comments: Send + Sync {
    /// All but those that are known.
    async fn beyond(&self, known: &BTreeSet<String>) -> Result<Remarks, TrackerError>;
}

#[async_trait]
impl Comments for SessionContext {
    async fn beyond(&self, known: &BTreeSet<String>) -> Result<Remarks, TrackerError> {
        remarks(self, known).await
    }
}

/// The remarks of one session that the model was not given yet.
pub(super) struct ItemInbox<'a> {
    comments: &'a dyn Comments,
    interval: Duration,
    state: Mutex<State>,
}

struct State {
    /// The ids that need not be checked again: given, arrived, or of people who are not heard. `None` until the
    /// first look: an earlier version did not record what it gave, so what is there then counts as given.
    known: Option<BTreeSet<String>>,
    arrived: Vec<Remark>,
    /// When the comments were read last.
    looked: Option<Instant>,
    /// Whether the last look failed: then no model call waits for another one.
    failed: bool,
}

impl<'a> ItemInbox<'a> {
    /// `given` are the ids of what the model was given. The comments are read at `interval` at least.
    pub(super) fn new(
        comments: &'a dyn Comments,
        given: Option<BTreeSet<String>>,
        interval: Duration,
    ) -> Self {
        Self {
            comments,
            interval,
            state: Mutex::new(State {
                known: given,
                arrived: Vec::new(),
                looked: None,
                failed: false,
            }),
        }
    }

    /// Looks at the comments again and again.
    pub(super) async fn watch(&self) -> Infallible {
        loop {
            let next = {
                let mut state = self.state.lock().await;
                if state.is_older_than(self.interval) {
                    self.look(&mut state).await;
                }
                state.looked.unwrap_or_else(Instant::now) + self.interval
            };
            tokio::time::sleep_until(next).await;
        }
    }

    async fn look(&self, state: &mut State) {
        // One that is broken off counts as failed.
        state.failed = true;
        let known = state.known.clone().unwrap_or_default();
        let found = self.comments.beyond(&known).await;
        state.looked = Some(Instant::now());
        match found {
            Ok(found) => {
                state.failed = false;
                state.add(found);
            }
            Err(error) => {
                tracing::debug!(%error, "the comments cannot be checked; the work continues");
            }
        }
    }
}

impl State {
    fn is_older_than(&self, age: Duration) -> bool {
        self.looked.is_none_or(|at| at.elapsed() >= age)
    }

    fn add(&mut self, Remarks { heard, of_others }: Remarks) {
        let is_first = self.known.is_none();
        let known = self.known.get_or_insert_default();
        known.extend(of_others);
        known.extend(heard.iter().map(|remark| remark.id.clone()));
        if !is_first {
            self.arrived.extend(heard);
        }
    }
}

#[async_trait]
impl Inbox for ItemInbox<'_> {
    async fn take(&self) -> Vec<Remark> {
        let look = async {
            let mut state = self.state.lock().await;
            if state.is_older_than(self.interval / PART) && !state.failed {
                self.look(&mut state).await;
            }
        };
        if tokio::time::timeout(LONGEST_LOOK, look).await.is_err() {
            tracing::debug!(
                "the tracker does not say in time what people wrote; the work continues"
            );
        }
        // A look of the watch may take longer, and what it finds is for the next call.
        match self.state.try_lock() {
            Ok(mut state) => std::mem::take(&mut state.arrived),
            Err(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use chrono::DateTime;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    /// Comments by their ids, and how long a look at them takes; `None`: it fails.
    #[derive(Default)]
    struct Written {
        ids: StdMutex<Vec<String>>,
        takes: StdMutex<Option<Duration>>,
        looks: AtomicU32,
    }

    impl Written {
        fn answering() -> Self {
            Self {
                takes: StdMutex::new(Some(Duration::from_millis(1))),
                ..Self::default()
            }
        }

        fn say(&self, id: &str) {
            self.ids.lock().unwrap().push(id.to_owned());
        }

        fn answer_in(&self, takes: Option<Duration>) {
            *self.takes.lock().unwrap() = takes;
        }

        fn looks(&self) -> u32 {
            self.looks.load(Ordering::SeqCst)
        }
    }

    #[async_trait]
    impl Comments for Written {
        async fn beyond(&self, known: &BTreeSet<String>) -> Result<Remarks, TrackerError> {
            self.looks.fetch_add(1, Ordering::SeqCst);
            let takes = *self.takes.lock().unwrap();
            let Some(takes) = takes else {
                return Err(TrackerError::Unavailable {
                    tracker: agentmine_domain::TrackerKind::GitHub,
                    detail: "502".into(),
                    until: None,
                });
            };
            tokio::time::sleep(takes).await;
            let ids = self.ids.lock().unwrap();
            let heard = ids.iter().filter(|id| !known.contains(*id));
            Ok(Remarks {
                heard: heard.map(|id| remark(id)).collect(),
                of_others: Vec::new(),
            })
        }
    }

    fn remark(id: &str) -> Remark {
        Remark {
            id: id.to_owned(),
            author: "mona".into(),
            at: DateTime::UNIX_EPOCH,
            about: None,
            text: "a word".into(),
        }
    }

    async fn taken(inbox: &ItemInbox<'_>) -> Vec<String> {
        let remarks = inbox.take().await;
        remarks.into_iter().map(|remark| remark.id).collect()
    }

    /// The time passes while the watch continues.
    async fn pass(inbox: &ItemInbox<'_>, time: Duration) {
        tokio::select! {
            never = inbox.watch() => match never {},
            () = tokio::time::sleep(time) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_a_moment_ago_is_given_before_the_next_call_once() {
        let written = Written::answering();
        let inbox = ItemInbox::new(&written, Some(BTreeSet::new()), INTERVAL);
        assert!(taken(&inbox).await.is_empty());
        written.say("1");
        pass(&inbox, Duration::from_secs(6)).await;
        assert_eq!(taken(&inbox).await, ["1"]);
        pass(&inbox, Duration::from_secs(60)).await;
        assert!(taken(&inbox).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_in_quick_succession_cost_a_look_in_five_seconds() {
        let written = Written::answering();
        let inbox = ItemInbox::new(&written, Some(BTreeSet::new()), INTERVAL);
        for _ in 0..100 {
            taken(&inbox).await;
            pass(&inbox, Duration::from_millis(100)).await;
        }
        assert!((2..=3).contains(&written.looks()), "{}", written.looks());
        // While one call takes long.
        pass(&inbox, Duration::from_secs(300)).await;
        assert!((12..=14).contains(&written.looks()), "{}", written.looks());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tracker_that_is_away_delays_one_call_by_seconds_and_no_later_one() {
        let written = Written::answering();
        let inbox = ItemInbox::new(&written, Some(BTreeSet::new()), INTERVAL);
        for away in [None, Some(Duration::from_secs(60))] {
            taken(&inbox).await;
            written.answer_in(away);
            pass(&inbox, Duration::from_secs(6)).await;
            let began = Instant::now();
            for _ in 0..10 {
                taken(&inbox).await;
                tokio::time::sleep(Duration::from_secs(6)).await;
            }
            let waited = began.elapsed() - Duration::from_secs(60);
            let most = LONGEST_LOOK + Duration::from_millis(100);
            assert!(waited <= most, "{away:?}: {waited:?}");
            written.answer_in(Some(Duration::ZERO));
            pass(&inbox, INTERVAL * 2).await;
        }
        written.say("1");
        pass(&inbox, Duration::from_secs(6)).await;
        assert_eq!(taken(&inbox).await, ["1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_earlier_version_may_have_given_is_not_given_again() {
        let written = Written::answering();
        written.say("1");
        let inbox = ItemInbox::new(&written, None, INTERVAL);
        assert!(taken(&inbox).await.is_empty());
        written.say("2");
        pass(&inbox, INTERVAL + Duration::from_secs(1)).await;
        assert_eq!(taken(&inbox).await, ["2"]);
    }
}
