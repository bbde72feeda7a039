//! What a process remembers of commands: which are settled, and when it looked where.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::RepositoryKey;
use tokio::time::Instant;

use super::place::Place;

/// The least time between two looks at another one, so that a person is obeyed within a minute.
const QUIET: Duration = Duration::from_secs(44);
/// Comments that are known to need nothing more. Past it, all are forgotten and looked up again.
const MOST_SETTLED: usize = 20_000;

/// Which commands this process has settled, and when it looked where.
#[derive(Debug, Default)]
pub struct SeenCommands(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    settled: HashSet<String>,
    looked: HashMap<RepositoryKey, Instant>,
}

impl SeenCommands {
    pub(super) fn is_settled(&self, comment: &str) -> bool {
        self.lock().settled.contains(comment)
    }

    pub(super) fn settle(&self, comment: String) {
        let mut seen = self.lock();
        if seen.settled.len() >= MOST_SETTLED {
            seen.settled.clear();
        }
        seen.settled.insert(comment);
    }

    /// Whether a place is to be checked now; then it is not due again for a while.
    pub(super) fn due(&self, place: &Place) -> Due {
        let mut seen = self.lock();
        let key = place.item.repository();
        let due = match seen.looked.get(&key) {
            None => Due::First,
            Some(last) if place.live || last.elapsed() >= QUIET => Due::Again,
            Some(_) => return Due::Later,
        };
        seen.looked.insert(key, Instant::now());
        due
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a place is to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// It was not looked at before.
    First,
    Again,
    Later,
}
