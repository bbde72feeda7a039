//! What a task does to its tracker, each thing once.

use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::{Halt, failure_comment, progress_comment};
use agentmine_domain::{EffectKey, EffectKind, EndState, Lease, Task, TaskState};
use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::config::Labels;
use agentmine_store::{EffectState, Store, StoreError};
use agentmine_trackers::{NewPullRequest, PullRequest, Tracker, TrackerError};
use serde_json::{Value, json};

/// Tries of one store call.
const TRIES: u32 = 12;

/// Which of the labels an item shall carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Processing,
    Done,
    Paused,
    Stopped,
    Failed,
}

impl Label {
    fn key(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    fn name(self, labels: &Labels) -> &String {
        match self {
            Self::Processing => &labels.processing,
            Self::Done => &labels.done,
            Self::Paused => &labels.paused,
            Self::Stopped => &labels.stopped,
            Self::Failed => &labels.failed,
        }
    }
}

/// Acts on the tracker for one task. With a lease every act is fenced; a sweep has none.
pub(crate) struct Effects {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tracker: Arc<dyn Tracker>,
    pub(crate) labels: Labels,
    pub(crate) task: Task,
    pub(crate) lease: Option<Lease>,
}

impl Effects {
    /// Makes this the only one of our labels on the item.
    pub(crate) async fn label(&self, label: Label) -> Result<(), Halt> {
        // A task may be paused and taken up again, so a label's effect is named by its epoch too.
        let key = self.label_key(label);
        let add = label.name(&self.labels).clone();
        if let EffectState::Done(_) = self.begin(&key, json!({ "label": add })).await? {
            return Ok(());
        }
        let all = &self.labels;
        let remove: Vec<String> = [
            &all.request,
            &all.processing,
            &all.done,
            &all.paused,
            &all.stopped,
            &all.failed,
        ]
        .into_iter()
        .filter(|name| **name != add)
        .cloned()
        .collect();
        self.tracker
            .set_labels(&self.task.item, &[add], &remove)
            .await
            .map_err(tracker_halt)?;
        self.done(&key, json!({})).await
    }

    /// Writes the task's one comment, edited in place.
    pub(crate) async fn comment(&self, body: &str) -> Result<(), Halt> {
        let key = EffectKey::new(EffectKind::Comment, "progress");
        self.begin(&key, json!({})).await?;
        let marker = format!("agentmine:task={}:progress", self.task.id);
        let id = self
            .tracker
            .upsert_comment(&self.task.item, &marker, body)
            .await
            .map_err(tracker_halt)?;
        self.done(&key, json!({ "comment": id })).await
    }

    /// Opens the pull request, or finds the one that an earlier attempt opened; then its text is
    /// brought to what was measured of `commit`.
    pub(crate) async fn pull_request(
        &self,
        new: &NewPullRequest,
        commit: &str,
    ) -> Result<PullRequest, Halt> {
        let key = EffectKey::new(EffectKind::PullRequest, &new.head);
        let state = self
            .begin(&key, json!({ "head": new.head, "base": new.base }))
            .await?;
        let known = match &state {
            EffectState::Done(result) => result["commit"].as_str(),
            EffectState::Fresh | EffectState::Unsure => None,
        };
        let item = &self.task.item;
        let found = self
            .tracker
            .find_pull_request(item, &new.head)
            .await
            .map_err(tracker_halt)?;
        let pull = match found {
            Some(pull) => {
                if pull.open && known != Some(commit) {
                    self.tracker
                        .update_pull_request(item, pull.number, new)
                        .await
                        .map_err(tracker_halt)?;
                }
                pull
            }
            None => self
                .tracker
                .create_pull_request(item, new)
                .await
                .map_err(tracker_halt)?,
        };
        self.done(
            &key,
            json!({ "number": pull.number, "url": pull.url, "commit": commit }),
        )
        .await?;
        Ok(pull)
    }

    async fn begin(&self, key: &EffectKey, intent: Value) -> Result<EffectState, Halt> {
        persist(|| {
            self.store
                .effect_begin(self.task.id, self.lease.as_ref(), key, &intent)
        })
        .await
    }

