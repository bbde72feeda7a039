//! A second look at an end that was reported.
//!
//! A request that a worker sent before it was stalled may reach the tracker after another process has reported
//! the end. So a lease later, when nobody holds an older permit, the item is checked once more, and corrected.
//!
//! Accepted: a person who removes the label of an end within that time sees it return once.

use agentmine_domain::{EffectKey, ItemKind, Task, TaskLabel, TaskState};
use agentmine_runtime::config::has_label;
use agentmine_store::EffectState;
use agentmine_trackers::Comment;

use crate::error::ends_the_report;
use crate::text::is_of_work;
use crate::{EffectError, Effects, EndReport, Reporter};

impl Reporter {
    /// Looks at the item of a task once more whose end was reported: `task` as
    /// [`agentmine_store::ReportStore::unconfirmed`] listed it.
    ///
    /// # Errors
    /// Returns errors of the store and temporary errors of the tracker.
    pub async fn confirm_end(&self, task: &Task) -> Result<EndReport, EffectError> {
        match self.claim(task).await? {
            Some(effects) => {
                let before = effects.task.state;
                let effects = effects.with_late_result().await?;
                // A pull request that was found now makes another end, whose second look comes later.
                let written = match effects.task.state == before {
                    true => effects.confirm().await,
                    false => effects.report_state().await,
                };
                written.map(|()| EndReport::Written)
            }
            None => Ok(EndReport::NotOurs),
        }
    }
}

impl Effects {
    async fn confirm(&self) -> Result<(), EffectError> {
        let Some(label) = self.label_at_rest() else {
            return Ok(());
        };
        let key = EffectKey::label_check(label, self.task.epoch);
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        match self.put_right(label).await {
            Err(EffectError::Tracker(error)) if ends_the_report(&error) => {
                tracing::debug!(task.id = %self.task.id, %error, "the item cannot be checked again");
            }
            looked => looked?,
        }
        self.done(&key, &()).await
    }

    pub(crate) async fn put_right(&self, label: TaskLabel) -> Result<(), EffectError> {
        if self.task.item.kind == ItemKind::Task {
            // It has no item that anybody could have written to.
            return Ok(());
        }
        let item = self.tracker.item(&self.task.item).await?;
        let is_requested = has_label(&item.labels, &self.labels.request);
        let is_left = is_requested && self.request_is_answered(label).await?;
        let asks_again = is_requested && !is_left;
        if !asks_again && (is_left || !self.is_shown(label, &item.labels)) {
            tracing::warn!(task.id = %self.task.id, labels = ?item.labels, "a late write changed the final labels; setting them again");
            self.set_at_rest(label).await?;
        }
        match self.task.state {
            TaskState::Ended(_) => self.put_comment_right(label).await,
            // The comment of a paused task is that of its last session.
            TaskState::Queued | TaskState::Leased(_) | TaskState::Paused => Ok(()),
        }
    }

    async fn put_comment_right(&self, label: TaskLabel) -> Result<(), EffectError> {
        let marker = self.status_marker(&[])?;
        let shown = self.statuses().await?;
        // Of a session of this task, or of an earlier task.
        let is_late = |it: &Comment| is_of_work(&it.body) || !marker.is_own(&it.body);
        if shown.len() > 1 || shown.iter().any(is_late) {
            tracing::warn!(task.id = %self.task.id, comments = shown.len(), "a late write changed the final comment; writing it again");
            self.report_as(label).await?;
        }
        Ok(())
    }
}
