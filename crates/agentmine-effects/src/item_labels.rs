//! The labels of the fleet on an item. Nothing else changes them on a tracker.

use std::slice::from_ref;

use agentmine_domain::{ItemRef, TaskLabel};
use agentmine_runtime::config::Labels;
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::Store;
use agentmine_trackers::Tracker;

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
        add: TaskLabel,
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), EffectError> {
        let add = from_ref(name(add, self.labels));
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
        let remove = from_ref(name(shown, self.labels));
        self.change(by, remove, permit).await
    }

    /// Replaces this label by that of the item's latest task, if it is another one.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub(crate) async fn give_way(
        &self,
        store: &dyn Store,
        label: TaskLabel,
    ) -> Result<(), EffectError> {
        let mut shown = label;
        while let Some(latest) = store.latest_task(self.item).await? {
            let now = TaskLabel::of(latest.state);
            if now == shown {
                break;
            }
            // The permit of the report may have lapsed; this write goes by what was just read.
            let permit = Permit::of(BootInstant::now(), FRESH);
            self.replace(shown, now, &permit).await?;
            shown = now;
        }
        Ok(())
    }
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
