//! Where deliveries point, and the looks there.
//!
//! Each tracker has its own: one that is slow or does not answer delays no other one's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentmine_domain::TrackerKind;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::signed::Genuine;

/// The time between two looks at one repository.
pub(super) const APART: Duration = Duration::from_secs(5);
/// Ids of deliveries that are remembered.
const MOST_IDS: usize = 10_000;
/// Repositories of a tracker that are checked at once.
const AT_ONCE: usize = 4;
/// Repositories of a tracker that wait for a look, or have just been checked. What comes beyond it waits for the scan.
const MOST_PLACES: usize = 10_000;

/// What is to be checked.
#[derive(Debug)]
pub(super) struct Hints {
    seen: Mutex<Seen>,
    /// One for each tracker.
    places: Vec<Places>,
}

/// The deliveries that were seen.
#[derive(Debug, Default)]
struct Seen {
    ids: HashSet<(TrackerKind, String)>,
    order: VecDeque<(TrackerKind, String)>,
}

/// The repositories of one tracker, by their paths.
#[derive(Debug, Default)]
struct Places {
    due: Mutex<HashMap<String, Due>>,
    more: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Due {
    /// Not before this.
    at: Instant,
    wanted: bool,
    /// Once more after that: a delivery may be faster than the forge's own replicas.
    again: bool,
}

impl Hints {
    /// Of so many trackers.
    pub(super) fn of(trackers: usize) -> Self {
        Self {
            seen: Mutex::default(),
            places: (0..trackers).map(|_| Places::default()).collect(),
        }
    }

    /// Whether a delivery was not seen before. One without an id counts as new.
    pub(super) fn is_new(&self, forge: TrackerKind, delivery: &Genuine) -> bool {
        let Some(id) = delivery.id.clone() else {
            return true;
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (forge, id);
        if !seen.ids.insert(key.clone()) {
            return false;
        }
        seen.order.push_back(key);
        if seen.order.len() > MOST_IDS
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.ids.remove(&oldest);
        }
        true
    }

    /// Has a repository looked at: at once, or [`APART`] after the last look.
    pub(super) fn note(&self, tracker: usize, path: &str) {
        if let Some(places) = self.places.get(tracker) {
            places.note(path);
        }
    }

    /// Looks where deliveries point until the process drains: at [`AT_ONCE`] repositories of each tracker. A look is short and
    /// is not cancelled.
    pub(super) async fn each<F>(
        &self,
        draining: &CancellationToken,
        look: impl Fn(usize, String) -> F,
    ) where
        F: Future<Output = ()>,
    {
        let look = &look;
        let of_tracker = async |(at, places): (usize, &Places)| {
            while let Some(path) = draining.run_until_cancelled(places.next()).await {
                look(at, path).await;
            }
        };
        let all = self.places.iter().enumerate();
        let all = all.flat_map(|of| std::iter::repeat_n(of, AT_ONCE));
        futures::future::join_all(all.map(of_tracker)).await;
    }
}

impl Places {
    fn note(&self, path: &str) {
        let now = Instant::now();
        let mut places = self.lock();
        if places.len() >= MOST_PLACES {
            places.retain(|_, due| due.wanted || due.at > now);
        }
        if places.len() < MOST_PLACES {
            let due = places.entry(path.to_lowercase());
            let due = due.or_insert(Due {
                at: now,
                wanted: true,
                again: true,
            });
            (due.wanted, due.again) = (true, true);
        }
        drop(places);
        self.more.notify_one();
    }

    /// The next repository to look at; waits for it.
    async fn next(&self) -> String {
        loop {
            let wait = {
                let mut places = self.lock();
                let wanted = places.iter().filter(|(_, due)| due.wanted);
                let next = wanted.min_by_key(|(path, due)| (due.at, *path));
                let next = next.map(|(path, due)| (path.clone(), *due));
                match next {
                    Some((path, due)) if due.at <= Instant::now() => {
                        let due = Due {
                            at: Instant::now() + APART,
                            wanted: due.again,
                            again: false,
                        };
                        places.insert(path.clone(), due);
                        // Of several that wait, a note may have woken one.
                        self.more.notify_one();
                        return path;
                    }
                    Some((_, due)) => Some(due.at),
                    None => None,
                }
            };
            match wait {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.more.notified() => {}
                },
                None => self.more.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Due>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_costs_one_look_in_five_seconds() {
        let hints = Hints::of(1);
        let began = Instant::now();
        let mut looks = Vec::new();
        for _ in 0..3 {
            for _ in 0..1000 {
                hints.note(0, "Octo/Demo");
                hints.note(0, "octo/demo");
            }
            assert_eq!(hints.places[0].next().await, "octo/demo");
            looks.push(began.elapsed().as_secs());
        }
        assert_eq!(looks, [0, 5, 10]);
        hints.note(0, "octo/other");
        assert_eq!(hints.places[0].next().await, "octo/other");
        assert_eq!(began.elapsed().as_secs(), 10);
        // Each delivery is checked twice, the second time after what the forge may need to show it.
        assert_eq!(hints.places[0].next().await, "octo/demo");
        assert_eq!(hints.places[0].next().await, "octo/other");
        assert_eq!(began.elapsed().as_secs(), 15);
        let more = tokio::time::timeout(APART * 2, hints.places[0].next()).await;
        assert!(more.is_err(), "{more:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tracker_that_does_not_answer_delays_no_other_one() {
        let hints = Hints::of(3);
        let (looked, mut looks) = tokio::sync::mpsc::unbounded_channel();
        let draining = CancellationToken::new();
        let look = |tracker, path: String| {
            let looked = looked.clone();
            async move {
                if tracker == 0 || path == "octo/slow" {
                    std::future::pending::<()>().await;
                }
                looked.send((tracker, path)).unwrap();
            }
        };
        let began = Instant::now();
        for number in 0..AT_ONCE {
            hints.note(0, &format!("dead/{number}"));
        }
        // Nor one of its repositories the others.
        for (tracker, path) in [(1, "octo/slow"), (1, "octo/a"), (2, "octo/a")] {
            hints.note(tracker, path);
        }
        let seen = async {
            let mut seen = [looks.recv().await.unwrap(), looks.recv().await.unwrap()];
            seen.sort();
            hints.note(1, "octo/b");
            (seen, looks.recv().await.unwrap())
        };
        let ten = Duration::from_secs(10);
        let (seen, last) = tokio::select! {
            () = hints.each(&draining, look) => panic!("it ended"),
            seen = tokio::time::timeout(ten, seen) => seen.expect("the others' looks"),
        };
        assert_eq!(seen, [(1, "octo/a".to_owned()), (2, "octo/a".to_owned())]);
        assert_eq!(last, (1, "octo/b".to_owned()));
        assert_eq!(began.elapsed().as_secs(), 0);
    }

    #[test]
    fn a_delivery_is_new_once_and_its_memory_is_bounded() {
        let hints = Hints::of(1);
        let new = |id: String| hints.is_new(TrackerKind::GitHub, &Genuine { id: Some(id) });
        assert!(new("first".into()) && !new("first".into()));
        for n in 0..2 * MOST_IDS {
            assert!(new(n.to_string()));
        }
        let seen = hints.seen.lock().unwrap();
        assert!(seen.order.len() <= MOST_IDS && seen.ids.len() <= MOST_IDS);
    }
}
