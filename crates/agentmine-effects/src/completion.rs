//! A round that completes a partial result: the text of the pull request reports that, and a draft becomes ready for review.
//!
//! A round measures only its own commits, so everything that the earlier results on the branch lacked counts; if one of their
//! records cannot be read, nothing is completed. The completion is recorded before the commit is reported, so whoever reports
//! the end writes the text, once. Parts that a person changed stay, and a comment reports it. Accepted race: an edit between
//! reading and replacing the text is lost.

use agentmine_domain::{Completion, EffectKey, EndState, ItemKind, Task, TaskState};
use agentmine_store::EffectState;
use agentmine_trackers::{Branches, NewPullRequest};

use crate::error::ends_the_report;
use crate::pull_request::RecordedResult;
use crate::text::changed_text;
use crate::{EffectError, Effects};

/// A pull request with this many tasks is not completed.
const MOST_TASKS: u32 = 100;

/// What a task left on the branch.
enum Left {
    /// Nothing, or a result that lacks these parts.
    Missing(Vec<String>),
    /// A result that completed that of the pull request.
    Completion,
    /// Nobody knows.
    Unknown,
}

impl Effects {
    /// What the results on the branch lack that were recorded before this round, as one text for each partial result. `None`: the
    /// round completes nothing, because the task is no round, the first result was complete, an earlier round has completed it, or
    /// a record cannot be read.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn missing_before(&self) -> Result<Option<Vec<String>>, EffectError> {
        match self.missing_of_earlier().await {
            Err(error @ EffectError::Record { .. }) => {
                tracing::warn!(task.id = %self.task.id, %error, "the record of an earlier result cannot be read; the text of the pull request stays");
                Ok(None)
            }
            missing => missing,
        }
    }

    /// Records that this commit, which the round is about to report, completes the result of its pull request.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn begin_completion(&self, commit: &str) -> Result<(), EffectError> {
        let key = EffectKey::pull_request_completion(commit);
        self.begin(&key).await.map(drop)
    }

    /// Corrects the pull request of a round, once, if it was recorded that the round's commit completes the result.
    pub(crate) async fn finish_completion(&self) -> Result<(), EffectError> {
        if self.task.round().is_none() {
            return Ok(());
        }
        let Some(result) = self.reported_commit().await? else {
            return Ok(());
        };
        let key = EffectKey::pull_request_completion(&result.commit);
        let is_begun = self.store.effect(self.task.id, &key).await?.is_some();
        if !is_begun || matches!(self.begin(&key).await?, EffectState::Done(_)) {
            return Ok(());
        }
        if let Some((origin, missing)) = self.partial_origin().await? {
            match self.complete(&origin, &missing, &result.commit).await {
                Err(EffectError::Tracker(error)) if ends_the_report(&error) => {
                    tracing::warn!(task.id = %self.task.id, %error, "the text of the pull request could not be corrected; it still reports a partial result");
                }
                written => written?,
            }
        }
        self.done(&key, &()).await
    }

    async fn complete(
        &self,
        origin: &Task,
        missing: &str,
        commit: &str,
    ) -> Result<(), EffectError> {
        let pull = self.tracker.item(&self.task.item).await?;
        // Only an item that is no pull request has no branches.
        let Some(Branches { source, target }) = pull.branches.filter(|_| pull.open) else {
            return Ok(());
        };
        let issue = match origin.item.kind {
            ItemKind::Issue => Some(origin.item.number),
            ItemKind::Task | ItemKind::PullRequest => None,
        };
        let number = self.task.item.number;
        match Completion::of(&pull.body, issue, missing, commit) {
            Completion::Due(body) => {
                let new = NewPullRequest {
                    head: source,
                    base: target,
                    title: pull.title,
                    body,
                    draft: false,
                };
                self.tracker
                    .update_pull_request(&self.task.item, number, &new, &self.permit)
                    .await?;
                self.mark_as_ready(number).await
            }
            // The worker that wrote it may have died before the pull request was ready.
            Completion::Written => self.mark_as_ready(number).await,
            Completion::Changed => self.answer(&changed_text(&self.task, commit)).await,
        }
    }

    async fn missing_of_earlier(&self) -> Result<Option<Vec<String>>, EffectError> {
        let Some((origin, missing)) = self.partial_origin().await? else {
            return Ok(None);
        };
        if origin.state != TaskState::Ended(EndState::Done) {
            return Ok(None);
        }
        let tasks = self.store.tasks_of_item(&self.task.item, MOST_TASKS);
        let mut tasks = tasks.await?;
        if tasks.len() >= MOST_TASKS as usize {
            return Ok(None);
        }
        tasks.retain(|task| task.number < self.task.number);
        let mut all = with_row(Some(missing), &origin);
        // Oldest first.
        for task in tasks.into_iter().rev() {
            match self.of_other(task).left().await? {
                Left::Missing(missing) => all.extend(missing),
                Left::Completion | Left::Unknown => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// What this task, which is over, left on the branch of its pull request.
    async fn left(&self) -> Result<Left, EffectError> {
        let (commit, missing) = match self.recorded_result().await? {
            RecordedResult::Known { commit, missing } => (commit, missing),
            RecordedResult::Unsure => return Ok(Left::Unknown),
            RecordedResult::Absent => {
                return Ok(match self.task.state {
                    // If commits of it were on the branch, no further round would have begun.
                    TaskState::Ended(EndState::Failed | EndState::Stopped) => {
                        Left::Missing(Vec::new())
                    }
                    TaskState::Ended(EndState::Done)
                    | TaskState::Queued
                    | TaskState::Leased(_)
                    | TaskState::Paused => Left::Unknown,
                });
            }
        };
        let missing = with_row(missing, &self.task);
        if !missing.is_empty() {
            return Ok(Left::Missing(missing));
        }
        let key = EffectKey::pull_request_completion(&commit);
        Ok(match self.store.effect(self.task.id, &key).await? {
            Some(_) => Left::Completion,
            None => Left::Missing(missing),
        })
    }

    /// The task that opened the pull request of this round, if its result was partial, with what is missing.
    async fn partial_origin(&self) -> Result<Option<(Task, String)>, EffectError> {
        let Some(number) = self.task.round() else {
            return Ok(None);
        };
        let rounds = self.store.rounds(&self.task.item).await?;
        let Some(round) = rounds.into_iter().find(|round| round.number == number) else {
            return Ok(None);
        };
        let Some(origin) = self.store.task(round.origin).await? else {
            return Ok(None);
        };
        let result = self.of_other(origin.clone()).recorded_result().await?;
        Ok(match result {
            RecordedResult::Known {
                missing: Some(missing),
                ..
            } => Some((origin, missing)),
            RecordedResult::Known { missing: None, .. }
            | RecordedResult::Unsure
            | RecordedResult::Absent => None,
        })
    }
}

/// What a recorded result lacks, and what the task's row adds to that: a later attempt may have failed.
fn with_row(recorded: Option<String>, task: &Task) -> Vec<String> {
    let of_row = task
        .missing()
        .filter(|missing| recorded.as_deref() != Some(*missing))
        .map(str::to_owned);
    recorded.into_iter().chain(of_row).collect()
}
