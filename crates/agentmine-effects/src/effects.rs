//! The effects of one task.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{EffectKey, Lease, Task};
use agentmine_runtime::config::Labels;
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::{EffectState, Store};
use agentmine_trackers::{FLEET_MARKER, Tracker, for_task};
use serde::Serialize;

use crate::error::{EffectError, unreadable};

/// How long a producer may write by what it has read of a task.
pub(crate) const FRESH: Duration = Duration::from_secs(60);

/// The effects of one task.
pub struct Effects {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tracker: Arc<dyn Tracker>,
    pub(crate) labels: Labels,
    pub(crate) task: Task,
    pub(crate) lease: Option<Lease>,
    pub(crate) permit: Permit,
}

impl Effects {
    /// For the worker that holds `lease`: no effect begins after the lease is lost, and no request leaves once
    /// `permit` has lapsed.
    pub fn of_session(
        store: Arc<dyn Store>,
        tracker: Arc<dyn Tracker>,
        labels: Labels,
        task: Task,
        lease: Lease,
        permit: Permit,
    ) -> Self {
        Self {
            lease: Some(lease),
            permit,
            ..Self::of_reconciler(store, tracker, labels, task)
        }
    }

    /// For a producer or a sweep, which hold no lease. `task` should have been read just before: after a minute
    /// nothing is written any more.
    pub fn of_reconciler(
        store: Arc<dyn Store>,
        tracker: Arc<dyn Tracker>,
        labels: Labels,
        task: Task,
    ) -> Self {
        Self {
            store,
            tracker: for_task(tracker, &task),
            labels,
            task,
            lease: None,
            permit: Permit::of(BootInstant::now(), FRESH),
        }
    }

    /// The effects of a task whose branch was named: it is recorded in its row, and nothing was pushed before.
    #[must_use]
    pub fn on_branch(self, name: String) -> Self {
        Self {
            task: Task {
                named_branch: Some(name),
                ..self.task
            },
            ..self
        }
    }

    /// The tracker, for reads.
    #[must_use]
    pub fn tracker(&self) -> &dyn Tracker {
        self.tracker.as_ref()
    }

    /// What a comment of this task carries.
    pub(crate) fn marker(&self, key: &EffectKey) -> String {
        format!("{FLEET_MARKER}{}:{}", self.task.id, key.key())
    }

    /// The effects of another task, for the same process: it has no lease on that one.
    pub(crate) fn of_other(&self, task: Task) -> Self {
        Self {
            permit: self.permit.clone(),
            ..Self::of_reconciler(
                Arc::clone(&self.store),
                Arc::clone(&self.tracker),
                self.labels.clone(),
                task,
            )
        }
    }

    /// Records the intent, and returns the state of the effect.
    pub(crate) async fn begin(&self, key: &EffectKey) -> Result<EffectState, EffectError> {
        let lease = self.lease.as_ref();
        Ok(self.store.effect_begin(self.task.id, lease, key).await?)
    }

    /// Records the effect as done, with what came of it.
    pub(crate) async fn done(
        &self,
        key: &EffectKey,
        record: &(impl Serialize + Sync),
    ) -> Result<(), EffectError> {
        let record = serde_json::to_value(record).map_err(unreadable(key))?;
        Ok(self.store.effect_done(self.task.id, key, &record).await?)
    }
}
