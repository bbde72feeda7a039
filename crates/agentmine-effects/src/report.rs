//! Reports how a task ended. Every report may be repeated.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{
    EffectKey, EndState, ItemKind, Task, TaskHome, TaskLabel, TaskState, partial_reason,
};
use agentmine_runtime::config::Labels;
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::{EffectState, Store};
use agentmine_trackers::{Tracker, TrackerError};
use uuid::Uuid;

use crate::error::ends_the_report;
use crate::moved::ReportedMove;
use crate::text::{
    failure_comment, failure_text, is_of_work, paused_comment, refused_comment, result_comment,
    stopped_comment, stopped_text,
};
use crate::{EffectError, Effects, may_be_of_comments};

/// What became of the report of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReport {
    /// The item shows how the task ended.
    Written,
    /// Another process has the report, or the task continued.
    NotOurs,
}

/// Writes the ends of tasks that no worker holds. Any number of processes may do this at the same time; for each
/// task one of them has `hold` to write, and the report can be claimed again after it.
#[derive(Clone)]
pub struct Reporter {
    /// Where reports are claimed and recorded.
    pub store: Arc<dyn Store>,
    /// Where they are written.
    pub tracker: Arc<dyn Tracker>,
    /// The names of the labels.
    pub labels: Labels,
    /// How long one process may write for a task.
    pub hold: Duration,
}

impl Reporter {
    /// Reports the end of `task`, as [`agentmine_store::ReportStore::unreported`] listed it.
    ///
    /// # Errors
    /// Returns errors of the store and temporary errors of the tracker.
    pub async fn report_end(&self, task: &Task) -> Result<EndReport, EffectError> {
        match self.claim(task).await? {
            Some(effects) => {
                let effects = effects.with_late_result().await?;
                effects.report_state().await.map(|()| EndReport::Written)
            }
            None => Ok(EndReport::NotOurs),
        }
    }

    /// For the process that gets the report of this task; `None` if another one has it.
    pub(crate) async fn claim(&self, task: &Task) -> Result<Option<Effects>, EffectError> {
        let since = BootInstant::now();
        let claim = self.store.claim_report(task, Uuid::new_v4(), self.hold);
        let claimed = claim.await?;
        Ok(claimed.map(|task| Effects {
            // A request that is under way at the end of it still has time to arrive.
            permit: Permit::of(since, self.hold * 3 / 4),
            ..Effects::of_reconciler(
                Arc::clone(&self.store),
                Arc::clone(&self.tracker),
                self.labels.clone(),
                task,
            )
        }))
    }
}

impl Effects {
    /// For a task that failed while nobody knew whether its pull request was opened: looks for it. A task whose
    /// pull request exists is done.
    pub(crate) async fn with_late_result(self) -> Result<Self, EffectError> {
        let failed = self.task.state == TaskState::Ended(EndState::Failed);
        if !failed || !self.result_is_unsure().await? {
            return Ok(self);
        }
        let reason = self.task.reason.clone();
        let earlier = match self.earlier_pull_request().await {
            // The item is gone. Access that was withdrawn may return: the end is reported then.
            Err(EffectError::Tracker(TrackerError::NotFound { .. })) => return Ok(self),
            earlier => earlier?,
        };
        let Some(earlier) = earlier else {
            return Ok(self.without_result());
        };
        let url = earlier.pull.url.clone();
        if earlier.pull.is_rejected() {
            return Ok(self.with_rejected(&url));
        }
        if earlier.was_merged_before() {
            return Ok(self.with_merged_before(&url));
        }
        let missing = earlier.missing_after(reason.as_deref());
        let partial = missing.as_deref().map(partial_reason);
        let store = &self.store;
        let done = store.found_result(self.task.id, &url, partial.as_deref());
        match done.await? {
            Some(task) => {
                tracing::info!(task.id = %task.id, url, "the pull request of a failed task was found; the task is done");
                Ok(Self { task, ..self })
            }
            None => Ok(self),
        }
    }

    /// There is a pull request, and a person merged it before the result was pushed.
    fn with_merged_before(mut self, url: &str) -> Self {
        let reason = self.task.reason.take().unwrap_or_default();
        self.task.reason = Some(format!(
            "{reason}\nThe {} was merged before the last push, which is only on the branch {}: {url}",
            self.task.item.tracker.pull_request(),
            self.task.branch()
        ));
        self
    }

    /// There is a pull request, and a person closed it: it is no result.
    fn with_rejected(mut self, url: &str) -> Self {
        let reason = self.task.reason.take().unwrap_or_default();
        self.task.reason = Some(format!(
            "{reason}\nThe {} was opened, but somebody has closed it since: {url}",
            self.task.item.tracker.pull_request()
        ));
        self
    }

