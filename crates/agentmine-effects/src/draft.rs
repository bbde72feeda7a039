//! The pull request that is opened when the work begins, before there is a result.
//!
//! It has its own effect: the effect of the result says that a task has one. The result then finds this pull
//! request by its branch, replaces its text, and keeps its title.

use agentmine_domain::{EffectKey, ItemKind, ItemRef, PullRequestRecord, Task};
use agentmine_runtime::failpoint::Guard;
use agentmine_store::{EffectState, Store};
use agentmine_trackers::{NewPullRequest, PullRequest, TrackerError};

use crate::error::{ends_the_report, unreadable};
use crate::text::{draft_end_comment, draft_resumed_comment};
use crate::{EffectError, Effects};

/// How the pull request is that was to be opened when the work began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftState {
    /// As it is now: open, closed or merged.
    Found(PullRequest),
    /// No session has begun to open it.
    NotBegun,
    /// A session began to open it, and the tracker has none: it was not opened, or is gone.
    Missing {
        /// Whether it was there.
        recorded: bool,
    },
}

/// The number of the pull request that a session of a task opened when the work began, as it is recorded.
///
/// # Errors
/// Returns errors of the store.
pub async fn draft_number(store: &dyn Store, task: &Task) -> Result<Option<u64>, EffectError> {
    let key = EffectKey::pull_request_draft(&task.branch());
    Ok(match store.effect(task.id, &key).await? {
        Some(EffectState::Done(draft)) => {
            let draft: PullRequestRecord =
                serde_json::from_value(draft).map_err(unreadable(&key))?;
            Some(draft.number)
        }
        Some(EffectState::Fresh | EffectState::Unsure) | None => None,
    })
}

impl Effects {
    /// Looks for the pull request that a session opened when the work began.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn draft(&self) -> Result<DraftState, EffectError> {
        let head = self.task.branch();
        let key = EffectKey::pull_request_draft(&head);
        let Some(state) = self.store.effect(self.task.id, &key).await? else {
            return Ok(DraftState::NotBegun);
        };
        let found = self.tracker.find_pull_request(&self.task.item, &head).await;
        Ok(match found? {
            Some(pull) => DraftState::Found(pull),
            None => DraftState::Missing {
                recorded: matches!(state, EffectState::Done(_)),
            },
        })
    }

    /// Records that the work is about to begin with a pull request. Before that nothing is pushed for it.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn begin_draft(&self) -> Result<(), EffectError> {
        let key = EffectKey::pull_request_draft(&self.task.branch());
        self.begin(&key).await.map(drop)
    }

    /// Opens the pull request, unless there is one from its branch.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn open_draft(&self, new: &NewPullRequest) -> Result<PullRequest, EffectError> {
        let key = EffectKey::pull_request_draft(&new.head);
        self.begin(&key).await?;
        let item = &self.task.item;
        let found = match Guard::LookUp.is_off() {
            false => self.tracker.find_pull_request(item, &new.head).await?,
            true => None,
        };
        let pull = match found {
            Some(pull) => pull,
            None => {
                let created = self.tracker.create_pull_request(item, new, &self.permit);
                created.await?
            }
        };
        let record = PullRequestRecord {
            number: pull.number,
            url: pull.url.clone(),
        };
        self.done(&key, &record).await?;
        Ok(pull)
    }

    /// Whether the comments on the issue were posted on the pull request.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn comments_are_transferred(&self) -> Result<bool, EffectError> {
        let key = EffectKey::transferred_comments();
        let state = self.store.effect(self.task.id, &key).await?;
        Ok(matches!(state, Some(EffectState::Done(_))))
    }

    /// Posts the comments on the issue on the pull request, once. `None`: there are none.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn transfer_comments(
        &self,
        pull: &PullRequest,
        body: Option<&str>,
    ) -> Result<(), EffectError> {
        let key = EffectKey::transferred_comments();
        self.begin(&key).await?;
        if let Some(body) = body {
            let (on, marker) = (self.pull_of(pull.number), self.marker(&key));
            let written = self
                .tracker
                .upsert_comment(&on, &marker, body, &self.permit);
            self.unless_refused(
                written.await.map(drop),
                "the comments could not be transferred",
            )?;
        }
        self.done(&key, &()).await
    }

    /// Reports on the pull request how the work ended without a result. It stays as it is, with its branch.
    pub(crate) async fn end_draft(&self, pull: &PullRequest, how: &str) -> Result<(), EffectError> {
        let key = EffectKey::draft_comment();
        self.begin(&key).await?;
        let text = draft_end_comment(&self.task, &self.labels.request, how);
        self.comment_on_draft(&key, pull.number, &text).await
    }

    /// Completes the pull request of a result: its text, if the worker that was about to write it died, and that it is ready
    /// for review, if nothing is missing.
    pub(crate) async fn finish_draft(&self, missing: Option<&str>) -> Result<(), EffectError> {
        let Some(pull) = self.open_draft_of_task().await? else {
            return Ok(());
        };
        self.complete_text(&pull).await?;
        let comment = EffectKey::draft_comment();
        if self.store.effect(self.task.id, &comment).await?.is_some() {
            let text = draft_resumed_comment(&self.task);
            self.comment_on_draft(&comment, pull.number, &text).await?;
        }
        let key = EffectKey::pull_request_ready(&self.task.branch());
        if missing.is_some() || matches!(self.begin(&key).await?, EffectState::Done(_)) {
            return Ok(());
        }
        self.mark_as_ready(pull.number).await?;
        self.done(&key, &()).await
    }

    /// Marks a pull request of this task as ready for review, if the tracker allows that.
    pub(crate) async fn mark_as_ready(&self, number: u64) -> Result<(), EffectError> {
        let item = &self.task.item;
        let marked = self.tracker.mark_ready(item, number, &self.permit);
        self.unless_refused(marked.await, "the pull request stays a draft")
    }

    /// The open pull request of a task that began with one.
    pub(crate) async fn open_draft_of_task(&self) -> Result<Option<PullRequest>, EffectError> {
        if self.task.item.kind != ItemKind::Issue {
            return Ok(None);
        }
        match self.draft().await? {
            DraftState::Found(pull) if pull.open => Ok(Some(pull)),
            DraftState::Found(_) | DraftState::NotBegun | DraftState::Missing { .. } => Ok(None),
        }
    }

    async fn comment_on_draft(
        &self,
        key: &EffectKey,
        number: u64,
        text: &str,
    ) -> Result<(), EffectError> {
        match self
            .comment_elsewhere(&self.pull_of(number), &EffectKey::answer(), text)
            .await
        {
            // Its conversation may be locked.
            Err(EffectError::Tracker(error)) if ends_the_report(&error) => {
                tracing::warn!(task.id = %self.task.id, %error, "the comment on the pull request could not be posted");
            }
            written => written?,
        }
        self.done(key, &()).await
    }

    fn unless_refused(
        &self,
        written: Result<(), TrackerError>,
        what: &str,
    ) -> Result<(), EffectError> {
        match written {
            Err(error) if ends_the_report(&error) => {
                tracing::warn!(task.id = %self.task.id, %error, "{what}");
                Ok(())
            }
            written => Ok(written?),
        }
    }

    /// A pull request of the item's repository.
    fn pull_of(&self, number: u64) -> ItemRef {
        ItemRef {
            kind: ItemKind::PullRequest,
            number,
            ..self.task.item.clone()
        }
    }
}
