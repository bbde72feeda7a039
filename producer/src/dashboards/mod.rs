//! Keeps the dashboard of each repository with tasks, where its tracker is configured so.
//!
//! Any number of producers look; the one that holds the record of a dashboard reads and writes its issue, and obeys the ticks
//! on it.

mod places;
mod seen;
mod ticks;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_domain::{EndState, ItemKind, ItemRef, Task, TaskState};
use agentmine_effects::{
    DASHBOARD_ENTRIES, DashboardEntry, DashboardIssue, DashboardRewrite, DashboardState,
    DashboardView, EffectError, dashboard_text, is_final,
};
use agentmine_store::why::known_reasons;
use agentmine_trackers::{Tracker, TrackerError};
use anyhow::Result;
use chrono::{TimeDelta, Utc};
use futures::future::join_all;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;
use places::{Place, places};
pub use seen::SeenDashboards;
use seen::SettledTicks;
use ticks::{Obeying, Ticks};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(30);
/// Time until a repository that a webhook named is checked again, where another look held its dashboard.
const SOON: Duration = Duration::from_secs(2);
/// Time until a dashboard is looked for again that the tracker refused to open.
const REFUSED: Duration = Duration::from_secs(3600);
/// Repositories that are checked at once.
const AT_ONCE: usize = 8;
/// For so long a task is shown that ended.
const ENDED: TimeDelta = TimeDelta::days(7);
/// Tasks of a repository that ended and are shown.
const MOST_ENDED: usize = 10;

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Whole,
    /// Another look holds a dashboard. It may have read the issue before a tick.
    Held,
}

/// Looks at the dashboards of a tracker again and again, until the process drains.
pub(crate) async fn watch(
    (deps, tracker): (Arc<ProducerDeps>, Arc<dyn Tracker>),
    draining: CancellationToken,
) {
    if !tracker.keeps_dashboards() {
        return;
    }
    let interval = Duration::from_secs(deps.config.producer.interval_seconds.max(1));
    let mut looks = tokio::time::interval(EVERY.min(interval));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // A look is short and is not cancelled.
        tokio::select! {
            () = draining.cancelled() => return,
            _ = looks.tick() => look(&deps, &tracker).await,
            () = hinted(&deps, tracker.as_ref()) => {
                for path in deps.dashboards.take_hinted(tracker.as_ref()) {
                    look_at_hint(&deps, &tracker, &path).await;
                }
            }
        }
    }
}

async fn hinted(deps: &ProducerDeps, tracker: &dyn Tracker) {
    deps.dashboards.until_hinted(tracker).await;
    tokio::time::sleep(SOON).await;
}

/// Brings all dashboards of a tracker up to date.
pub(crate) async fn look(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>) {
    look_at(deps, tracker, None).await;
}

/// Brings the dashboard of the repository up to date that a webhook names.
pub(crate) async fn look_at_hint(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>, path: &str) {
    if look_at(deps, tracker, Some(path)).await == Looked::Held {
        deps.dashboards.look_soon(tracker.as_ref(), path);
    }
}

async fn look_at(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>, only: Option<&str>) -> Looked {
    let mut all = Looked::Whole;
    if !tracker.keeps_dashboards() {
        return all;
    }
    let places = match places(deps, tracker.as_ref(), only).await {
        Ok(places) => places,
        Err(error) => {
            tracing::debug!(%error, "the tasks for the dashboards cannot be listed");
            return all;
        }
    };
    for some in places.chunks(AT_ONCE) {
        let looks = some.iter().map(|place| in_repository(deps, tracker, place));
        for (place, looked) in some.iter().zip(join_all(looks).await) {
            let key = place.key();
            let repository = &place.repository.repo_path;
            match looked {
                Ok(Looked::Whole) => deps.dashboards.works(&key),
                Ok(Looked::Held) => all = Looked::Held,
                Err(error) if deps.dashboards.fails(key) => {
                    let error = format!("{error:#}");
                    tracing::warn!(
                        repository,
                        error,
                        "its dashboard cannot be updated; the next check tries again"
                    );
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::debug!(repository, error, "its dashboard cannot be updated");
                }
            }
        }
    }
    all
}

async fn in_repository(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    place: &Place,
) -> Result<Looked> {
    let key = place.key();
    if deps.dashboards.is_refused(&key) {
        return Ok(Looked::Whole);
    }
    let (store, tracker) = (Arc::clone(&deps.store), Arc::clone(tracker));
    let time = Duration::from_secs(deps.config.consumer.lease_seconds);
    let held = DashboardIssue::claim(store, Arc::clone(&tracker), &place.repository, time);
    let Some(mut issue) = held.await? else {
        return Ok(Looked::Held);
    };
    let mut settled = deps.dashboards.take_ticks(&key);
    let kept = keep(deps, &tracker, (place, &mut settled), &mut issue).await;
    if issue.item().number == 0 && kept.as_ref().is_err_and(is_refusal) {
        let until = Instant::now() + REFUSED;
        deps.dashboards.refuse(key.clone(), until);
    }
    deps.dashboards.keep_ticks(key, settled);
    issue.release().await?;
    kept.map(|()| Looked::Whole)
}

/// Whether the tracker will say so again.
fn is_refusal(error: &anyhow::Error) -> bool {
    let Some(EffectError::Tracker(error)) = error.downcast_ref() else {
        return false;
    };
    // A token is renewed.
    is_final(error) && !matches!(error, TrackerError::Unauthorized { .. })
}

