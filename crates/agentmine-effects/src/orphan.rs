//! Items that say that they are worked on although no task is.
//!
//! A label survives what the database forgets: a restored backup, a row that was deleted, a label that a person
//! set. Nobody would ever move such a label.
//!
//! Accepted: two fleets with different databases that use the same labels in one repository take each other's
//! items for such. A worker whose item was changed sets its label again when its task ends.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{ItemRef, Task, TaskLabel, TaskState};
use agentmine_runtime::config::Labels;
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::Store;
use agentmine_trackers::{FLEET_MARKER, Tracker};

use crate::text::orphan_comment;
use crate::{EffectError, Effects, FRESH};

/// Whether an item whose label says that it is worked on was put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphan {
    /// It was: the item says now why nobody works on it.
    PutRight,
    /// It has a task that is not over, or a new request.
    Live,
}

/// Whether a task of this item is not over.
///
/// # Errors
/// Returns errors of the store.
pub async fn is_live(store: &dyn Store, item: &ItemRef) -> Result<bool, EffectError> {
    let task = store.latest_task(item).await?;
    Ok(task.is_some_and(|task| !matches!(task.state, TaskState::Ended(_))))
}

/// Puts an item right that carries the label `processing` without a live task: it gets the label of its last
/// task's end, or if no task is known, the label `stopped` and a comment. Any number of processes may do this at
/// the same time.
///
/// # Errors
/// Returns errors of the store and the tracker.
pub async fn put_orphan_right(
    store: Arc<dyn Store>,
    tracker: Arc<dyn Tracker>,
    labels: Labels,
    item: &ItemRef,
    hold: Duration,
) -> Result<Orphan, EffectError> {
    let permit = Permit::of(BootInstant::now(), FRESH);
    let shown = tracker.item(item).await?.labels;
    if !shown.contains(&labels.processing) || shown.contains(&labels.request) {
        return Ok(Orphan::Live);
    }
    match store.latest_task(item).await? {
        Some(task) if matches!(task.state, TaskState::Ended(_)) => {
            end_again(store, tracker, labels, &task, hold).await?;
            Ok(Orphan::PutRight)
        }
        Some(_) => Ok(Orphan::Live),
        None => {
            let marker = format!("{FLEET_MARKER}none");
            let text = orphan_comment(&labels);
            tracker
                .upsert_comment(item, &marker, &text, &permit)
                .await?;
            let (stopped, processing) = ([labels.stopped], [labels.processing]);
            tracker
                .set_labels(item, &stopped, &processing, &permit)
                .await?;
            // A task may have been made during the writes; its label takes precedence.
            if is_live(store.as_ref(), item).await? {
                tracker
                    .set_labels(item, &processing, &stopped, &permit)
                    .await?;
                return Ok(Orphan::Live);
            }
            Ok(Orphan::PutRight)
        }
    }
}

async fn end_again(
    store: Arc<dyn Store>,
    tracker: Arc<dyn Tracker>,
    labels: Labels,
    task: &Task,
    hold: Duration,
) -> Result<(), EffectError> {
    let label = TaskLabel::of(task.state);
    match Effects::of_report(store, tracker, labels, task, hold).await? {
        Some(effects) => effects.put_right(label).await,
        None => Ok(()),
    }
}
