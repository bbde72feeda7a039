//! The label that shows the state of the task on its item.

use agentmine_domain::{EffectKey, LabelRecord, Task, TaskLabel, TaskState, TrackerKind};
use agentmine_runtime::config::{has_label, same_label, share_scope};
use agentmine_store::EffectState;
use agentmine_trackers::{LabelRequest, TrackerError};
use chrono::{DateTime, TimeDelta, Utc};

use crate::item_labels::{ItemLabels, name, waits};
use crate::{EffectError, Effects};

/// Whether a task is still at rest whose label was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtRest {
    Still,
    WentOn,
}

/// What became of the label of a task that waited for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queued {
    Labelled,
    /// A worker claimed it meanwhile, or it was paused or ended.
    NoLonger,
    /// It waits for its turn, which the label of the request shows.
    Waits,
}

/// What the label of a request on an item means to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It is not there.
    No,
    /// The task answers it, or a pause overruled it.
    Answered,
    /// The item is to be worked on once more, or it is not known what put the label there.
    Again,
}

const SECOND: TimeDelta = TimeDelta::seconds(1);

impl Effects {
    /// Replaces the fleet's labels on the item with this one. A task may be paused and resumed, so the
    /// effect's key includes the epoch.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn label(&self, label: TaskLabel) -> Result<(), EffectError> {
        let key = EffectKey::label(label, self.task.epoch);
        match self.begin(&key).await? {
            EffectState::Done(_) => return Ok(()),
            // An earlier writer may have set it, and a person may have changed labels since.
            EffectState::Unsure if self.shows(label).await? => {}
            EffectState::Unsure | EffectState::Fresh => match &self.lease {
                Some(_) => self.set(label).await?,
                None => match self.set_at_rest(label).await? {
                    AtRest::Still => {}
                    // A later pause in the same epoch is shown again.
                    AtRest::WentOn => return Ok(()),
                },
            },
        }
        self.done(&key, &named(name(label, &self.labels))).await
    }

    /// Sets the label of a task that no worker has claimed yet; later labels are the worker's. The item of one that waits
    /// for its turn keeps the label of the request.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn label_queued(&self) -> Result<(), EffectError> {
        let task = &self.task;
        if task.state != TaskState::Queued || task.epoch.0 != 0 || waits(task) {
            return Ok(());
        }
        let key = EffectKey::label(TaskLabel::Processing, self.task.epoch);
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        let request = EffectKey::request_label();
        self.done(&request, &named(&self.labels.request)).await?;
        let result = match self.set_while_queued().await? {
            Queued::Labelled => named(name(TaskLabel::Processing, &self.labels)),
            // The label is the worker's to set. Nobody can remove one that was not there.
            Queued::NoLonger => LabelRecord::default(),
            // It is labelled when its turn comes.
            Queued::Waits => return Ok(()),
        };
        self.done(&key, &result).await
    }

    /// Shows that a waiting task has answered a later request: its label is moved again.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn label_answered(&self) -> Result<(), EffectError> {
        self.set_while_queued().await.map(drop)
    }

    async fn set_while_queued(&self) -> Result<Queued, EffectError> {
        // A worker may have claimed and finished the task meanwhile, so read it as late as possible.
        let now = self.store.task(self.task.id).await?;
        let Some(now) = now.filter(|now| now.state == TaskState::Queued) else {
            self.give_way(TaskLabel::Processing).await?;
            return Ok(Queued::NoLonger);
        };
        if waits(&now) {
            return Ok(Queued::Waits);
        }
        self.set(TaskLabel::Processing).await?;
        // The task may have been paused or have ended during the write, which removed the label of that.
        self.give_way(TaskLabel::Processing).await?;
        Ok(Queued::Labelled)
    }

    /// Sets the label of a task that no worker holds. The item may belong to a later task by now, and during the
    /// write the task may be resumed, or a later one may begin: their label takes precedence.
    ///
    /// Accepted: a worker that sets the label of its end during the write has it replaced until the second look.
    pub(crate) async fn set_at_rest(&self, label: TaskLabel) -> Result<AtRest, EffectError> {
        let latest = self.latest().await?;
        if latest.is_some_and(|latest| latest.id != self.task.id) {
            return Ok(AtRest::Still);
        }
        let set = self.set(label).await;
        // Also after an error: the tracker may have applied the write.
        self.give_way(label).await?;
        set?;
        Ok(match self.state_now().await? {
            Some(TaskState::Queued | TaskState::Leased(_)) => AtRest::WentOn,
            Some(TaskState::Paused | TaskState::Ended(_)) | None => AtRest::Still,
        })
    }

    async fn give_way(&self, label: TaskLabel) -> Result<(), EffectError> {
        self.item_labels()
            .give_way(self.store.as_ref(), label)
            .await
    }

    fn item_labels(&self) -> ItemLabels<'_> {
        ItemLabels {
            tracker: self.tracker.as_ref(),
            labels: &self.labels,
            item: &self.task.item,
        }
    }

    async fn latest(&self) -> Result<Option<Task>, EffectError> {
        Ok(self.store.latest_task(&self.task.item).await?)
    }

    async fn state_now(&self) -> Result<Option<TaskState>, EffectError> {
        let task = self.store.task(self.task.id).await?;
        Ok(task.map(|task| task.state))
    }

    /// Sets this label and removes the others. The request label stays
    /// if a person added it after the request that this task answers: the item is worked on again then. Where this label would
    /// take its place, as one with the same scope does on GitLab, it is not set.
    pub(crate) async fn set(&self, label: TaskLabel) -> Result<(), EffectError> {
        let add = name(label, &self.labels);
        let asked = self.asked(label).await?;
        let request = &self.labels.request;
        // Names from before a change of the configuration too.
        let earlier = self.store.label_names(self.task.id).await?;
        let current = self.labels.entries().map(|(_, name)| name);
        let is_current = |name: &str| current.iter().any(|own| same_label(own, name));
        let earlier = earlier.iter().filter(|name| !is_current(name));
        let remove: Vec<String> = current
            .into_iter()
            .filter(|name| *name != add && (*name != request || asked == Asked::Answered))
            .chain(earlier)
            .cloned()
            .collect();
        let displaces = self.task.item.tracker == TrackerKind::GitLab && share_scope(add, request);
        let is_set = !(displaces && asked == Asked::Again);
        self.item_labels()
            .change(is_set.then_some(label), &remove, &self.permit)
            .await
    }
}

