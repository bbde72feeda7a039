//! Tasks, sessions, steps, effects, checkpoints and the outbox, in Postgres or SQLite.
//!
//! The row is the task. Every write that a worker makes takes its [`Lease`] and is refused with
//! [`StoreError::Fenced`] when the row's epoch is another one or the row is no longer leased. Time is
//! the database's clock, never the worker's.

mod closing;
mod connect;
#[cfg(test)]
mod contract;
mod failure;
mod metrics;
mod migrations;
mod postgres;
mod row;
mod sqlite;

use std::time::Duration;

use agentmine_domain::{
    EffectKey, EndState, Epoch, ItemRef, Lease, NewTask, Phase, PublicStatus, SandboxFate, Seq,
    Session, SessionId, Step, StepKind, StepPayload, Task, TaskId, TaskNumber, Usage, WakeUp,
    WorkerId,
};
use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

pub use connect::{connect, connect_heartbeat};

/// Why the store did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The lease is not the row's any more: stop all writes and effects at once.
    #[error("the lease on task {0} is no longer held")]
    Fenced(TaskId),
    /// The database is not there or refused for a passing reason.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The database answered something that this version does not understand, or refused a statement.
    #[error("store: {0}")]
    Fault(String),
}

/// What became of an enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// A row and its outbox entry were made.
    Created(Task),
    /// The item has a task that is not over, or this trigger already made one.
    Known(Task),
}

/// A claimed task.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The row, as claimed.
    pub task: Task,
    /// Proof for all further writes.
    pub lease: Lease,
}

/// What a heartbeat returns: the request that a person left in the leased row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRequest {
    /// No request: carry on.
    Continue,
    /// Stop the task for good.
    Stop,
    /// Pause the task until a person resumes it.
    Pause,
}

/// Whether the attempt of a released lease counts toward the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// It counts.
    Charged,
    /// It does not count: the task did not cause the release (a drain).
    Refunded,
}

/// How a worker ends its lease.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseEnd {
    /// The task is over.
    Finish {
        /// The task's end state.
        state: EndState,
        /// Why, in words.
        reason: Option<String>,
        /// The pull request's address.
        pull_request_url: Option<String>,
    },
    /// The task is queued again, with a wake-up in the outbox that is due after `delay`.
    Release {
        /// Why, in words.
        reason: String,
        /// Time until the wake-up is due.
        delay: Duration,
        /// Whether this lease counts as an attempt.
        attempt: Attempt,
    },
    /// The task is paused until a person resumes it.
    Pause {
        /// Why, in words.
        reason: String,
    },
}

/// How far an effect has come.
#[derive(Debug, Clone, PartialEq)]
pub enum EffectState {
    /// It was begun just now: act.
    Fresh,
    /// It was begun before, by this or an earlier session, and is not marked done: look at the
    /// outside world first, then act if it has not happened.
    Unsure,
    /// It happened; this is what was recorded of it.
    Done(Value),
}

/// A step about to be recorded; the store gives it its number.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStep {
    /// What it records.
    pub kind: StepKind,
    /// The content.
    pub payload: StepPayload,
    /// How long it took.
    pub duration_ms: u64,
}

/// The workspace's files at a step, as a git bundle of what is new since the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The step after which it was taken.
    pub seq: Seq,
    /// The snapshot commit's hash, as the guest told it.
    pub commit: String,
    /// The bundle, zstd-compressed. Opaque: it comes from a sandbox and only goes into one.
    pub bundle: Vec<u8>,
}

/// A sweep's policy.
#[derive(Debug, Clone)]
pub struct SweepPolicy {
    /// Leases a task may begin before an expired one fails it.
    pub max_attempts: u32,
    /// Queued rows whose newest wake-up is older than this get another.
    pub wakeup_after: Duration,
}

/// What a sweep did. All zero when another process held the sweep lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Tasks whose lease had run out, queued again.
    pub requeued: Vec<TaskId>,
    /// Tasks whose lease had run out for the last time, now failed.
    pub failed: Vec<TaskId>,
    /// Queued rows that got another wake-up.
    pub rewoken: u64,
}

/// Where the relay hands each wake-up on. Implemented over the queue by the glue in producer and
/// consumer.
#[async_trait]
pub trait Publish: Send + Sync {
    /// `Ok` only when the message is confirmed and routed.
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), String>;
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only these, by the status people see.
    pub status: Option<PublicStatus>,
    /// Newest first, at most so many; 0 is all.
    pub limit: u32,
}

