//! The labels of the fleet on an item. Nothing else changes them on a tracker.

use std::slice::from_ref;

use agentmine_domain::{ItemRef, Task, TaskLabel, TaskState};
use agentmine_runtime::config::Labels;
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::Store;
use agentmine_trackers::{LabelRequest, Tracker};

use crate::EffectError;
use crate::effects::FRESH;

/// The labels of one item, whether a task of it is known or not.
pub(crate) struct ItemLabels<'a> {
    pub(crate) tracker: &'a dyn Tracker,
    pub(crate) labels: &'a Labels,
    pub(crate) item: &'a ItemRef,
}

impl ItemLabels<'_> {
    /// Adds this label and removes these, by their names on the tracker. All label changes go through here.
    ///
    /// # Errors
    /// Returns errors of the tracker.
    pub(crate) async fn change(
        &self,
        add: Option<TaskLabel>,
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), EffectError> {
        let add = self.names(add);
        self.tracker
            .set_labels(self.item, add, remove, permit)
            .await?;
        Ok(())
    }

    /// Replaces one label by another.
    ///
    /// # Errors
    /// Returns errors of the tracker.
    pub(crate) async fn replace(
        &self,
        shown: TaskLabel,
        by: TaskLabel,
        permit: &Permit,
    ) -> Result<(), EffectError> {
        self.change(Some(by), self.names(Some(shown)), permit).await
    }

    /// Replaces this label by that of the item's latest task, if it is another one. A task that waits for its turn has none:
    /// the label of its request shows it, besides that of its own pause or of the end of an earlier task.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub(crate) async fn give_way(
        &self,
        store: &dyn Store,
        label: TaskLabel,
    ) -> Result<(), EffectError> {
        let mut shown = Some(label);
        while let Some(latest) = store.latest_task(self.item).await? {
            let now = match waits(&latest) {
                false => Some(TaskLabel::of(latest.state)),
                true if shown == Some(TaskLabel::Processing) && self.is_requested().await? => None,
                true => break,
            };
            if now == shown {
                break;
            }
            // The permit of the report may have lapsed; this write goes by what was just read.
            let permit = Permit::of(BootInstant::now(), FRESH);
            self.change(now, self.names(shown), &permit).await?;
            shown = now;
        }
        Ok(())
    }

    /// Whether the item has the label of a request. Without that and any other label of the fleet it would seem that a person
    /// has withdrawn the request.
    async fn is_requested(&self) -> Result<bool, EffectError> {
        let request = &self.labels.request;
        let found = self.tracker.label_request(self.item, request).await?;
        Ok(found != LabelRequest::Absent)
    }

    fn names(&self, label: Option<TaskLabel>) -> &[String] {
        label.map_or(&[], |label| from_ref(name(label, self.labels)))
    }
}

/// Whether a task waits for its turn. Nobody works on it, and it keeps the label of its request.
pub(crate) fn waits(task: &Task) -> bool {
    task.state == TaskState::Queued && task.card.waits_for.is_some()
}

/// The name of a label on the tracker.
pub(crate) fn name(label: TaskLabel, labels: &Labels) -> &String {
    match label {
        TaskLabel::Processing => &labels.processing,
        TaskLabel::Done => &labels.done,
        TaskLabel::Paused => &labels.paused,
        TaskLabel::Stopped => &labels.stopped,
        TaskLabel::Failed => &labels.failed,
    }
}