    /// The tracker answered, and there is no pull request.
    fn without_result(mut self) -> Self {
        let reason = self.task.reason.take().unwrap_or_default();
        let branch = self.task.branch();
        self.task.reason = Some(format!(
            "{reason}\nThe tracker is reachable again: there is no {} from `{branch}`.",
            self.task.item.tracker.pull_request()
        ));
        self
    }
}

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
        self.finish_draft(missing).await?;
        if kind != ItemKind::PullRequest || !self.shows_result().await? {
            let text = result_comment(&self.task.item, url, missing, session);
            self.last_comment(&text).await?;
        }
        match kind {
            ItemKind::Issue => self.store.watch_pull(self.task.id).await?,
            ItemKind::Task => match self.task.home() {
                TaskHome::Repository => self.store.watch_pull(self.task.id).await?,
                TaskHome::Item | TaskHome::People => {}
            },
            ItemKind::PullRequest => {
                if missing.is_none() {
                    self.finish_completion().await?;
                }
                self.answer_threads().await?;
            }
        }
        self.label(TaskLabel::Done).await
    }

    /// Whether the comment of the task is there, and no longer that of a session at work. On an item that is a pull
    /// request it holds the whole evidence, which is not replaced by a sentence.
    async fn shows_result(&self) -> Result<bool, EffectError> {
        let marker = self.status_marker(&[])?;
        let shown = self.statuses().await?;
        let mut own = shown.iter().filter(|it| marker.is_own(&it.body));
        Ok(own.any(|it| !is_of_work(&it.body)))
    }

    /// Reports that the task waits until the credentials are accepted, as far as they allow it.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn report_refused(&self, refusal: &str, session: &str) -> Result<(), EffectError> {
        self.comment(&refused_comment(refusal, session)).await?;
        self.label(TaskLabel::Paused).await
    }

    /// Reports that a person paused the task.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn report_paused(&self, reason: &str, session: &str) -> Result<(), EffectError> {
        let text = paused_comment(reason, &self.labels.request, session);
        self.last_comment(&text).await?;
        self.label(TaskLabel::Paused).await
    }

    /// Reports that the task failed.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn report_failed(&self, reason: &str, session: &str) -> Result<(), EffectError> {
        let draft = self.open_draft_of_task().await?;
        if let Some(draft) = &draft {
            self.end_draft(draft, &failure_text(reason)).await?;
        }
        let text = failure_comment(&self.task, reason, session, draft.as_ref());
        self.last_comment(&text).await?;
        self.label(TaskLabel::Failed).await
    }

    /// Reports that the task was stopped, with the pull request if there is an open one.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn report_stopped(&self, reason: &str, session: &str) -> Result<(), EffectError> {
        let task = &self.task;
        let earlier = match task.item.kind {
            ItemKind::Issue | ItemKind::Task => self.earlier_pull_request().await?,
            ItemKind::PullRequest => None,
        };
        let mut open = earlier.map(|earlier| earlier.pull).filter(|it| it.open);
        if open.is_none() {
            open = self.open_draft_of_task().await?;
            if let Some(draft) = &open {
                self.end_draft(draft, &stopped_text(reason)).await?;
            }
        }
        if self.report_move(reason, session, open.as_ref()).await? == ReportedMove::Yes {
            return Ok(());
        }
        let text = stopped_comment(task, &self.labels.request, reason, session, open.as_ref());
        self.last_comment(&text).await?;
        self.label(TaskLabel::Stopped).await
    }

    /// Edits the comment before the label of the same state is set. An item that takes no comment takes a label.
    pub(crate) async fn last_comment(&self, text: &str) -> Result<(), EffectError> {
        match self.comment(text).await {
            Err(EffectError::Tracker(error)) if may_be_of_comments(&error) => {
                tracing::warn!(task.id = %self.task.id, %error, "only the label shows the state of the task");
                Ok(())
            }
            written => written,
        }
    }

    /// The label of a task that nobody works on and that nobody is to take.
    pub(crate) fn label_at_rest(&self) -> Option<TaskLabel> {
        match self.task.state {
            TaskState::Queued | TaskState::Leased(_) => None,
            state @ (TaskState::Paused | TaskState::Ended(_)) => Some(TaskLabel::of(state)),
        }
    }

    /// Reports the state in the task's row. If the tracker refuses the report permanently, it is recorded as
    /// done so that it is not retried forever.
    pub(crate) async fn report_state(&self) -> Result<(), EffectError> {
        let Some(label) = self.label_at_rest() else {
            return Ok(());
        };
        let key = EffectKey::label(label, self.task.epoch);
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        match self.report_as(label).await {
            Err(EffectError::Tracker(error)) if ends_the_report(&error) => {
                tracing::warn!(task.id = %self.task.id, %error, "the end of the task cannot be reported; gave up");
                self.done(&key, &()).await
            }
            reported => reported,
        }
    }

    pub(crate) async fn report_as(&self, label: TaskLabel) -> Result<(), EffectError> {
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
