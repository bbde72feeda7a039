//! What a process remembers of commands: which are settled, and when it looked where.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::RepositoryKey;
use tokio::time::Instant;

use super::place::Place;

/// The least time between two looks at another one, so that a person is obeyed within a minute.
const QUIET: Duration = Duration::from_secs(44);
/// At most this many repositories with a task in progress are checked in each interval. On GitHub a check is two requests, and
/// a token has 900 points a minute, shared by all who use it.
const OFTEN: u32 = 30;
/// Comments that are known to need nothing more. Past it, all are forgotten and looked up again.
const MOST_SETTLED: usize = 20_000;

/// Which commands this process has settled, and when it looked where.
#[derive(Debug, Default)]
pub struct SeenCommands(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    settled: HashSet<String>,
    looked: HashMap<RepositoryKey, Instant>,
    /// Where the last look failed.
    failed: HashSet<RepositoryKey>,
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

    /// Whether a place is to be checked now; then it is not due again for a while, with a task in progress for `apart`.
    pub(super) fn due(&self, place: &Place, apart: Duration) -> Due {
        let mut seen = self.lock();
        let key = place.item.repository();
        let due = match seen.looked.get(&key) {
            None => Due::First,
            Some(last) if place.live && last.elapsed() >= apart => Due::Again,
            Some(last) if last.elapsed() >= QUIET => Due::Again,
            Some(_) => return Due::Later,
        };
        seen.looked.insert(key.clone(), Instant::now());
        match seen.failed.remove(&key) {
            true => Due::First,
            false => due,
        }
    }

    /// A place could not be read: it is looked at again whether or not the tracker reports something new there.
    pub(super) fn failed(&self, place: &Place) {
        self.lock().failed.insert(place.item.repository());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The minimum time between two checks of a repository with a task in progress, if there are `live` of them.
pub(super) fn apart(live: usize, interval: Duration) -> Duration {
    let live = u32::try_from(live).unwrap_or(u32::MAX);
    match live {
        ..=OFTEN => Duration::ZERO,
        _ => (interval.saturating_mul(live) / OFTEN)
            .saturating_sub(Duration::from_secs(1))
            .min(QUIET),
    }
}

/// Whether a place is to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// It was not looked at before, or in vain.
    First,
    Again,
    Later,
}

#[cfg(test)]
mod tests {
    use agentmine_domain::{ItemKind, ItemRef, TrackerKind};

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(15);

    fn live_place() -> Place {
        let mut place = Place::of(ItemRef {
            tracker: TrackerKind::GitLab,
            host: "gitlab.com".into(),
            repo_id: "1".into(),
            repo_path: "octo/demo".into(),
            kind: ItemKind::Issue,
            number: 7,
        });
        place.live = true;
        place
    }

    #[test]
    fn many_repositories_in_progress_are_looked_at_less_often_and_within_a_minute() {
        let seconds = |live| apart(live, INTERVAL).as_secs();
        assert_eq!([0, 1, 30].map(seconds), [0, 0, 0]);
        assert_eq!([40, 60, 1000, usize::MAX].map(seconds), [19, 29, 44, 44]);
    }

    #[test]
    fn a_repository_in_progress_is_due_again_after_its_time() {
        let mut place = live_place();
        let seen = SeenCommands::default();
        assert_eq!(seen.due(&place, INTERVAL), Due::First);
        assert_eq!(seen.due(&place, INTERVAL), Due::Later);
        assert_eq!(seen.due(&place, Duration::ZERO), Due::Again);
        place.live = false;
        assert_eq!(seen.due(&place, Duration::ZERO), Due::Later);
    }

    #[test]
    fn a_place_that_could_not_be_read_is_looked_at_without_news() {
        let place = live_place();
        let seen = SeenCommands::default();
        assert_eq!(seen.due(&place, INTERVAL), Due::First);
        seen.failed(&place);
        assert_eq!(seen.due(&place, INTERVAL), Due::Later, "not at once");
        assert_eq!(seen.due(&place, Duration::ZERO), Due::First);
        assert_eq!(seen.due(&place, Duration::ZERO), Due::Again);
    }
}
