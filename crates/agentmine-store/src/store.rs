//! The store's operations, one trait for each group of callers.

use std::time::Duration;

use agentmine_domain::{
    EffectKey, Epoch, ItemRef, Lease, NewTask, Obeyed, Order, Phase, SandboxFate, Seq, Session,
    SessionId, Step, Task, TaskId, TaskNumber, Usage, WorkerId,
};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    Begun, CapacityStore, Checkpoint, Claim, DashboardStore, Dependency, Edited, EffectState,
    Enqueued, ExternalEnd, ExternalFinish, Figures, HeldStore, LeaseEnd, LeaseRequest, MemoryStore,
    NamedBranch, NewExternal, NewPersonTask, NewStep, Publish, RelayError, RetentionStore,
    RoundStore, ScanTime, ScopeConflict, SessionFilter, StoreError, SweepPolicy, SweepReport,
    TaskEdit, TaskFilter, Totals, WhichSessions,
};

/// The database. Object-safe.
#[async_trait]
pub trait Store:
    EnqueueStore
    + CapacityStore
    + LeaseStore
    + JournalStore
    + EffectStore
    + ReportStore
    + SweepStore
    + TaskStore
    + PeopleStore
    + ExternalStore
    + MemoryStore
    + HeldStore
    + DashboardStore
    + RoundStore
    + FigureStore
    + RetentionStore
{
    /// Whether the database answers and its schema is the one this version needs; for `/ready`.
    async fn healthy(&self) -> Result<(), StoreError>;

    /// The database, for messages: `host:port/database` or the file, without credentials.
    fn address(&self) -> &str;

    /// Closes the connections in good order.
    async fn close(&self);
}

/// Recording tasks.
#[async_trait]
pub trait EnqueueStore: Send + Sync + 'static {
    /// Records a task and its wake-up in one transaction, unless the item has a task that is not
    /// over or the same trigger already created one.
    async fn enqueue(&self, new: &NewTask) -> Result<Enqueued, StoreError>;

    /// The time by the database's clock: taken before a scan reads the tracker.
    async fn scan_time(&self) -> Result<ScanTime, StoreError>;

    /// A scan that began at `scan` found that a person requested work on the item of this task again. A
    /// paused task is queued, a queued one does not wait for the end of its delay, and the row remembers the
    /// request, so that no second task comes from it. `false`: a worker holds the task or it is over, it has
    /// answered this request already, or the row was changed after the scan began: what the scan found may be
    /// older than a pause or than a request that another scan has answered. The next scan decides then.
    async fn answer_request(
        &self,
        task: TaskId,
        trigger: &str,
        scan: ScanTime,
    ) -> Result<bool, StoreError>;

    /// Publishes up to `limit` due outbox entries, and up to as many again of other queues if one queue refuses its own; marks
    /// each one sent only after `Ok`. Safe from any number of processes at once. Returns how many were sent, or the
    /// first failure after recording what was sent.
    async fn relay_outbox(&self, limit: u32, publish: &dyn Publish) -> Result<u64, RelayError>;
}

