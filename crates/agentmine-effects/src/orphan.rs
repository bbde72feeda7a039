//! Items that say that they are worked on although no task is.
//!
//! A label survives what the database forgets: a restored backup, a row that was deleted, a label that a person
//! set. Nobody would ever move such a label.
//!
//! Two fleets with different databases that use the same labels in one repository look like that to each other. An
//! item with our comment on a task that this database does not know is therefore left alone for a day.
//!
//! Accepted: a task of another fleet that has no comment yet, since it waits in the queue, or that takes longer than a
//! day, is taken for lost. A worker whose item was changed sets its label again when its task ends.

use agentmine_domain::{EffectKey, ItemRef, TaskId, TaskLabel, TaskState};
use agentmine_runtime::config::has_label;
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::Store;
use agentmine_trackers::{FLEET_MARKER, LabelRequest, Marker};
use chrono::{TimeDelta, Utc};

use crate::effects::FRESH;
use crate::item_labels::ItemLabels;
use crate::text::orphan_comment;
use crate::{EffectError, Reporter};

/// Whether an item whose label says that it is worked on was corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphan {
    /// It was: the item says now why nobody works on it.
    PutRight,
    /// It has a task that is not over, or a new request.
    Live,
    /// A task of another database may be at work on it.
    Foreign,
}

/// How long an item is left alone on which a task of another database may be at work.
const FOREIGN: TimeDelta = TimeDelta::days(1);

/// Whether a task of this item is not over.
///
/// # Errors
/// Returns errors of the store.
pub async fn is_live(store: &dyn Store, item: &ItemRef) -> Result<bool, EffectError> {
    let task = store.latest_task(item).await?;
    Ok(task.is_some_and(|task| !matches!(task.state, TaskState::Ended(_))))
}

impl Reporter {
    /// Corrects an item that has the label `processing` without a live task: it gets the label of its last
    /// task's end, or if no task is known, the label `stopped` and a comment.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn put_orphan_right(&self, item: &ItemRef) -> Result<Orphan, EffectError> {
        let permit = Permit::of(BootInstant::now(), FRESH);
        let shown = self.tracker.item(item).await?.labels;
        let shows = |name: &str| has_label(&shown, name);
        if !shows(&self.labels.processing) || shows(&self.labels.request) {
            return Ok(Orphan::Live);
        }
        match self.store.latest_task(item).await? {
            Some(task) if matches!(task.state, TaskState::Ended(_)) => {
                if let Some(effects) = self.claim(&task).await? {
                    effects.put_right(TaskLabel::of(task.state)).await?;
                }
                Ok(Orphan::PutRight)
            }
            Some(_) => Ok(Orphan::Live),
            None if self.is_foreign(item).await? => Ok(Orphan::Foreign),
            None => self.stop_unknown(item, &permit).await,
        }
    }

    /// Whether the item got its label within the last day, and carries our comment on a task that is not in this
    /// database.
    async fn is_foreign(&self, item: &ItemRef) -> Result<bool, EffectError> {
        let mut newest = None;
        for comment in self.tracker.comments(item).await? {
            let task = task_of(&comment.body).filter(|_| comment.ours);
            if let Some(task) = task
                && self.store.task(task).await?.is_none()
            {
                newest = newest.max(Some(comment.created_at));
            }
        }
        let Some(commented) = newest else {
            return Ok(false);
        };
        let label = &self.labels.processing;
        let since = match self.tracker.label_request(item, label).await? {
            LabelRequest::By { since, .. } => since.unwrap_or(commented),
            LabelRequest::Absent | LabelRequest::Unknown => commented,
        };
        Ok(Utc::now() - since < FOREIGN)
    }

    /// For an item of which no task is known.
    async fn stop_unknown(&self, item: &ItemRef, permit: &Permit) -> Result<Orphan, EffectError> {
        let key = EffectKey::progress_comment();
        let marker = Marker::shared(self.tracker.kind(), "none", key.key(), Vec::new())?;
        let text = orphan_comment(&self.labels);
        self.tracker
            .write_comment(item, &marker, &text, permit)
            .await?;
        let on_item = ItemLabels {
            tracker: self.tracker.as_ref(),
            labels: &self.labels,
            item,
        };
        on_item
            .replace(TaskLabel::Processing, TaskLabel::Stopped, permit)
            .await?;
        // A task may have been made during the writes; its label takes precedence.
        let store = self.store.as_ref();
        on_item.give_way(store, TaskLabel::Stopped).await?;
        Ok(match is_live(store, item).await? {
            true => Orphan::Live,
            false => Orphan::PutRight,
        })
    }
}

/// The task that a comment of a fleet is about.
fn task_of(body: &str) -> Option<TaskId> {
    let (_, marked) = body.rsplit_once(FLEET_MARKER)?;
    marked.split(':').next()?.parse().ok()
}
