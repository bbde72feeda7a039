//! What a task does to its tracker, each thing once.

use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::{Halt, failure_comment, progress_comment};
use agentmine_domain::{EffectKey, Lease, Task, TaskLabel, TaskState};
use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::config::Labels;
use agentmine_store::{EffectState, Store, StoreError};
use agentmine_trackers::{NewPullRequest, PullRequest, Tracker, TrackerError};
use serde_json::{Value, json};

/// Tries of one store call.
const TRIES: u32 = 12;

/// The configured name of a label.
fn name_of(label: TaskLabel, labels: &Labels) -> &String {
    match label {
        TaskLabel::Processing => &labels.processing,
        TaskLabel::Done => &labels.done,
        TaskLabel::Paused => &labels.paused,
        TaskLabel::Stopped => &labels.stopped,
        TaskLabel::Failed => &labels.failed,
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
    pub(crate) async fn label(&self, label: TaskLabel) -> Result<(), Halt> {
        let key = EffectKey::label(label, self.task.epoch);
        let add = name_of(label, &self.labels).clone();
        if let EffectState::Done(_) = self.begin(&key).await? {
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
        let key = EffectKey::progress_comment();
        self.begin(&key).await?;
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
        let key = EffectKey::pull_request(&new.head);
        let state = self.begin(&key).await?;
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

    async fn begin(&self, key: &EffectKey) -> Result<EffectState, Halt> {
        persist(|| {
            self.store
                .effect_begin(self.task.id, self.lease.as_ref(), key)
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
        self.label(TaskLabel::Done).await
    }

    /// It could not be done.
    pub(crate) async fn tell_failed(&self, reason: &str, session: &str) -> Result<(), Halt> {
        self.comment(&failure_comment(reason, session, None))
            .await?;
        self.label(TaskLabel::Failed).await
    }

    /// Somebody stopped it.
    pub(crate) async fn tell_stopped(&self, reason: &str, session: &str) -> Result<(), Halt> {
        self.comment(&progress_comment(
            &format!("AgentMine stopped: {reason}."),
            session,
        ))
        .await?;
        self.label(TaskLabel::Stopped).await
    }

    /// Tells the item what the row says, for a task that nobody holds. What the tracker refuses for
    /// good is recorded as given up, so that it is not tried for ever.
    pub(crate) async fn tell(&self) -> Result<(), Halt> {
        let task = &self.task;
        let reason = task.reason.as_deref().unwrap_or("no reason is recorded");
        let label = match task.state {
            TaskState::Queued | TaskState::Leased(_) => return Ok(()),
            TaskState::Paused | TaskState::Ended(_) => TaskLabel::of(task.state),
        };
        let told = match (label, &task.pull_request_url) {
            (TaskLabel::Done, Some(url)) => {
                self.tell_done(url, task.reason.as_deref(), "ended").await
            }
            (TaskLabel::Failed, _) => self.tell_failed(reason, "ended").await,
            (TaskLabel::Stopped, _) => self.tell_stopped(reason, "ended").await,
            (TaskLabel::Done | TaskLabel::Paused | TaskLabel::Processing, _) => {
                self.label(label).await
            }
        };
        match told {
            Err(Halt::Failed(why)) => {
                tracing::warn!(task.id = %task.id, why, "the tracker cannot be told how the task ended");
                self.done(
                    &EffectKey::label(label, task.epoch),
                    json!({ "gave_up": why }),
                )
                .await
            }
            told => told,
        }
    }
}
