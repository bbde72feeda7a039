//! The end of a task whose item was moved to another repository meanwhile: it is reported where the item is now.
//!
//! The comment of the task moved with the item, and would say for ever that somebody works on it. Nothing is said there of
//! the repository that the item came from: who reads the one may not read the other. Labels are set only where the item can
//! be picked up by them.

use agentmine_domain::{EffectKey, ItemKind, ItemRef, Task, TaskLabel};
use agentmine_trackers::{Moved, PullRequest};
use serde_json::json;

use crate::text::moved_comment;
use crate::{EffectError, Effects, is_final};

/// Whether the end of a task was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportedMove {
    /// It was, or cannot be. That is recorded.
    Yes,
    /// The item is in its place.
    NotMoved,
}

impl Effects {
    /// Reports that a task was stopped, where its item is now. `open` is its pull request.
    pub(crate) async fn report_move(
        &self,
        reason: &str,
        session: &str,
        open: Option<&PullRequest>,
    ) -> Result<ReportedMove, EffectError> {
        if self.task.item.kind != ItemKind::Issue {
            return Ok(ReportedMove::NotMoved);
        }
        let item = match self.tracker.moved_to(&self.task.item).await {
            Ok(Moved::No) => return Ok(ReportedMove::NotMoved),
            Ok(Moved::To(item)) => item,
            Ok(Moved::OutOfReach(why)) => {
                tracing::info!(task.id = %self.task.id, why, "the stop is not reported where the item is now");
                self.end_without_label(Some(&why)).await?;
                return Ok(ReportedMove::Yes);
            }
            Err(error) if is_final(&error) => return Ok(ReportedMove::NotMoved),
            Err(error) => return Err(error.into()),
        };
        let is_scanned = self.tracker.scans(&item.repo_path);
        let there = self.at(item);
        let text = moved_comment(&self.task, reason, session, open);
        there.last_comment(&text).await?;
        match is_scanned {
            true => there.label(TaskLabel::Stopped).await?,
            false => there.end_without_label(None).await?,
        }
        Ok(ReportedMove::Yes)
    }

    /// The effects of the same task on its item in another place.
    fn at(&self, item: ItemRef) -> Self {
        Self {
            lease: self.lease.clone(),
            ..self.of_other(Task {
                item,
                ..self.task.clone()
            })
        }
    }

    /// Records that the end of the task is shown by no label, and `why` by no comment either.
    async fn end_without_label(&self, why: Option<&str>) -> Result<(), EffectError> {
        let key = EffectKey::label(TaskLabel::Stopped, self.task.epoch);
        self.begin(&key).await?;
        self.done(&key, &json!({ "not_reported": why })).await
    }
}
