//! Commands that people write in comments, on the item of a task or on its pull request: `/agentmine stop`.
//!
//! The newest comments of each repository are read, and the reviews of its pull requests that are ours and open, which
//! costs two conditional requests while nobody writes. A command
//! is obeyed in the row of its task, where the worker that holds it finds it, and only by those who may start work. Its
//! record and the change of the row are one transaction, and the reaction is an effect, so any number of producers obey
//! and acknowledge it once.
//!
//! Accepted: of more than a hundred comments in a repository within one interval, the oldest are not seen. Commands on
//! tasks that are over are heard in the repositories of the [`NEWEST`] newest tasks, and of those that are not over.
//! GitHub has no reactions to reviews: a command in one is acknowledged in the progress comment.

mod obey;
mod place;
mod seen;
mod words;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{
    Addressed, ItemKind, ItemRef, PublicStatus, RepositoryKey, Task, TrackerKind,
};
use agentmine_effects::draft_number;
use agentmine_store::TaskFilter;
use agentmine_trackers::{Comment, Tracker, TrackerError};
use anyhow::Result;
use chrono::{TimeDelta, Utc};
use futures::future::join_all;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;
pub(crate) use obey::{Begin, announce_and_label, begin_again};
use obey::{Given, Outcome};
use place::{NEWEST, Place};
pub use seen::SeenCommands;
use seen::{Due, apart};

/// Time between two looks at a repository with a task in progress, or one that waits while there are [`FEW`] repositories. On
/// GitHub it is longer where there are many of the former ([`apart`]).
const EVERY: Duration = Duration::from_secs(15);
/// So few repositories are all looked at so often.
const FEW: usize = 20;
/// Repositories that are checked at once.
const AT_ONCE: usize = 8;
/// Waiting tasks whose repositories are checked for them alone.
const MOST_OPEN: u32 = 500;
/// Looks for commands again and again, until the process drains.
pub(crate) async fn watch(
    (deps, tracker): (Arc<ProducerDeps>, Arc<dyn Tracker>),
    draining: CancellationToken,
) {
    let interval = Duration::from_secs(deps.config.producer.interval_seconds.max(1));
    let mut looks = tokio::time::interval(EVERY.min(interval));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while draining.run_until_cancelled(looks.tick()).await.is_some() {
        // A look is short and is not cancelled.
        look(&deps, &tracker, None).await;
    }
}

/// Obeys the commands in all repositories of a tracker that are due, or in the one at a path.
pub(crate) async fn look(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>, only: Option<&str>) {
    let places = match places(deps, tracker.as_ref()).await {
        Ok(places) => places,
        Err(error) => {
            let error = format!("{error:#}");
            tracing::debug!(error, "the tasks that accept commands cannot be listed");
            return;
        }
    };
    let mut wanted: Vec<&Place> = places.iter().collect();
    match only {
        Some(path) => {
            wanted.retain(|place| place.item.repo_path.eq_ignore_ascii_case(path));
        }
        None => {
            let due = due(deps, tracker, &wanted).await;
            wanted.retain(|place| due.contains(&place.item.repository()));
        }
    }
    for some in wanted.chunks(AT_ONCE) {
        let mut looks = Vec::new();
        for place in some {
            looks.push(in_repository(deps, tracker, place));
        }
        for (place, looked) in some.iter().zip(join_all(looks).await) {
            let Err(error) = looked else { continue };
            deps.commands.failed(place);
            let (repository, error) = (&place.item.repo_path, format!("{error:#}"));
            tracing::debug!(
                repository,
                error,
                "its comments cannot be read; the next check reads them"
            );
        }
    }
}

/// The places of a tracker that are to be checked: those that were not before, and those in which there may be something
/// new.
async fn due(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    own: &[&Place],
) -> HashSet<RepositoryKey> {
    let (mut first, mut again) = (Vec::new(), Vec::new());
    let apart = match tracker.kind() {
        TrackerKind::GitHub => apart(own.iter().filter(|place| place.live).count(), EVERY),
        // GitLab lists where something is new.
        TrackerKind::GitLab | TrackerKind::Local => Duration::ZERO,
    };
    for place in own {
        match deps.commands.due(place, apart) {
            Due::First => first.push(place.item.clone()),
            Due::Again => again.push(place.item.clone()),
            Due::Later => {}
        }
    }
    match tracker.with_news(again).await {
        Ok(news) => first.extend(news),
        Err(error) => {
            let host = tracker.host();
            tracing::debug!(host, %error, "it does not report where something is new; the next check asks again");
        }
    }
    first.iter().map(ItemRef::repository).collect()
}

