//! What one process has seen of the watched pull requests, so that it does not read again what is settled.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use agentmine_domain::TaskId;
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
    /// When this head was seen first.
    pub(super) since: Option<Instant>,
    /// Since when the head is not a commit of AgentMine. A list may lag behind a push, so a later look decides.
    pub(super) foreign: Option<Instant>,
    /// When it is looked for again while its repository is not shown.
    pub(super) hidden: Option<Instant>,
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