/// Claiming and holding a task.
#[async_trait]
pub trait LeaseStore: Send + Sync + 'static {
    /// Takes a lease on the row if it is queued or its lease has run out: epoch and attempt go up
    /// by one and a session begins. `None`: another worker has it, it was given back for a time that is not over, it is over,
    /// or there is no such row. A row that ran out of attempts is failed here, and `None` returned; but a task whose pull request was
    /// begun has one attempt more, in which the worker only reports. `nonce` makes the
    /// call safe to repeat: the same nonce finds its own claim again.
    async fn claim(
        &self,
        task: TaskId,
        worker: &WorkerId,
        nonce: Uuid,
        lease: Duration,
        max_attempts: u32,
    ) -> Result<Option<Claim>, StoreError>;

    /// The same for a task that no worker of the fleet claims ([`agentmine_domain::TaskHome::People`]): a person has asked this process
    /// for it. `None` also while a client works on it, while it waits for others, or if it is for a person.
    async fn claim_of_person(
        &self,
        task: TaskId,
        worker: &WorkerId,
        nonce: Uuid,
        lease: Duration,
    ) -> Result<Option<Claim>, StoreError>;

    /// Rows that lost their worker, and queued rows that are older than `older_than`. The former come
    /// first, then the oldest of the highest priority. Workers poll this while the broker is down. A
    /// released row whose wake-up is not due yet is omitted. At most `limit` rows, after the first `skip`.
    async fn claimable(
        &self,
        older_than: Duration,
        skip: u32,
        limit: u32,
    ) -> Result<Vec<Task>, StoreError>;

    /// Extends the lease and returns the request that a person left in the row. A lease that ran
    /// out and was not taken may still be extended: nobody else has acted on it.
    async fn heartbeat(&self, lease: &Lease, extend: Duration) -> Result<LeaseRequest, StoreError>;

    /// Whether the lease is held and has not run out. Asked before a push, which cannot be taken
    /// back. Stricter than the fence of a write: a lease that ran out but was not taken passes that.
    async fn check(&self, lease: &Lease) -> Result<(), StoreError>;

    /// Records the name of the task's branch, unless one is recorded: that one is returned then. The name is refused if another
    /// task of the repository has or had it. Called before anything is pushed.
    async fn name_branch(&self, lease: &Lease, name: &str) -> Result<NamedBranch, StoreError>;

    /// Records the phase.
    async fn set_phase(&self, lease: &Lease, phase: Phase) -> Result<(), StoreError>;

    /// Ends the lease and its session. Repeating the same call is `Ok`. A request that a person left
    /// in the row meanwhile is honoured: a released task with a stop request is stopped, not queued.
    async fn end_lease(&self, lease: &Lease, end: &LeaseEnd) -> Result<(), StoreError>;
}

/// A task's journal, and what resuming it needs.
#[async_trait]
pub trait JournalStore: Send + Sync + 'static {
    /// Appends to the journal. A step whose token is recorded already is not appended again; its
    /// number is returned.
    async fn append_step(&self, lease: &Lease, step: &NewStep) -> Result<Seq, StoreError>;

    /// The same, and [`JournalStore::record_usage`] with it.
    async fn append_step_with_usage(
        &self,
        lease: &Lease,
        step: &NewStep,
        model: &str,
        usage: &Usage,
    ) -> Result<Seq, StoreError>;

    /// Records what the session has used so far, and which model it uses.
    async fn record_usage(
        &self,
        lease: &Lease,
        model: &str,
        usage: &Usage,
    ) -> Result<(), StoreError>;

    /// Stores a checkpoint. A second one of the same step replaces the first: a worker that resumed
    /// at the step took it again.
    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError>;

    /// The journal of a task, in order, over all its sessions.
    async fn steps(&self, task: TaskId) -> Result<Vec<Step>, StoreError>;

    /// The steps of one session after `after`, in order. At most `limit`; 0 is all.
    async fn session_steps(
        &self,
        session: &Session,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Step>, StoreError>;

    /// Records what the model has written of the reply after step `after`, if somebody follows the session. `false`:
    /// nobody does, or the lease is lost. Nothing depends on it.
    async fn show_reply(&self, lease: &Lease, after: Seq, text: &str) -> Result<bool, StoreError>;

    /// What the model of a running session has written of the reply after its newest step. From the first call until some
    /// seconds after the last one its worker records it.
    async fn follow_reply(&self, session: &Session) -> Result<Option<String>, StoreError>;

    /// The checkpoints of a task, in order.
    async fn checkpoints(&self, task: TaskId) -> Result<Vec<Checkpoint>, StoreError>;
}

/// The record of outside writes.
#[async_trait]
pub trait EffectStore: Send + Sync + 'static {
    /// Records that an outside write begins, or returns how far it has come. With `lease` it is
    /// fenced, and refused with [`StoreError::Expired`] while the lease has run out; without one it belongs to a
    /// producer or a sweep.
    async fn effect_begin(
        &self,
        task: TaskId,
        lease: Option<&Lease>,
        key: &EffectKey,
    ) -> Result<EffectState, StoreError>;

    /// The names that the labels of this task have had on its item, the one that requested it included. They
    /// differ from the configured ones after those were changed.
    async fn label_names(&self, task: TaskId) -> Result<Vec<String>, StoreError>;

    /// How far an effect has come; `None` if it was never begun.
    async fn effect(
        &self,
        task: TaskId,
        key: &EffectKey,
    ) -> Result<Option<EffectState>, StoreError>;

    /// Records that it happened and what came of it, even if it was never begun. Not fenced: what
    /// happened, happened.
    async fn effect_done(
        &self,
        task: TaskId,
        key: &EffectKey,
        result: &Value,
    ) -> Result<(), StoreError>;
}

