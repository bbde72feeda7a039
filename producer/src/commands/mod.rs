//! Commands that people write in comments, on the item of a task or on its pull request: `/agentmine stop`.
//!
//! The newest comments of each repository are read, which costs one conditional request while nobody writes. A command
//! is obeyed in the row of its task, where the worker that holds it finds it, and only by those who may start work. Its
//! record and the change of the row are one transaction, and the reaction is an effect, so any number of producers obey
//! and acknowledge it once.
//!
//! Accepted: of more than a hundred comments in a repository within one interval, the oldest are not seen. Commands on
//! tasks that are over are heard in the repositories of the [`NEWEST`] newest tasks, and of those that are not over.

mod obey;
mod words;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::{Addressed, ItemRef, PublicStatus, RepositoryKey, Task, TaskState};
use agentmine_store::{StoreError, TaskFilter};
use agentmine_trackers::{Tracker, TrackerError};
use anyhow::Result;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;
use obey::Given;

/// Time between two looks at a repository with a task that is not over.
const EVERY: Duration = Duration::from_secs(15);
/// Time between two looks at another one.
const QUIET: Duration = Duration::from_secs(60);
/// Tasks that may be over and are still commanded.
const NEWEST: u32 = 100;
/// Waiting tasks whose repositories are looked at for them alone.
const MOST_OPEN: u32 = 500;
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
    fn is_settled(&self, comment: &str) -> bool {
        self.lock().settled.contains(comment)
    }

    fn settle(&self, comment: String) {
        let mut seen = self.lock();
        if seen.settled.len() >= MOST_SETTLED {
            seen.settled.clear();
        }
        seen.settled.insert(comment);
    }

    /// Whether a place is to be looked at now; then it is not due again for a while.
    fn is_due(&self, place: &Place) -> bool {
        let mut seen = self.lock();
        let key = place.item.repository();
        let last = seen.looked.get(&key);
        let due = place.live || last.is_none_or(|last| last.elapsed() >= QUIET);
        if due {
            seen.looked.insert(key, Instant::now());
        }
        due
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A repository that commands may be written in.
#[derive(Debug)]
struct Place {
    /// One of its items.
    item: ItemRef,
    /// Whether it has a task that is not over.
    live: bool,
}

/// Looks for commands again and again, until the process drains.
pub(crate) async fn watch(deps: Arc<ProducerDeps>, draining: CancellationToken) {
    let interval = Duration::from_secs(deps.config.producer.interval_seconds.max(1));
    let mut looks = tokio::time::interval(EVERY.min(interval));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while draining.run_until_cancelled(looks.tick()).await.is_some() {
        // A look is short and is not cancelled.
        look(&deps, None).await;
    }
}

/// Obeys the commands in all repositories that are due, or in the one at a path.
pub(crate) async fn look(deps: &ProducerDeps, only: Option<&str>) {
    let places = match places(deps).await {
        Ok(places) => places,
        Err(error) => {
            tracing::debug!(%error, "the tasks that may be commanded cannot be listed");
            return;
        }
    };
    for place in &places {
        let trackers = deps.trackers.iter();
        let mut serving = trackers.filter(|tracker| tracker.serves(&place.item));
        let Some(tracker) = serving.next() else {
            continue;
        };
        let is_wanted = match only {
            Some(path) => place.item.repo_path.eq_ignore_ascii_case(path),
            None => deps.commands.is_due(place),
        };
        if is_wanted && let Err(error) = in_repository(deps, tracker, &place.item).await {
            let (repository, error) = (&place.item.repo_path, format!("{error:#}"));
            tracing::debug!(
                repository,
                error,
                "its comments cannot be looked at; the next look sees them"
            );
        }
    }
}

/// The repositories with tasks that may be commanded.
async fn places(deps: &ProducerDeps) -> Result<Vec<Place>, StoreError> {
    let list = async |status, limit| {
        let filter = TaskFilter {
            status,
            limit,
            ..TaskFilter::default()
        };
        deps.store.tasks(&filter).await
    };
    let mut tasks = list(Some(PublicStatus::InProgress), 0).await?;
    tasks.extend(list(Some(PublicStatus::Open), MOST_OPEN).await?);
    tasks.extend(list(None, NEWEST).await?);
    let mut places: HashMap<RepositoryKey, Place> = HashMap::new();
    for Task { item, state, .. } in tasks {
        let is_live = !matches!(state, TaskState::Ended(_));
        let place = places
            .entry(item.repository())
            .or_insert(Place { item, live: false });
        place.live |= is_live;
    }
    Ok(places.into_values().collect())
}

async fn in_repository(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    of: &ItemRef,
) -> Result<()> {
    let mut found = tracker.recent_comments(of).await?;
    // The ids of comments rise: what was written first is obeyed first.
    found.sort_by_key(|recent| number(&recent.comment.id));
    for recent in found {
        let Some(addressed) = Addressed::by(&recent.comment.body) else {
            continue;
        };
        let name = format!("{}|{}|{}", of.tracker, of.host, recent.comment.id);
        if recent.comment.is_of_the_fleet() || deps.commands.is_settled(&name) {
            continue;
        }
        let given = Given {
            deps,
            tracker,
            item: &recent.item,
            comment: &recent.comment,
            addressed: &addressed,
        };
        match Box::pin(given.obey()).await {
            Ok(()) => deps.commands.settle(name),
            Err(error) if is_of_the_item(&error) => {
                tracing::warn!(item = %recent.item, %addressed, error = format!("{error:#}"), "a command is not obeyed");
                deps.commands.settle(name);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The number of a comment.
fn number(id: &str) -> u64 {
    id.parse().unwrap_or_default()
}

/// Whether an error concerns the item alone and would be met again.
fn is_of_the_item(error: &anyhow::Error) -> bool {
    let tracker = match error.downcast_ref::<agentmine_effects::EffectError>() {
        Some(agentmine_effects::EffectError::Tracker(error)) => Some(error),
        Some(_) => None,
        None => error.downcast_ref::<TrackerError>(),
    };
    matches!(
        tracker,
        Some(
            TrackerError::NotFound { .. }
                | TrackerError::Forbidden { .. }
                | TrackerError::Refused { .. }
                | TrackerError::Invalid { .. }
        )
    )
}
