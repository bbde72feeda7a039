//! Writes to a tracker, each of which happens once: labels, the one comment on an item, the pull request and the draft before it.
//!
//! Producer, consumer and sweep all write through [`Effects`]; nothing else writes to a tracker. Each
//! write is an effect: its intent is recorded under a key that is unique within the task, then the
//! tracker is read and written, then the effect is recorded as done. If the process is killed in
//! between, the next caller reads the tracker before it writes. With a lease, recording the intent is
//! fenced.
//!
//! Accepted: if a tracker applies a write but does not show it afterwards, the write is repeated.

mod announce;
mod answer;
mod assignment;
mod branch;
mod confirm;
mod dashboard;
mod draft;
mod error;
mod item_labels;
mod label;
mod moved;
mod orphan;
mod pull_request;
mod report;
mod rounds;
mod status;
mod text;

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{EffectKey, Lease, Task};
use agentmine_runtime::config::Labels;
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::{EffectState, Store};
use agentmine_trackers::{FLEET_MARKER, Tracker, for_task};
use serde::Serialize;

pub use announce::announce;
pub use dashboard::{
    BoxAction, BoxSubject, DashboardBox, DashboardEntry, DashboardIssue, DashboardRewrite,
    DashboardState, DashboardView, dashboard_text, is_dashboard,
};
pub use draft::{DraftState, draft_number};
pub use error::{EffectError, is_final, may_be_of_comments};
use error::{ends_the_report, unreadable};
pub use orphan::{Orphan, is_live};
pub use pull_request::{EarlierPullRequest, Pushers, ReportedCommit};
pub use report::{EndReport, Reporter};
pub use text::{
    held_comment, progress_comment, transferred_comments, used, work_comment, working_comment,
};

/// How long a producer may write by what it has read of a task.
const FRESH: Duration = Duration::from_secs(60);

/// The effects of one task.
pub struct Effects {
    store: Arc<dyn Store>,
    tracker: Arc<dyn Tracker>,
    labels: Labels,
    task: Task,
    lease: Option<Lease>,
    permit: Permit,
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
    fn marker(&self, key: &EffectKey) -> String {
        format!("{FLEET_MARKER}{}:{}", self.task.id, key.key())
    }

    /// The effects of another task, for the same process: it has no lease on that one.
    fn of_other(&self, task: Task) -> Self {
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
    async fn begin(&self, key: &EffectKey) -> Result<EffectState, EffectError> {
        let lease = self.lease.as_ref();
        Ok(self.store.effect_begin(self.task.id, lease, key).await?)
    }

    /// Records the effect as done, with what came of it.
    async fn done(
        &self,
        key: &EffectKey,
        record: &(impl Serialize + Sync),
    ) -> Result<(), EffectError> {
        let record = serde_json::to_value(record).map_err(unreadable(key))?;
        Ok(self.store.effect_done(self.task.id, key, &record).await?)
    }
}

#[cfg(test)]
mod tests;
