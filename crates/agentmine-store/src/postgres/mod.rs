//! The store in Postgres.
//!
//! Row locks do the ordering. A fenced write is one statement that finds the row by (task, epoch,
//! leased) and locks it, so a claim either comes wholly before it (and it is refused) or waits for it.

mod effects;
mod enqueue;
mod journal;
mod lease;
mod open;
mod people;
mod relay;
mod sweep;

use std::time::Duration;

use agentmine_domain::{
    EffectKey, Epoch, ItemRef, Lease, NewTask, Phase, Seq, Session, SessionId, Step, Task, TaskId,
    TaskNumber, Usage, WorkerId,
};
use async_trait::async_trait;
use serde_json::Value;
use sqlx::PgPool;
use uuid::Uuid;

use crate::failure::run;
use crate::{
    Checkpoint, Claim, EffectState, Enqueued, LeaseEnd, LeaseRequest, NewStep, Publish,
    SandboxFate, Store, StoreError, SweepPolicy, SweepReport, TaskFilter,
};
pub(crate) use open::{Role, open};

/// What a task row is selected as; the shape is `row::TaskRow`.
macro_rules! task_columns {
    () => {
        "id::text AS id, number, tracker, host, repo_id, repo_path, item_kind, item_number, \
         trigger_event, title, url, priority, state, phase, epoch, attempt, owner, \
         (extract(epoch FROM lease_until) * 1000)::bigint AS lease_until, reason, \
         pull_request_url, (extract(epoch FROM created_at) * 1000)::bigint AS created_at, \
         (extract(epoch FROM updated_at) * 1000)::bigint AS updated_at"
    };
}
use task_columns;

/// A pool and the time limit of one operation.
pub(crate) struct Postgres {
    pool: PgPool,
    limit: Duration,
}

/// The relay waits for the broker between its statements.
const RELAY_LIMIT: Duration = Duration::from_secs(300);

#[async_trait]
impl Store for Postgres {
    async fn enqueue(&self, new: &NewTask) -> Result<Enqueued, StoreError> {
        let id = TaskId::new();
        run!(self.limit, "enqueue", enqueue::enqueue(&self.pool, id, new))
    }

    async fn relay_outbox(&self, limit: u32, publish: &dyn Publish) -> Result<u64, StoreError> {
        run!(
            RELAY_LIMIT,
            "relay_outbox",
            relay::relay(&self.pool, limit, publish)
        )
    }

    async fn claim(
        &self,
        task: TaskId,
        worker: &WorkerId,
        nonce: Uuid,
        lease: Duration,
        max_attempts: u32,
    ) -> Result<Option<Claim>, StoreError> {
        run!(
            self.limit,
            "claim",
            lease::claim(&self.pool, task, worker, nonce, lease, max_attempts)
        )
    }

    async fn claimable(&self, older_than: Duration, limit: u32) -> Result<Vec<TaskId>, StoreError> {
        run!(
            self.limit,
            "claimable",
            lease::claimable(&self.pool, older_than, limit)
        )
    }

    async fn heartbeat(&self, lease: &Lease, extend: Duration) -> Result<LeaseRequest, StoreError> {
        run!(
            self.limit,
            "heartbeat",
            lease::heartbeat(&self.pool, lease, extend)
        )
    }

    async fn check(&self, lease: &Lease) -> Result<(), StoreError> {
        run!(self.limit, "check", lease::check(&self.pool, lease))
    }

    async fn set_phase(&self, lease: &Lease, phase: Phase) -> Result<(), StoreError> {
        run!(
            self.limit,
            "set_phase",
            lease::set_phase(&self.pool, lease, phase)
        )
    }

    async fn append_step(&self, lease: &Lease, step: &NewStep) -> Result<Seq, StoreError> {
        let token = Uuid::new_v4();
        run!(
            self.limit,
            "append_step",
            journal::append(&self.pool, lease, step, token)
        )
    }

