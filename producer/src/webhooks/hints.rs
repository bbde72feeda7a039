//! Where deliveries point, and the looks there.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::TrackerKind;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::signed::Genuine;
use crate::deps::ProducerDeps;
use crate::scan;

/// The time between two looks at one repository.
pub(super) const APART: Duration = Duration::from_secs(5);
/// Ids of deliveries that are remembered.
const MOST_IDS: usize = 10_000;
/// Repositories that wait for a look, or have just been looked at. What comes beyond it waits for the scan.
const MOST_PLACES: usize = 10_000;

/// A repository: which tracker, and its path.
type Place = (usize, String);

/// What is to be looked at.
#[derive(Debug, Default)]
pub(super) struct Hints {
    state: Mutex<State>,
    more: Notify,
}

#[derive(Debug, Default)]
struct State {
    seen: HashSet<(TrackerKind, String)>,
    order: VecDeque<(TrackerKind, String)>,
    places: HashMap<Place, Due>,
}

#[derive(Debug, Clone, Copy)]
struct Due {
    /// Not before this.
    at: Instant,
    wanted: bool,
}

impl Hints {
    /// Whether a delivery was not seen before. One without an id counts as new.
    pub(super) fn is_new(&self, forge: TrackerKind, delivery: &Genuine) -> bool {
        let Some(id) = delivery.id.clone() else {
            return true;
        };
        let mut state = self.lock();
        let key = (forge, id);
        if !state.seen.insert(key.clone()) {
            return false;
        }
        state.order.push_back(key);
        if state.order.len() > MOST_IDS
            && let Some(oldest) = state.order.pop_front()
        {
            state.seen.remove(&oldest);
        }
        true
    }

    /// Has a repository looked at: at once, or [`APART`] after the last look.
    pub(super) fn note(&self, tracker: usize, path: &str) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.places.len() >= MOST_PLACES {
            state.places.retain(|_, due| due.wanted || due.at > now);
        }
        if state.places.len() < MOST_PLACES {
            let first = Due {
                at: now,
                wanted: true,
            };
            let due = state.places.entry((tracker, path.to_lowercase()));
            due.or_insert(first).wanted = true;
        }
        drop(state);
        self.more.notify_one();
    }

    /// The next repository to look at; waits for it.
    async fn next(&self) -> Place {
        loop {
            let wait = {
                let mut state = self.lock();
                let wanted = state.places.iter().filter(|(_, due)| due.wanted);
                let next = wanted.min_by_key(|(_, due)| due.at);
                let next = next.map(|(place, due)| (place.clone(), due.at));
                match next {
                    Some((place, at)) if at <= Instant::now() => {
                        let due = Due {
                            at: Instant::now() + APART,
                            wanted: false,
                        };
                        state.places.insert(place.clone(), due);
                        return place;
                    }
                    Some((_, at)) => Some(at),
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

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks where deliveries point. An error is left to the next scan.
pub(super) async fn look(deps: Arc<ProducerDeps>, hints: Arc<Hints>, draining: CancellationToken) {
    while let Some((at, path)) = draining.run_until_cancelled(hints.next()).await {
        let Some(tracker) = deps.trackers.get(at) else {
            continue;
        };
        // A look is short and is not cancelled.
        match scan::look(&deps, tracker, &path).await {
            Ok(found) => tracing::debug!(
                path,
                enqueued = found.enqueued,
                "looked where a webhook pointed"
            ),
            Err(error) => {
                tracing::debug!(
                    path,
                    error = format!("{error:#}"),
                    "the look where a webhook pointed failed; the next scan looks again"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_costs_one_look_in_five_seconds() {
        let hints = Hints::default();
        let began = Instant::now();
        let mut looks = Vec::new();
        for _ in 0..3 {
            for _ in 0..1000 {
                hints.note(0, "Octo/Demo");
                hints.note(0, "octo/demo");
            }
            assert_eq!(hints.next().await, (0, "octo/demo".to_owned()));
            looks.push(began.elapsed().as_secs());
        }
        assert_eq!(looks, [0, 5, 10]);
        hints.note(0, "octo/other");
        assert_eq!(hints.next().await.1, "octo/other");
        assert_eq!(began.elapsed().as_secs(), 10);
    }

    #[test]
    fn a_delivery_is_new_once_and_its_memory_is_bounded() {
        let hints = Hints::default();
        let new = |id: String| hints.is_new(TrackerKind::GitHub, &Genuine { id: Some(id) });
        assert!(new("first".into()) && !new("first".into()));
        for n in 0..2 * MOST_IDS {
            assert!(new(n.to_string()));
        }
        assert!(hints.lock().order.len() <= MOST_IDS && hints.lock().seen.len() <= MOST_IDS);
    }
}
