//! What people did to the items of tasks in progress, and of those that wait for a worker.
//!
//! Where a webhook points, all of them are looked at. Without one, a session looks at its own item, and a producer at those
//! that wait for a worker: [`MOST_QUEUED`] in one pass, in turn. Tasks that wait for their turn are looked at by
//! [`crate::scan`] and [`crate::waits`].
//!
//! Accepted: an assignment of the bot that ends before anybody has looked at the item is not noticed.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{PublicStatus, Task, TaskHome, TaskNumber, TaskState, pause_label_reason};
use agentmine_effects::Effects;
use agentmine_runtime::config::{Labels, has_label};
use agentmine_store::TaskFilter;
use agentmine_trackers::{Item, Tracker, TrackerError, closed};
use anyhow::Result;
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;

/// The newest open tasks, among which are those that wait for a worker.
const MOST_OPEN: u32 = 500;
/// Items of tasks that wait for a worker that one pass looks at.
const MOST_QUEUED: usize = 200;
/// Items that are looked at at once.
const AT_ONCE: usize = 8;
/// People are obeyed within a minute.
const EVERY: Duration = Duration::from_secs(30);

/// Which items of tasks that wait for a worker one producer has looked at.
#[derive(Default)]
pub(crate) struct Queued {
    /// The next pass begins below this number.
    before: Option<TaskNumber>,
}

/// A pass in each lease and in [`EVERY`], until the process drains.
pub(crate) async fn watch(
    (deps, tracker): (Arc<ProducerDeps>, Arc<dyn Tracker>),
    draining: CancellationToken,
) {
    let mut passes = deps.passes(EVERY);
    let mut queued = Queued::default();
    while draining.run_until_cancelled(passes.tick()).await.is_some() {
        // A pass is short and is not cancelled.
        queued.look(&deps, &tracker).await;
    }
}

impl Queued {
    /// Looks at the items of tasks that wait for a worker. A tracker that does not answer ends the pass.
    pub(crate) async fn look(&mut self, deps: &ProducerDeps, tracker: &Arc<dyn Tracker>) {
        let admitted = deps.store.admitted(tracker.kind(), tracker.host());
        let mut tasks = match admitted.await {
            Ok(tasks) => tasks,
            Err(error) => {
                tracing::debug!(%error, "the tasks that wait for a worker cannot be listed");
                return;
            }
        };
        tasks.retain(|task| task.home() == TaskHome::Item && tracker.serves(&task.item));
        let looks = next(tasks, (self.before, MOST_QUEUED), |task| task.number);
        let looks = looks.into_iter().map(async |task| {
            let looked = one(deps, tracker, &task).await;
            (task, looked)
        });
        let mut looks = futures::stream::iter(looks).buffered(AT_ONCE);
        while let Some((task, looked)) = looks.next().await {
            self.before = Some(task.number);
            let Err(error) = looked else { continue };
            let shown = format!("{error:#}");
            tracing::debug!(task.id = %task.id, error = shown, "the item of a waiting task cannot be looked at");
            if is_silent(&error) {
                return;
            }
        }
    }
}

/// Whether the tracker would not answer about the next item either.
fn is_silent(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<TrackerError>(),
        Some(TrackerError::Unavailable { .. } | TrackerError::RateLimited { .. })
    )
}

/// What a pass looks at, `most` out of `all`, newest first: what is below `before`, then the rest again from the top.
pub(crate) fn next<T>(
    all: Vec<T>,
    (before, most): (Option<TaskNumber>, usize),
    number: impl Fn(&T) -> TaskNumber,
) -> Vec<T> {
    let is_seen = |one: &T| before.is_some_and(|before| number(one) >= before);
    let (seen, rest): (Vec<T>, Vec<T>) = all.into_iter().partition(is_seen);
    rest.into_iter().chain(seen).take(most).collect()
}

