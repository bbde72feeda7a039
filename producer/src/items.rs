//! What people did to the items of tasks in progress, and of those that wait for a worker, where a webhook points. A worker
//! looks at its own item too, but less often.

use std::sync::Arc;

use agentmine_domain::{PublicStatus, Task, TaskHome, TaskState, pause_label_reason};
use agentmine_effects::Effects;
use agentmine_runtime::config::{Labels, has_label};
use agentmine_store::TaskFilter;
use agentmine_trackers::{Item, Tracker, closed};
use anyhow::Result;

use crate::deps::ProducerDeps;

/// The newest open tasks, among which are those that wait for a worker.
const MOST_OPEN: u32 = 500;

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

/// Whether the bot is no longer assigned to an item. A session remembers that it was.
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
    Ok(effects.was_assigned().await? && !item.is_assigned_to(&tracker.login().await?))
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
