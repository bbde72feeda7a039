//! What one process has seen of the watched pull requests, so that it does not read again what is settled.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_domain::TaskId;
use agentmine_trackers::OpenPull;
use chrono::{DateTime, Utc};

/// What this producer has seen of the watched pull requests, by the task that opened each.
#[derive(Debug, Default)]
pub struct SeenPulls(Mutex<HashMap<TaskId, Seen>>);

/// A pull request as it was last read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) updated_at: DateTime<Utc>,
    pub(super) head: String,
    /// Nothing was due, and nothing becomes due while it stays as it is.
    pub(super) settled: bool,
    /// When its checks are read again, although it stays as it is.
    pub(super) again: Option<Instant>,
    /// The tracker's mark of its checks before they were read, and when that was.
    pub(super) mark: Option<(String, Instant)>,
    /// When this head was seen first.
    pub(super) since: Option<Instant>,
    /// Since when the head is not a commit of AgentMine. A list may lag behind a push, so a later look decides.
    pub(super) foreign: Option<Instant>,
    /// When it is looked for again while its repository is not shown.
    pub(super) hidden: Option<Instant>,
}

/// How long marks alone are trusted.
const LONGEST_BY_MARK: Duration = Duration::from_secs(6 * 3600);

impl Seen {
    /// Whether nothing became due since it was read, as far as its time and its head tell.
    pub(super) fn is_as(&self, pull: &OpenPull) -> bool {
        self.settled && self.updated_at == pull.updated_at && self.head == pull.head_sha
    }

    /// Whether its checks are to be read again, or their mark at least.
    pub(super) fn is_due(&self) -> bool {
        self.again.is_none_or(|again| again <= Instant::now())
    }

    /// Whether its checks are as they were read, by the tracker's mark of them.
    pub(super) fn is_marked(&self, mark: Option<&str>) -> bool {
        let same = self.mark.as_ref().filter(|(known, _)| mark == Some(known));
        same.is_some_and(|(_, at)| at.elapsed() < LONGEST_BY_MARK)
    }
}

impl SeenPulls {
    pub(super) fn get(&self, task: TaskId) -> Option<Seen> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&task).cloned()
    }

    pub(super) fn put(&self, task: TaskId, now: Seen) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(task, now);
    }

    pub(super) fn forget(&self, task: TaskId) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(mark: Option<(&str, Instant)>) -> Seen {
        Seen {
            mark: mark.map(|(mark, at)| (mark.to_owned(), at)),
            ..Seen::default()
        }
    }

    #[test]
    fn a_mark_that_is_the_same_spares_a_look_for_some_hours() {
        let now = Instant::now();
        let known = seen(Some(("green", now)));
        assert!(known.is_marked(Some("green")));
        assert!(!known.is_marked(Some("red")));
        assert!(!known.is_marked(None));
        assert!(!seen(None).is_marked(Some("green")));
        assert!(!seen(None).is_marked(None));
        let Some(old) = now.checked_sub(LONGEST_BY_MARK) else {
            return;
        };
        assert!(!seen(Some(("green", old))).is_marked(Some("green")));
    }
}