/// The repositories of a tracker with tasks that may be commanded.
async fn places(deps: &ProducerDeps, tracker: &dyn Tracker) -> Result<Vec<Place>> {
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
    let repositories: HashSet<RepositoryKey> =
        tasks.iter().map(|task| task.item.repository()).collect();
    let are_few = repositories.len() <= FEW;
    for task in tasks.into_iter().filter(|task| tracker.serves(&task.item)) {
        let is_live = match task.state.public() {
            PublicStatus::InProgress => true,
            PublicStatus::Open => are_few,
            PublicStatus::Done | PublicStatus::Failed | PublicStatus::Cancelled => false,
        };
        let pull = pull_of(deps, &task).await?;
        let item = task.item;
        let place = places.entry(item.repository());
        let place = place.or_insert_with(|| Place::of(item));
        place.live |= is_live;
        place.pulls.extend(pull);
    }
    let watched = deps.store.watched_pulls(tracker.kind(), tracker.host());
    for task in watched.await? {
        let pull = opened_by(&task);
        let item = task.item;
        let place = places.entry(item.repository());
        let place = place.or_insert_with(|| Place::of(item));
        place.pulls.extend(pull);
    }
    Ok(places.into_values().collect())
}

/// The number of the pull request that a task is for, or opened.
async fn pull_of(deps: &ProducerDeps, task: &Task) -> Result<Option<u64>> {
    Ok(match (task.item.kind, opened_by(task)) {
        (ItemKind::PullRequest, _) => Some(task.item.number),
        (ItemKind::Issue | ItemKind::Task, Some(number)) => Some(number),
        (ItemKind::Issue, None) if task.epoch.0 > 0 => {
            draft_number(deps.store.as_ref(), task).await?
        }
        (ItemKind::Issue | ItemKind::Task, None) => None,
    })
}

/// The number of the pull request that a task opened with its result.
fn opened_by(task: &Task) -> Option<u64> {
    ItemRef::number_at(task.pull_request_url.as_ref()?)
}

async fn in_repository(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    place: &Place,
) -> Result<()> {
    let of = &place.item;
    let mut found = tracker.recent_comments(of).await?;
    match tracker.recent_reviews(&place.pulls()).await {
        Ok(reviews) => found.extend(reviews),
        // Plain comments are heard nevertheless.
        Err(error) => {
            tracing::debug!(repository = of.repo_path, %error, "its reviews cannot be read; the next check reads them");
        }
    }
    // What was written first is obeyed first. Within a second the ids say that: they rise.
    found.sort_by_key(|recent| (recent.comment.created_at, number(&recent.comment.id)));
    for recent in found {
        let Some(addressed) = Addressed::by(&recent.comment.body) else {
            continue;
        };
        let name = format!("{}|{}|{}", of.tracker, of.host, recent.comment.remark_id());
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
            Ok(Outcome::NoTask) if is_young(&recent.comment) => {}
            Ok(Outcome::NoTask | Outcome::Settled) => deps.commands.settle(name),
            Err(error) if is_of_the_item(&error) => {
                tracing::warn!(item = %recent.item, %addressed, error = format!("{error:#}"), "a command could not be carried out");
                deps.commands.settle(name);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the scan that finds a label may come after a command that was written later. It may take as long as the
/// longest interval between two scans, and a forge's own delay.
fn is_young(comment: &Comment) -> bool {
    Utc::now() - comment.created_at < TimeDelta::minutes(30)
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
                | TrackerError::Archived { .. }
                | TrackerError::Refused { .. }
                | TrackerError::Confidential { .. }
                | TrackerError::Invalid { .. }
        )
    )
}
