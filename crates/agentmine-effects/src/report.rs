//! Reports how a task ended. Every report may be repeated.

use agentmine_domain::{EffectKey, TaskLabel, TaskState};
use serde_json::Value;

use crate::text::{failure_comment, result_comment, stopped_comment};
use crate::{EffectError, Effects, is_final};

/// Replaces the session's number in reports that no session makes.
const NO_SESSION: &str = "ended";

impl Effects {
    /// Reports a result; `missing` is set if it is partial.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn report_done(
        &self,
        url: &str,
        missing: Option<&str>,
        session: &str,
    ) -> Result<(), EffectError> {
        let kind = self.task.item.kind;
        self.comment(&result_comment(kind, url, missing, session))
            .await?;
        self.label(TaskLabel::Done).await
    }

    /// Reports that the task failed.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn report_failed(&self, reason: &str, session: &str) -> Result<(), EffectError> {
        self.comment(&failure_comment(reason, session)).await?;
        self.label(TaskLabel::Failed).await
    }

    /// Reports that the task was stopped.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn report_stopped(&self, reason: &str, session: &str) -> Result<(), EffectError> {
        let text = stopped_comment(&self.task, &self.labels.request, reason, session);
        self.comment(&text).await?;
        self.label(TaskLabel::Stopped).await
    }

    /// Reports the state in the task's row, for a task that no worker holds. If the tracker refuses the
    /// report permanently, it is recorded as done so that it is not retried forever.
    ///
    /// # Errors
    /// Returns errors of the store and temporary errors of the tracker.
    pub async fn report_end(&self) -> Result<(), EffectError> {
        let label = match self.task.state {
            TaskState::Queued | TaskState::Leased(_) => return Ok(()),
            state @ (TaskState::Paused | TaskState::Ended(_)) => TaskLabel::of(state),
        };
        match self.report_as(label).await {
            Err(EffectError::Tracker(error)) if is_final(&error) => {
                tracing::warn!(task.id = %self.task.id, %error, "the end of the task cannot be reported; gave up");
                let key = EffectKey::label(label, self.task.epoch);
                self.done(&key, &Value::Null).await
            }
            reported => reported,
        }
    }

    async fn report_as(&self, label: TaskLabel) -> Result<(), EffectError> {
        let task = &self.task;
        let reason = task.reason.as_deref().unwrap_or("no reason is recorded");
        match (label, &task.pull_request_url) {
            (TaskLabel::Done, Some(url)) => self.report_done(url, task.missing(), NO_SESSION).await,
            (TaskLabel::Failed, _) => self.report_failed(reason, NO_SESSION).await,
            (TaskLabel::Stopped, _) => self.report_stopped(reason, NO_SESSION).await,
            (TaskLabel::Done | TaskLabel::Paused | TaskLabel::Processing, _) => {
                self.label(label).await
            }
        }
    }
}
