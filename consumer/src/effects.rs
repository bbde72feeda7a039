//! What a task does to its tracker, each thing once.

use std::sync::Arc;

use agentmine_agent::Halt;
use agentmine_domain::{EffectKey, EffectKind, EndState, Lease, Task, TaskState};
use agentmine_runtime::config::Labels;
use agentmine_store::{EffectState, Store, StoreError};
use agentmine_trackers::{NewPullRequest, PullRequest, Tracker, TrackerError};
use serde_json::json;

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
        let key = EffectKey::new(
            EffectKind::Label,
            format!("{}:{}", label.key(), self.task.epoch),
        );
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

    /// Opens the pull request, or finds the one that an earlier attempt opened.
    pub(crate) async fn pull_request(&self, new: &NewPullRequest) -> Result<PullRequest, Halt> {
        let key = EffectKey::new(EffectKind::PullRequest, &new.head);
        self.begin(&key, json!({ "head": new.head, "base": new.base }))
            .await?;
        let item = &self.task.item;
        let found = self
            .tracker
            .find_pull_request(item, &new.head)
            .await
            .map_err(tracker_halt)?;
        let pull = match found {
            Some(pull) => pull,
            None => self
                .tracker
                .create_pull_request(item, new)
                .await
                .map_err(tracker_halt)?,
        };
        self.done(&key, json!({ "number": pull.number, "url": pull.url }))
            .await?;
        Ok(pull)
    }

    async fn begin(&self, key: &EffectKey, intent: serde_json::Value) -> Result<EffectState, Halt> {
        self.store
            .effect_begin(self.task.id, self.lease.as_ref(), key, &intent)
            .await
            .map_err(store_halt)
    }

    async fn done(&self, key: &EffectKey, result: serde_json::Value) -> Result<(), Halt> {
        self.store
            .effect_done(self.task.id, key, &result)
            .await
            .map_err(store_halt)
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

impl Effects {
    /// Brings an effect to its end that was begun and not recorded as done, for a task that is over
    /// or waits. Labels are brought to what the row says now; a comment or pull request that may or
    /// may not have been made stands as it is, and only the record is closed.
    pub(crate) async fn settle(&self, key: &EffectKey) -> Result<(), Halt> {
        match (key.kind, self.task.state) {
            (EffectKind::Label, TaskState::Ended(end)) => {
                self.label(match end {
                    EndState::Done => Label::Done,
                    EndState::Failed => Label::Failed,
                    EndState::Stopped => Label::Stopped,
                })
                .await?;
            }
            (EffectKind::Label, TaskState::Paused) => self.label(Label::Paused).await?,
            (EffectKind::Label, TaskState::Queued) => self.label(Label::Processing).await?,
            // A worker has it and settles its own.
            (_, TaskState::Leased(_)) => return Ok(()),
            (EffectKind::Comment | EffectKind::Push | EffectKind::PullRequest, _) => {}
        }
        self.done(key, json!({ "settled": true })).await
    }
}