/// Reporting the ends of tasks that no worker holds.
#[async_trait]
pub trait ReportStore: Send + Sync + 'static {
    /// Tasks that have been over or paused for `older_than` without a finished label effect of that
    /// state and epoch: their end may not be reported yet. At most `limit`, in the order of their numbers,
    /// from the first one after `after`.
    async fn unreported(
        &self,
        older_than: Duration,
        after: TaskNumber,
        limit: u32,
    ) -> Result<Vec<Task>, StoreError>;

    /// Tasks whose end was reported at least `lease` ago, without a finished second look at it
    /// ([`EffectKey::label_check`]), of those that ended within `within`, which is a day at most. A task whose item has a
    /// later one is omitted. Paged like [`Self::unreported`]. It reads all tasks that ended within that time.
    async fn unconfirmed(
        &self,
        lease: Duration,
        within: Duration,
        after: TaskNumber,
        limit: u32,
    ) -> Result<Vec<Task>, StoreError>;

    /// The newest task of an item, whatever its state.
    async fn latest_task(&self, item: &ItemRef) -> Result<Option<Task>, StoreError> {
        Ok(self.tasks_of_item(item, 1).await?.pop())
    }

    /// The newest tasks of an item, whatever their states, newest first.
    async fn tasks_of_item(&self, item: &ItemRef, limit: u32) -> Result<Vec<Task>, StoreError>;

    /// Takes the report of this task's end for `hold`, so that one process writes it. Returns the row as it
    /// is then; `None`: another process has the report, or the task is no longer in this state and epoch.
    /// `nonce` makes the call safe to repeat.
    async fn claim_report(
        &self,
        task: &Task,
        nonce: Uuid,
        hold: Duration,
    ) -> Result<Option<Task>, StoreError>;

    /// A task ended as failed while nobody knew whether its pull request was opened, and it was: the task is done.
    /// Returns the row as it is then; `None`: it did not end so. Safe to repeat.
    async fn found_result(
        &self,
        task: TaskId,
        url: &str,
        reason: Option<&str>,
    ) -> Result<Option<Task>, StoreError>;
}

/// Repairs after a worker died or a message was lost.
#[async_trait]
pub trait SweepStore: Send + Sync + 'static {
    /// One pass, under a lock that one process at a time can hold.
    async fn sweep(&self, policy: &SweepPolicy) -> Result<SweepReport, StoreError>;

    /// Lets the leases of a process that is known to be dead run out after `rest`, if they last longer. The names
    /// of its workers begin with `process` and a slash. Returns their number.
    async fn worker_died(&self, process: &str, rest: Duration) -> Result<u64, StoreError>;

    /// What to do with the sandbox of this task and epoch.
    async fn sandbox_fate(&self, task: TaskId, epoch: Epoch) -> Result<SandboxFate, StoreError>;

    /// Fails a queued row because its wake-ups were dead-lettered. `false`: it was not queued, or its pull
    /// request was begun and may have to be reported.
    async fn fail_queued(&self, task: TaskId, reason: &str) -> Result<bool, StoreError>;
}

/// Tasks that people make and change.
#[async_trait]
pub trait PeopleStore: Send + Sync + 'static {
    /// Records a task of a person, and its wake-up if it is for a repository of a tracker. Of another one no worker of
    /// the fleet claims it.
    async fn create_task(&self, new: &NewPersonTask) -> Result<Edited, StoreError>;

    /// Changes a task, if it has the version that the person saw. A status that the edit names is given to a task of
    /// a person alone. A cancelled task's running session of an external client is ended.
    async fn edit_task(&self, task: TaskId, edit: &TaskEdit) -> Result<Edited, StoreError>;

    /// The tasks that this one depends on, by their numbers.
    async fn dependencies(&self, task: TaskId) -> Result<Vec<Dependency>, StoreError>;

    /// A running task of the same repository that may change the same files.
    async fn scope_conflict(&self, task: &Task) -> Result<Option<ScopeConflict>, StoreError>;

    /// Until when a queued task waits; `None`: it does not wait for a time.
    async fn due_at(&self, task: TaskId) -> Result<Option<DateTime<Utc>>, StoreError>;

    /// When the lease of a task ran out, by the database's clock; `None`: its worker holds it, or it is not leased.
    async fn lease_ran_out_at(&self, task: TaskId) -> Result<Option<DateTime<Utc>>, StoreError>;
}

