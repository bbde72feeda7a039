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
    /// Since when it is not known whether it conflicts with its target branch.
    pub(super) unsure: Option<Instant>,
    /// Since when the head is not a commit of AgentMine. A list may lag behind a push, so a later look decides.
    pub(super) foreign: Option<Instant>,
    /// When it is looked for again while its repository is not shown.
    pub(super) hidden: Option<Instant>,
}

/// How long its checks are not read again after something was reported: CI reports each of its jobs.
const REPORTED: Duration = Duration::from_secs(60);
/// How long marks alone are trusted.
const LONGEST_BY_MARK: Duration = Duration::from_secs(6 * 3600);
/// How long each scan asks again whether it conflicts with its target branch, while that is not known.
const LONGEST_UNSURE: Duration = Duration::from_secs(120);

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

    /// Notes whether it conflicts with its target branch.
    pub(super) fn conflicts(&mut self, conflict: Option<bool>) {
        self.unsure = match conflict {
            None => self.unsure.or_else(|| Some(Instant::now())),
            Some(_) => None,
        };
    }

    /// Whether the forge is likely to know soon whether it conflicts with its target branch. Forges find that out only when
    /// asked after the target branch moved: where that moves between any two looks, the answer would never be known.
    pub(super) fn is_unsure(&self) -> bool {
        let since = self.unsure.map(|since| since.elapsed());
        since.is_some_and(|since| since < LONGEST_UNSURE)
    }

    /// Nothing is due. The checks are read again after `apart`. If somebody wrote `just_now`, or a conflict is not known yet,
    /// the next scan reads everything again.
    pub(super) fn settle(&mut self, just_now: bool, apart: Duration) {
        self.settled = true;
        match just_now || self.is_unsure() {
            // A mark does not cover comments.
            true => (self.again, self.mark) = (Some(Instant::now()), None),
            false => self.again = Some(Instant::now() + apart),
        }
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

    /// A webhook reported something of its repository: its checks are read again within [`REPORTED`], whatever else is reported
    /// meanwhile.
    pub(crate) fn look_again(&self, task: TaskId) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = seen.get_mut(&task) {
            let soon = Instant::now() + REPORTED;
            seen.again = seen.again.map(|again| again.min(soon));
        }
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
    fn what_may_conflict_is_read_again_by_the_next_scan_for_a_while() {
        let apart = Duration::from_secs(60);
        let settled = |conflict, just_now| {
            let mut seen = seen(Some(("checking", Instant::now())));
            seen.conflicts(conflict);
            seen.settle(just_now, apart);
            assert!(seen.settled);
            seen
        };
        for (conflict, just_now, is_due) in [
            (Some(false), false, false),
            (Some(false), true, true),
            (None, false, true),
        ] {
            let seen = settled(conflict, just_now);
            assert_eq!(seen.is_due(), is_due, "{conflict:?} {just_now}");
            assert_eq!(seen.is_marked(Some("checking")), !is_due);
        }
        let mut seen = settled(None, false);
        seen.conflicts(Some(false));
        assert!(!seen.is_unsure());
        let Some(old) = Instant::now().checked_sub(LONGEST_UNSURE) else {
            return;
        };
        seen.unsure = Some(old);
        seen.conflicts(None);
        seen.settle(false, apart);
        assert!(!seen.is_due());
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