/// The database. Object-safe; one implementation for Postgres, one for SQLite.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    // -- producers ------------------------------------------------------------------------------

    /// Records a task and its wake-up in one transaction, unless the item has a task that is not
    /// over or the same trigger already made one.
    async fn enqueue(&self, new: &NewTask) -> Result<Enqueued, StoreError>;

    /// Publishes due outbox entries, at most `limit`, and marks each sent only after `Ok`. Safe from
    /// any number of processes at once. Returns how many were sent; stops at the first failure and
    /// returns it after committing what was sent.
    async fn relay_outbox(&self, limit: u32, publish: &dyn Publish) -> Result<u64, StoreError>;

    // -- workers --------------------------------------------------------------------------------

    /// Takes a lease on this row if it is queued or its lease has run out: epoch and attempt go up
    /// by one, a session row begins. `None`: somebody else has it, or it is over, or there is no
    /// such row. A row out of attempts is failed here and `None` returned. `nonce` makes the call
    /// safe to repeat: the same nonce finds its own claim again.
    async fn claim(
        &self,
        task: TaskId,
        worker: &WorkerId,
        nonce: Uuid,
        lease: Duration,
        max_attempts: u32,
    ) -> Result<Option<Claim>, StoreError>;

    /// Queued rows (or with a lease that has run out) older than `older_than`, oldest first within
    /// the highest priority: what a worker polls while the broker is down.
    async fn claimable(&self, older_than: Duration, limit: u32) -> Result<Vec<TaskId>, StoreError>;

    /// Extends the lease and returns the request that a person left in the row.
    async fn heartbeat(&self, lease: &Lease, extend: Duration) -> Result<LeaseRequest, StoreError>;

    /// Whether the lease is held now and has not run out; for the gateway, before a push. Stricter
    /// than the fence of the writes below, which a lease that ran out but was not taken still passes.
    async fn check(&self, lease: &Lease) -> Result<(), StoreError>;

    /// Records the phase.
    async fn set_phase(&self, lease: &Lease, phase: Phase) -> Result<(), StoreError>;

    /// Appends to the journal.
    async fn append_step(&self, lease: &Lease, step: &NewStep) -> Result<Seq, StoreError>;

    /// Records what the session has used so far and which model it uses.
    async fn record_usage(
        &self,
        lease: &Lease,
        model: &str,
        usage: &Usage,
    ) -> Result<(), StoreError>;

    /// Stores a checkpoint.
    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError>;

    /// Ends the lease and its session. Repeating the same call is `Ok`. A request that a person left
    /// in the row meanwhile is honoured: a released task with a stop request is stopped, not queued.
    async fn end_lease(&self, lease: &Lease, end: &LeaseEnd) -> Result<(), StoreError>;

    // -- effects --------------------------------------------------------------------------------

    /// Records that an outside write begins, or returns how far it has come. With `lease` it is fenced;
    /// without one it belongs to a producer or a sweep.
    async fn effect_begin(
        &self,
        task: TaskId,
        lease: Option<&Lease>,
        key: &EffectKey,
    ) -> Result<EffectState, StoreError>;

    /// Records that it happened and what came of it. Never fenced: what happened, happened.
    async fn effect_done(
        &self,
        task: TaskId,
        key: &EffectKey,
        result: &Value,
    ) -> Result<(), StoreError>;

    /// Tasks that have been over or paused for `older_than` without a finished label effect of that
    /// state and epoch: their end may not be reported yet. Oldest end first.
    async fn unreported(&self, older_than: Duration, limit: u32) -> Result<Vec<Task>, StoreError>;

    // -- sweep ----------------------------------------------------------------------------------

    /// One pass, under a lock that only one process of all holds at a time.
    async fn sweep(&self, policy: &SweepPolicy) -> Result<SweepReport, StoreError>;

    /// What to do with a sandbox of this name.
    async fn sandbox_fate(&self, task: TaskId, epoch: Epoch) -> Result<SandboxFate, StoreError>;

    /// Marks a queued row failed because its wake-ups were dead-lettered.
    async fn fail_queued(&self, task: TaskId, reason: &str) -> Result<bool, StoreError>;

    // -- people ---------------------------------------------------------------------------------

    /// Asks for a stop: at once where the task is queued or paused, else by the next heartbeat.
    /// `false`: it is over already or there is no such task.
    async fn request_stop(&self, task: TaskId, reason: &str) -> Result<bool, StoreError>;

    /// Asks for a pause, likewise.
    async fn request_pause(&self, task: TaskId, reason: &str) -> Result<bool, StoreError>;

    /// Queues a paused task again, with a wake-up.
    async fn resume(&self, task: TaskId) -> Result<bool, StoreError>;

    /// Tasks, newest first.
    async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError>;

    /// One task.
    async fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError>;

    /// One task by its number.
    async fn task_by_number(&self, number: TaskNumber) -> Result<Option<Task>, StoreError>;

    /// The item's task that is not over, or else its newest.
    async fn task_by_item(&self, item: &ItemRef) -> Result<Option<Task>, StoreError>;

    /// Sessions, newest first; of one task if named. 0 is all.
    async fn sessions(&self, task: Option<TaskId>, limit: u32) -> Result<Vec<Session>, StoreError>;

    /// One session.
    async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError>;

    /// The journal of a task, in order, over all its sessions.
    async fn steps(&self, task: TaskId) -> Result<Vec<Step>, StoreError>;

    /// The checkpoints of a task, in order.
    async fn checkpoints(&self, task: TaskId) -> Result<Vec<Checkpoint>, StoreError>;

    /// Counts of tasks by state name, for metrics.
    async fn counts(&self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Whether the database answers and its schema is the one this version needs; for `/ready`.
    async fn healthy(&self) -> Result<(), StoreError>;

    /// Closes connections in good order.
    async fn close(&self);
}
