//! The label that shows on the item where its task is.

use std::slice::from_ref;

use agentmine_domain::{EffectKey, TaskLabel, TaskState};
use agentmine_runtime::config::Labels;
use agentmine_store::EffectState;
use serde_json::Value;

use crate::{EffectError, Effects};

impl Effects {
    /// Makes this the only one of our labels on the item. A task may be paused and resumed, so the
    /// effect is keyed by the epoch too.
    ///
    /// # Errors
    /// Of the store or the tracker.
    pub async fn label(&self, label: TaskLabel) -> Result<(), EffectError> {
        let key = EffectKey::label(label, self.task.epoch);
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        self.set(label).await?;
        self.done(&key, &Value::Null).await
    }

    /// Moves the label of a task that no worker has claimed yet; later labels belong to the worker.
    ///
    /// # Errors
    /// Of the store or the tracker.
    pub async fn label_queued(&self) -> Result<(), EffectError> {
        if self.task.state != TaskState::Queued || self.task.epoch.0 != 0 {
            return Ok(());
        }
        let key = EffectKey::label(TaskLabel::Processing, self.task.epoch);
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        // A worker may have claimed and finished the task meanwhile: read it again, as late as possible.
        if self.state_now().await? == Some(TaskState::Queued) {
            self.set(TaskLabel::Processing).await?;
        }
        // While the write was under way the task may have ended, and the worker's label is the last word.
        match self.state_now().await? {
            Some(TaskState::Ended(_) | TaskState::Paused) => {
                let processing = from_ref(name(TaskLabel::Processing, &self.labels));
                self.tracker
                    .set_labels(&self.task.item, &[], processing)
                    .await?;
            }
            Some(TaskState::Queued | TaskState::Leased(_)) | None => {}
        }
        self.done(&key, &Value::Null).await
    }

    async fn state_now(&self) -> Result<Option<TaskState>, EffectError> {
        let task = self.store.task(self.task.id).await?;
        Ok(task.map(|task| task.state))
    }

    /// The one label move.
    async fn set(&self, label: TaskLabel) -> Result<(), EffectError> {
        let add = name(label, &self.labels);
        let Labels {
            request,
            processing,
            done,
            paused,
            stopped,
            failed,
        } = &self.labels;
        let remove: Vec<String> = [request, processing, done, paused, stopped, failed]
            .into_iter()
            .filter(|name| *name != add)
            .cloned()
            .collect();
        self.tracker
            .set_labels(&self.task.item, from_ref(add), &remove)
            .await?;
        Ok(())
    }
}

pub(crate) fn name(label: TaskLabel, labels: &Labels) -> &String {
    match label {
        TaskLabel::Processing => &labels.processing,
        TaskLabel::Done => &labels.done,
        TaskLabel::Paused => &labels.paused,
        TaskLabel::Stopped => &labels.stopped,
        TaskLabel::Failed => &labels.failed,
    }
}