    async fn done(&self, key: &EffectKey, result: Value) -> Result<(), Halt> {
        persist(|| self.store.effect_done(self.task.id, key, &result)).await
    }
}

/// A store that is away for a moment is waited for; the caller is cut off when the session ends.
async fn persist<T, F>(mut call: impl FnMut() -> F) -> Result<T, Halt>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));
    loop {
        match call().await {
            Err(StoreError::Unavailable(_)) if backoff.failures() < TRIES => backoff.wait().await,
            answer => return answer.map_err(store_halt),
        }
    }
}

/// What a store's error means for the session.
pub(crate) fn store_halt(error: StoreError) -> Halt {
    match error {
        StoreError::Fenced(_) => Halt::LeaseLost,
        StoreError::Unavailable(_) | StoreError::Fault(_) => Halt::Retry(error.to_string()),
    }
}

/// What a tracker's error means for the session.
pub(crate) fn tracker_halt(error: TrackerError) -> Halt {
    match error {
        TrackerError::Unauthorized { .. }
        | TrackerError::NotFound { .. }
        | TrackerError::Refused { .. } => Halt::Failed(error.to_string()),
        TrackerError::RateLimited { .. } | TrackerError::Unavailable { .. } => {
            Halt::Retry(error.to_string())
        }
    }
}

/// How each end is told. All of it may be repeated.
impl Effects {
    /// The result is there.
    pub(crate) async fn tell_done(
        &self,
        url: &str,
        missing: Option<&str>,
        session: &str,
    ) -> Result<(), Halt> {
        let state = match missing {
            Some(_) => "a partial result; what is missing stands there",
            None => "what was measured stands there",
        };
        self.comment(&progress_comment(
            &format!("AgentMine opened a pull request ({state}): {url}"),
            session,
        ))
        .await?;
        self.label(Label::Done).await
    }

    /// It could not be done.
    pub(crate) async fn tell_failed(&self, reason: &str, session: &str) -> Result<(), Halt> {
        self.comment(&failure_comment(reason, session, None))
            .await?;
        self.label(Label::Failed).await
    }

    /// Somebody stopped it.
    pub(crate) async fn tell_stopped(&self, reason: &str, session: &str) -> Result<(), Halt> {
        self.comment(&progress_comment(
            &format!("AgentMine stopped: {reason}."),
            session,
        ))
        .await?;
        self.label(Label::Stopped).await
    }

    /// Tells the item what the row says, for a task that nobody holds. What the tracker refuses for
    /// good is recorded as given up, so that it is not tried for ever.
    pub(crate) async fn tell(&self) -> Result<(), Halt> {
        let task = &self.task;
        let reason = task.reason.as_deref().unwrap_or("no reason is recorded");
        let label = match task.state {
            TaskState::Ended(EndState::Done) => Label::Done,
            TaskState::Ended(EndState::Failed) => Label::Failed,
            TaskState::Ended(EndState::Stopped) => Label::Stopped,
            TaskState::Paused => Label::Paused,
            TaskState::Queued | TaskState::Leased(_) => return Ok(()),
        };
        let told = match (label, &task.pull_request_url) {
            (Label::Done, Some(url)) => self.tell_done(url, task.reason.as_deref(), "ended").await,
            (Label::Failed, _) => self.tell_failed(reason, "ended").await,
            (Label::Stopped, _) => self.tell_stopped(reason, "ended").await,
            (Label::Done | Label::Paused | Label::Processing, _) => self.label(label).await,
        };
        match told {
            Err(Halt::Failed(why)) => {
                tracing::warn!(task.id = %task.id, why, "the tracker cannot be told how the task ended");
                self.done(&self.label_key(label), json!({ "gave_up": why }))
                    .await
            }
            told => told,
        }
    }

    fn label_key(&self, label: Label) -> EffectKey {
        EffectKey::new(
            EffectKind::Label,
            format!("{}:{}", label.key(), self.task.epoch),
        )
    }
}