async fn keep(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    (place, settled): (&Place, &mut SettledTicks),
    issue: &mut DashboardIssue,
) -> Result<()> {
    let mut obeying = Obeying {
        deps,
        tracker,
        place,
        settled,
    };
    let mut when = DashboardRewrite::IfChanged;
    let mut fresh = None;
    match issue.read().await? {
        DashboardState::Withdrawn => return Ok(()),
        DashboardState::Absent => {}
        DashboardState::Open(item) => {
            match obeying.settle(issue, &item).await? {
                Ticks::Unknown => return Ok(()),
                Ticks::New => fresh = again(deps, tracker.as_ref(), place).await?,
                Ticks::Settled => {}
            }
            if !issue.ticked(&item).1.is_empty() {
                when = DashboardRewrite::Always;
            }
        }
    }
    let shown = fresh.as_ref().unwrap_or(place);
    let view = view(deps, tracker.as_ref(), shown, &issue.item()).await?;
    let mut text = dashboard_text(&view, issue.notice());
    let Some(revision) = issue.begin(&text, when).await? else {
        return Ok(());
    };
    // Somebody may have ticked a box since.
    match issue.read().await? {
        DashboardState::Withdrawn => return Ok(()),
        DashboardState::Absent => {}
        DashboardState::Open(item) => match obeying.settle(issue, &item).await? {
            Ticks::Unknown => return Ok(()),
            Ticks::Settled => {}
            Ticks::New => {
                let fresh = again(deps, tracker.as_ref(), place).await?;
                let shown = fresh.as_ref().unwrap_or(place);
                let view = self::view(deps, tracker.as_ref(), shown, &issue.item()).await?;
                text = dashboard_text(&view, issue.notice());
            }
        },
    }
    Ok(issue.show(revision, &text).await?)
}

/// A repository as it is after ticks were obeyed.
async fn again(deps: &ProducerDeps, tracker: &dyn Tracker, place: &Place) -> Result<Option<Place>> {
    let path = &place.repository.repo_path;
    let places = places(deps, tracker, Some(path)).await?;
    Ok(places.into_iter().find(|it| it.key() == place.key()))
}

/// What the dashboard is to show.
async fn view(
    deps: &ProducerDeps,
    tracker: &dyn Tracker,
    place: &Place,
    of: &ItemRef,
) -> Result<DashboardView> {
    let mut view = DashboardView::default();
    let hidden = hidden(tracker, place, of).await?;
    let is_hidden = |item: &ItemRef| item.kind == ItemKind::Issue && hidden.contains(&item.number);
    let now = Utc::now();
    let mut newest: HashMap<String, &Task> = HashMap::new();
    for task in &place.tasks {
        let known = newest.entry(task.item.key()).or_insert(task);
        if known.number < task.number {
            *known = task;
        }
    }
    let mut tasks: Vec<&Task> = place.tasks.iter().collect();
    tasks.sort_by_key(|task| {
        let waits = task.card.waits_for.is_some();
        (waits.then_some(Reverse(task.priority)), task.number)
    });
    let listed = tasks.iter().filter(|task| task.card.waits_for.is_some());
    view.more_waiting = place.waiting.saturating_sub(listed.count());
    let (mut working, mut waiting, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    for task in tasks {
        let is_last = newest.get(&task.item.key()).map(|it| it.id) == Some(task.id);
        let is_recent = is_last && now - task.updated_at < ENDED;
        let part = match task.state {
            TaskState::Leased(_) => &mut working,
            TaskState::Queued | TaskState::Paused => &mut waiting,
            TaskState::Ended(EndState::Done) if task.missing().is_none() => continue,
            TaskState::Ended(_) if is_recent => &mut ended,
            TaskState::Ended(_) => continue,
        };
        if is_hidden(&task.item) {
            view.confidential += 1;
        } else {
            part.push(task);
        }
    }
    // The reasons are read task by task while the dashboard is held, so only those of tasks that are shown.
    view.more_waiting += waiting.len().saturating_sub(DASHBOARD_ENTRIES);
    waiting.truncate(DASHBOARD_ENTRIES);
    ended.reverse();
    ended.truncate(MOST_ENDED);
    view.working = entries(deps, working).await?;
    view.waiting = entries(deps, waiting).await?;
    view.ended = entries(deps, ended).await?;
    let held = place.held.iter();
    let shown = held.filter(|held| !is_hidden(&held.request.item));
    view.held = shown.cloned().collect();
    view.confidential += place.held.len() - view.held.len();
    Ok(view)
}

/// Tasks with what is known about why they are or are not worked on.
async fn entries(deps: &ProducerDeps, tasks: Vec<&Task>) -> Result<Vec<DashboardEntry>> {
    let mut entries = Vec::with_capacity(tasks.len());
    for task in tasks {
        let (mut reasons, _) = known_reasons(deps.store.as_ref(), task, None).await?;
        // Who asked for it is on its item. Which machine works on it concerns nobody there.
        reasons.retain(|reason| reason.code != "requested");
        if let TaskState::Leased(phase) = task.state {
            for reason in reasons.iter_mut().filter(|it| it.code == "working") {
                reason.message = format!("A worker is {}.", phase.as_str());
            }
        }
        entries.push(DashboardEntry {
            task: task.clone(),
            reasons,
        });
    }
    Ok(entries)
}

/// The numbers of the confidential issues among those that are shown.
async fn hidden(tracker: &dyn Tracker, place: &Place, of: &ItemRef) -> Result<HashSet<u64>> {
    let tasks = place.tasks.iter().map(|task| &task.item);
    let held = place.held.iter().map(|held| &held.request.item);
    let issues = tasks.chain(held).filter(|it| it.kind == ItemKind::Issue);
    let mut numbers: Vec<u64> = issues.map(|item| item.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let hidden = tracker.confidential(of, &numbers).await?;
    Ok(hidden.into_iter().collect())
}
