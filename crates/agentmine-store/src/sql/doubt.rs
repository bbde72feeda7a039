//! Which idle connections are replaced or tested before they are used again.
//!
//! After a failover an open connection may lead to the server that was the primary before, and a session keeps
//! the read-only setting that it began with. Such a connection refuses every write for as long as it lives. So
//! once a write was refused, all connections that are as old are replaced before they are used again.
//!
//! A test is a round trip. A connection that was used a moment ago needs none, unless another one broke since: a server that
//! is restarted closes all of them. An operation that meets the first broken one is repeated, and then meets no other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::failure::Failure;

/// For how long an idle connection needs no test.
const FRESH: Duration = Duration::from_secs(1);

/// What failures have shown of a pool's connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Doubt(Arc<Mutex<Last>>);

#[derive(Debug, Clone, Copy, Default)]
struct Last {
    /// When a write was refused.
    refused: Option<Instant>,
    /// When a connection was found to be broken.
    broken: Option<Instant>,
}

/// What to do with an idle connection that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fitness {
    Usable,
    Untested,
    Unusable,
}

impl Doubt {
    /// Notes what a failure at this moment shows.
    pub(super) fn note(&self, failure: &Failure) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_read_only() {
            last.refused = Some(Instant::now());
        }
        if failure.is_broken_connection() {
            last.broken = Some(Instant::now());
        }
    }

    /// Of a connection of this age that was last used so long ago.
    pub(super) fn of(&self, age: Duration, idle_for: Duration) -> Fitness {
        let Last { refused, broken } = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let began_after = |duration, event: Option<Instant>| {
            event.is_none_or(|event: Instant| duration < event.elapsed())
        };
        if !began_after(age, refused) {
            Fitness::Unusable
        } else if idle_for < FRESH && began_after(idle_for, broken) {
            Fitness::Usable
        } else {
            Fitness::Untested
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_tested_after_a_while_or_once_another_broke() {
        const MOMENT: Duration = Duration::from_millis(10);
        let doubt = Doubt::default();
        let age = FRESH * 100;
        assert_eq!(doubt.of(age, MOMENT), Fitness::Usable);
        assert_eq!(doubt.of(age, FRESH), Fitness::Untested);
        doubt.note(&Failure::Database(std::io::Error::other("reset").into()));
        assert_eq!(doubt.of(age, MOMENT), Fitness::Untested);
        std::thread::sleep(MOMENT);
        assert_eq!(doubt.of(age, Duration::ZERO), Fitness::Usable, "used since");
        doubt.note(&Failure::TimedOut);
        assert_eq!(doubt.of(age, Duration::ZERO), Fitness::Usable);
    }
}
