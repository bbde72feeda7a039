//! Connections that lead to a server without writes.
//!
//! After a failover an open connection may lead to the server that was the primary before, and a session keeps
//! the read-only setting that it began with. Such a connection refuses every write for as long as it lives. So
//! once a write was refused, all connections that are as old are replaced before they are used again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When a write was last refused.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadOnly(Arc<Mutex<Option<Instant>>>);

impl ReadOnly {
    /// A write is refused at this moment.
    pub(super) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a connection of this age may still be used.
    pub(super) fn allows(&self, age: Duration) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|last| age < last.elapsed())
    }
}
