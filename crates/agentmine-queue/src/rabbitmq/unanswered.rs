//! Queues that did not answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a queue that did not answer is asked last, or not at all.
const RECENT: Duration = Duration::from_secs(60);

/// When each queue was last asked for a message in vain.
#[derive(Debug, Default)]
pub(super) struct Unanswered(Mutex<BTreeMap<String, Instant>>);

impl Unanswered {
    pub(super) fn note(&self, queue: String) {
        tracing::warn!(
            queue,
            "a queue of the broker does not answer; tasks are found by polling meanwhile. hint: if it has no leader \
             (rabbitmq-queues quorum_status), delete it; it is declared again, and no task is lost"
        );
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.insert(queue, Instant::now());
    }

    pub(super) fn is_recent(&self, queue: &str) -> bool {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get(queue).is_some_and(|at| at.elapsed() < RECENT)
    }
}
