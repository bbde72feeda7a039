//! When the database was away, as this process saw it.
//!
//! A worker cannot extend its lease while the database is away. Whoever took the lease at the first moment at
//! which the database is back would count an attempt that the task did not cause, and give the work to a second
//! worker. So for the length of a lease after an absence nobody takes an expired one: its holder, if there
//! still is one, has extended it by then.
//!
//! Accepted: a process that was started after the absence has not seen it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_runtime::failpoint::Guard;

/// A database that takes longer than this for one connection is as good as away.
const SLOW: Duration = Duration::from_secs(5);

/// The end of the last absence.
#[derive(Debug, Default)]
pub(super) struct Absence(Mutex<Option<Instant>>);

impl Absence {
    /// The database is away at this moment.
    pub(super) fn note(&self) {
        *self.last() = Some(Instant::now());
    }

    /// A connection was waited for since `begun`.
    pub(super) fn note_if_slow(&self, begun: Instant) {
        if begun.elapsed() >= SLOW {
            self.note();
        }
    }

    /// Whether it was away within the time that a lease lasts.
    pub(super) fn is_within(&self, lease: Duration) -> bool {
        !Guard::Grace.is_off() && self.last().is_some_and(|last| last.elapsed() < lease)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