    async fn record_usage(
        &self,
        lease: &Lease,
        model: &str,
        usage: &Usage,
    ) -> Result<(), StoreError> {
        run!(
            self.limit,
            "record_usage",
            journal::record_usage(&self.pool, lease, model, usage)
        )
    }

    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError> {
        run!(
            self.limit,
            "save_checkpoint",
            journal::save_checkpoint(&self.pool, lease, checkpoint)
        )
    }

    async fn end_lease(&self, lease: &Lease, close: &LeaseEnd) -> Result<(), StoreError> {
        run!(
            self.limit,
            "end_lease",
            lease::close(&self.pool, lease, close)
        )
    }

    async fn effect_begin(
        &self,
        task: TaskId,
        lease: Option<&Lease>,
        key: &EffectKey,
    ) -> Result<EffectState, StoreError> {
        run!(
            self.limit,
            "effect_begin",
            effects::begin(&self.pool, task, lease, key)
        )
    }

    async fn effect_done(
        &self,
        task: TaskId,
        key: &EffectKey,
        result: &Value,
    ) -> Result<(), StoreError> {
        run!(
            self.limit,
            "effect_done",
            effects::done(&self.pool, task, key, result)
        )
    }

    async fn unreported(&self, older_than: Duration, limit: u32) -> Result<Vec<Task>, StoreError> {
        run!(
            self.limit,
            "unreported",
            effects::unreported(&self.pool, older_than, limit)
        )
    }

    async fn sweep(&self, policy: &SweepPolicy) -> Result<SweepReport, StoreError> {
        run!(self.limit, "sweep", sweep::sweep(&self.pool, policy))
    }

    async fn sandbox_fate(&self, task: TaskId, epoch: Epoch) -> Result<SandboxFate, StoreError> {
        run!(
            self.limit,
            "sandbox_fate",
            sweep::sandbox_fate(&self.pool, task, epoch)
        )
    }

    async fn fail_queued(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        run!(
            self.limit,
            "fail_queued",
            sweep::fail_queued(&self.pool, task, reason)
        )
    }

    async fn request_stop(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        run!(
            self.limit,
            "request_stop",
            people::request_stop(&self.pool, task, reason)
        )
    }

    async fn request_pause(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        run!(
            self.limit,
            "request_pause",
            people::request_pause(&self.pool, task, reason)
        )
    }

    async fn resume(&self, task: TaskId) -> Result<bool, StoreError> {
        run!(self.limit, "resume", people::resume(&self.pool, task))
    }

    async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError> {
        run!(self.limit, "tasks", people::tasks(&self.pool, filter))
    }

    async fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        run!(self.limit, "task", people::task(&self.pool, id))
    }

    async fn task_by_number(&self, number: TaskNumber) -> Result<Option<Task>, StoreError> {
        run!(
            self.limit,
            "task_by_number",
            people::task_by_number(&self.pool, number)
        )
    }

    async fn task_by_item(&self, item: &ItemRef) -> Result<Option<Task>, StoreError> {
        run!(
            self.limit,
            "task_by_item",
            people::task_by_item(&self.pool, item)
        )
    }

    async fn sessions(&self, task: Option<TaskId>, limit: u32) -> Result<Vec<Session>, StoreError> {
        run!(
            self.limit,
            "sessions",
            people::sessions(&self.pool, task, limit)
        )
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        run!(self.limit, "session", people::session(&self.pool, id))
    }

    async fn steps(&self, task: TaskId) -> Result<Vec<Step>, StoreError> {
        run!(self.limit, "steps", journal::steps(&self.pool, task))
    }

    async fn checkpoints(&self, task: TaskId) -> Result<Vec<Checkpoint>, StoreError> {
        run!(
            self.limit,
            "checkpoints",
            journal::checkpoints(&self.pool, task)
        )
    }

    async fn counts(&self) -> Result<Vec<(String, u64)>, StoreError> {
        run!(self.limit, "counts", people::counts(&self.pool))
    }

    async fn healthy(&self) -> Result<(), StoreError> {
        run!(self.limit, "healthy", open::healthy(&self.pool))
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