/// Sessions of clients outside of the fleet, on tasks of people.
#[async_trait]
pub trait ExternalStore: Send + Sync + 'static {
    /// Begins a session. A task has at most one that is running.
    async fn begin_external(&self, task: TaskId, new: &NewExternal) -> Result<Begun, StoreError>;

    /// Ends a session, and gives its task the status that follows unless it is over already.
    async fn end_external(
        &self,
        session: SessionId,
        end: &ExternalEnd,
    ) -> Result<ExternalFinish, StoreError>;

    /// Records the folder of the session's work tree.
    async fn set_worktree(&self, session: SessionId, worktree: &str) -> Result<(), StoreError>;

    /// Ends a session whose client was never started, and opens its task again.
    async fn discard_external(&self, session: SessionId) -> Result<(), StoreError>;
}

/// What people ask of tasks, and what they see of them.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Stops the task: at once if it is queued or paused, else the next heartbeat returns the
    /// request. `false`: it is over already or there is no such task.
    async fn request_stop(&self, task: TaskId, reason: &str) -> Result<bool, StoreError>;

    /// Pauses the task, likewise. An earlier stop request stays: it is the stronger one. A task that is paused until its
    /// credentials are accepted is paused until somebody resumes it.
    async fn request_pause(&self, task: TaskId, reason: &str) -> Result<bool, StoreError>;

    /// Obeys a command that a person wrote in a comment: records `key` as done and leaves the order in the row, in one
    /// transaction, so that it is carried out once, no matter who finds it.
    async fn obey(
        &self,
        task: TaskId,
        key: &EffectKey,
        order: Order<'_>,
    ) -> Result<Obeyed, StoreError>;

    /// Why a leased task is to be stopped or paused; `None` without such a request.
    async fn request_reason(&self, task: TaskId) -> Result<Option<String>, StoreError>;

    /// Makes a queued task due that waits for the end of a delay. `false`: it does not wait.
    async fn skip_delay(&self, task: TaskId) -> Result<bool, StoreError>;

    /// Queues a paused task again, with a wake-up. `false`: it was not paused.
    async fn resume(&self, task: TaskId) -> Result<bool, StoreError>;

    /// Tasks, newest first.
    async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError>;

    /// How many tasks of the fleet are queued, and how many are leased.
    async fn queued_and_leased(&self) -> Result<(u64, u64), StoreError>;

    /// One task.
    async fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError>;

    /// One task by its number.
    async fn task_by_number(&self, number: TaskNumber) -> Result<Option<Task>, StoreError>;

    /// Sessions, newest first; of one task if named. 0 is all.
    async fn sessions(&self, task: Option<TaskId>, limit: u32) -> Result<Vec<Session>, StoreError> {
        let filter = SessionFilter {
            task,
            limit,
            ..SessionFilter::default()
        };
        self.list_sessions(&filter).await
    }

    /// Sessions, newest first.
    async fn list_sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError>;

    /// The sessions that run, or those that have ended, each with its task, newest first. 0 is all. The number of
    /// statements does not grow with that of the sessions.
    async fn sessions_with_tasks(
        &self,
        which: WhichSessions,
        limit: u32,
    ) -> Result<Vec<(Session, Task)>, StoreError>;

    /// One session.
    async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError>;
}

/// What the metrics show of the whole fleet.
#[async_trait]
pub trait FigureStore: Send + Sync + 'static {
    /// The figures at this moment.
    async fn figures(&self) -> Result<Figures, StoreError>;

    /// What the fleet has done since it began.
    async fn totals(&self) -> Result<Totals, StoreError>;

    /// Makes one row of the rows that each sum consists of, so that the sums stay quick to read. Changes no sum.
    async fn fold_totals(&self) -> Result<(), StoreError>;
}