impl Effects {
    /// Whether the item shows this label of the fleet and no other one, and no request that this task answers: a
    /// writer that was interrupted may have added the label and removed nothing yet.
    async fn shows(&self, label: TaskLabel) -> Result<bool, EffectError> {
        let found = match self.tracker.item(&self.task.item).await {
            // It is not read, and its labels are set again.
            Err(TrackerError::Confidential { .. }) => return Ok(false),
            found => found?.labels,
        };
        Ok(self.is_shown(label, &found) && !self.request_is_answered(label).await?)
    }

    /// Whether these labels of an item are this one of the fleet and no other, besides a request.
    pub(crate) fn is_shown(&self, label: TaskLabel, found: &[String]) -> bool {
        let shown = |label: &TaskLabel| has_label(found, name(*label, &self.labels));
        TaskLabel::ALL
            .iter()
            .all(|other| shown(other) == (*other == label))
    }

    /// Whether the item has the request label because of a request that this task answers, or that a pause
    /// overruled: it was made before.
    pub(crate) async fn request_is_answered(&self, label: TaskLabel) -> Result<bool, EffectError> {
        Ok(self.asked(label).await? == Asked::Answered)
    }

    async fn asked(&self, label: TaskLabel) -> Result<Asked, EffectError> {
        let item = &self.task.item;
        let request = self
            .tracker
            .label_request(item, &self.labels.request)
            .await?;
        let since = match request {
            LabelRequest::By { trigger, .. } if self.task.answers(&trigger) => {
                return Ok(Asked::Answered);
            }
            LabelRequest::By { since, .. } => since,
            // What is not there now need not be removed, and may be added at any moment.
            LabelRequest::Absent => return Ok(Asked::No),
            LabelRequest::Unknown => return Ok(Asked::Again),
        };
        let is_overruled = match (label, since) {
            (TaskLabel::Paused, Some(since)) => self.changed_after(since).await?,
            (TaskLabel::Paused, None) => true,
            (
                TaskLabel::Processing | TaskLabel::Done | TaskLabel::Stopped | TaskLabel::Failed,
                _,
            ) => false,
        };
        Ok(match is_overruled {
            true => Asked::Answered,
            false => Asked::Again,
        })
    }
}

impl Effects {
    /// Whether the row changed after a moment by the tracker's clock, which may show whole seconds only. The last
    /// change of the row of a task that is being paused is the request for it.
    async fn changed_after(&self, moment: DateTime<Utc>) -> Result<bool, EffectError> {
        let row = self.store.task(self.task.id).await?;
        Ok(row.is_some_and(|row| row.updated_at >= moment + SECOND))
    }
}

/// The record of a label that has this name on the tracker.
fn named(name: &str) -> LabelRecord {
    LabelRecord {
        name: Some(name.to_owned()),
    }
}