/// Looks at the items of the tasks of one repository that are in progress, or wait. A fault is left to the next look.
pub(crate) async fn look(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>, path: &str) {
    let list = async |status, limit| {
        let filter = TaskFilter {
            status: Some(status),
            limit,
            ..TaskFilter::default()
        };
        deps.store.tasks(&filter).await
    };
    let in_progress = list(PublicStatus::InProgress, 0).await;
    let (mut tasks, open) = match (in_progress, list(PublicStatus::Open, MOST_OPEN).await) {
        (Ok(tasks), Ok(open)) => (tasks, open),
        (Err(error), _) | (_, Err(error)) => {
            tracing::debug!(%error, "the tasks in progress cannot be listed");
            return;
        }
    };
    // What waits for its turn has no label of AgentMine yet, and is checked when that comes.
    tasks.extend(
        open.into_iter()
            .filter(|task| task.card.waits_for.is_none()),
    );
    let is_there = |task: &&Task| {
        tracker.serves(&task.item)
            && task.home() == TaskHome::Item
            && task.item.repo_path.eq_ignore_ascii_case(path)
    };
    for task in tasks.iter().filter(is_there) {
        if let Err(error) = one(deps, tracker, task).await {
            let error = format!("{error:#}");
            tracing::debug!(task.id = %task.id, error, "the item of a task cannot be checked");
        }
    }
}

async fn one(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>, task: &Task) -> Result<()> {
    let (store, labels) = (&deps.store, &deps.config.labels);
    // Before the item, whose labels may be set in between.
    let earlier = store.label_names(task.id).await?;
    let looked = tracker.item(&task.item).await;
    if let Some(reason) = closed(&looked) {
        store.request_stop(task.id, reason).await?;
        return Ok(());
    }
    let item = looked?;
    if task.state == TaskState::Paused {
        resume_unlabelled(deps, task, &item).await?;
    } else if labels.asks_for_pause(&item.labels) {
        let reason = pause_label_reason(&labels.pause);
        store.request_pause(task.id, &reason).await?;
    } else if is_unlabelled(labels, tracker.as_ref(), &earlier, &item) {
        let reason = format!("the label `{}` was removed", labels.processing);
        store.request_stop(task.id, &reason).await?;
    } else if is_unassigned(deps, tracker, task, &item).await? {
        store
            .request_stop(task.id, "the bot was unassigned")
            .await?;
    }
    Ok(())
}

/// Whether the bot is no longer assigned to an item. That it was is recorded when a look finds it so.
async fn is_unassigned(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    task: &Task,
    item: &Item,
) -> Result<bool> {
    let effects = Effects::of_reconciler(
        Arc::clone(&deps.store),
        Arc::clone(tracker),
        deps.config.labels.clone(),
        task.clone(),
    );
    let was_assigned = effects.was_assigned().await?;
    if !was_assigned && item.assignees.is_empty() {
        return Ok(false);
    }
    let is_assigned = item.is_assigned_to(&tracker.own_login().await?);
    if is_assigned && !was_assigned {
        effects.note_assignment().await?;
    }
    Ok(was_assigned && !is_assigned)
}

/// Whether an item has none of the fleet's labels any more. A round begins without one, and labels may be renamed in the
/// configuration.
fn is_unlabelled(labels: &Labels, tracker: &dyn Tracker, earlier: &[String], item: &Item) -> bool {
    if !tracker.requests_by_label() || !earlier.contains(&labels.processing) {
        return false;
    }
    let current = labels.entries().map(|(_, name)| name);
    let mut names = current.into_iter().chain(earlier);
    !names.any(|name| has_label(&item.labels, name))
}

/// Continues a task that is paused for a label which its item does not carry any more.
pub(crate) async fn resume_unlabelled(deps: &ProducerDeps, task: &Task, item: &Item) -> Result<()> {
    let Some(label) = task.pause_label() else {
        return Ok(());
    };
    if !has_label(&item.labels, label) && deps.store.resume(task.id).await? {
        tracing::info!(task.id = %task.id, item = %task.item, "the pause label was removed; the task is queued");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_has_its_turn() {
        let all: Vec<i64> = (1..=500).rev().collect();
        let mut before = None;
        let mut pass = || {
            let numbers = next(all.clone(), (before, 200), |number| TaskNumber(*number));
            before = numbers.last().map(|number| TaskNumber(*number));
            (numbers[0], numbers[numbers.len() - 1])
        };
        assert_eq!(pass(), (500, 301));
        assert_eq!(pass(), (300, 101));
        assert_eq!(pass(), (100, 401));
        assert_eq!(pass(), (400, 201));
    }
}
