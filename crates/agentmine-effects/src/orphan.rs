//! Items that say that they are worked on although no task is.
//!
//! A label survives what the database forgets: a restored backup, a row that was deleted, a label that a person
//! set. Nobody would ever move such a label.
//!
//! Accepted: two fleets with different databases that use the same labels in one repository take each other's
//! items for such. A worker whose item was changed sets its label again when its task ends.

use std::slice::from_ref;

use agentmine_domain::{ItemRef, TaskLabel, TaskState};
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::Store;
use agentmine_trackers::FLEET_MARKER;

use crate::text::orphan_comment;
use crate::{EffectError, FRESH, Reporter};

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

impl Reporter {
    /// Puts an item right that carries the label `processing` without a live task: it gets the label of its last
    /// task's end, or if no task is known, the label `stopped` and a comment.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn put_orphan_right(&self, item: &ItemRef) -> Result<Orphan, EffectError> {
        let permit = Permit::of(BootInstant::now(), FRESH);
        let shown = self.tracker.item(item).await?.labels;
        if !shown.contains(&self.labels.processing) || shown.contains(&self.labels.request) {
            return Ok(Orphan::Live);
        }
        match self.store.latest_task(item).await? {
            Some(task) if matches!(task.state, TaskState::Ended(_)) => {
                if let Some(effects) = self.claim(&task).await? {
                    effects.put_right(TaskLabel::of(task.state)).await?;
                }
                Ok(Orphan::PutRight)
            }
            Some(_) => Ok(Orphan::Live),
            None => self.stop_unknown(item, &permit).await,
        }
    }

    /// For an item of which no task is known.
    async fn stop_unknown(&self, item: &ItemRef, permit: &Permit) -> Result<Orphan, EffectError> {
        let marker = format!("{FLEET_MARKER}none");
        let text = orphan_comment(&self.labels);
        self.tracker
            .upsert_comment(item, &marker, &text, permit)
            .await?;
        let stopped = from_ref(&self.labels.stopped);
        let processing = from_ref(&self.labels.processing);
        self.tracker
            .set_labels(item, stopped, processing, permit)
            .await?;
        // A task may have been made during the writes; its label takes precedence.
        if is_live(self.store.as_ref(), item).await? {
            self.tracker
                .set_labels(item, processing, stopped, permit)
                .await?;
            return Ok(Orphan::Live);
        }
        Ok(Orphan::PutRight)
    }
}
