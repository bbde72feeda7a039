//! What goes into the store's operations and comes out of them.

use std::time::Duration;

use agentmine_domain::{
    EndState, Lease, PublicStatus, Seq, SessionId, StepKind, StepPayload, Task, TaskId, TaskNumber,
    WakeUp,
};
use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

/// The outcome of an enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// A row and its outbox entry were created.
    Created(Task),
    /// The item has a task that is not over, or this trigger already created one.
    Known(Task),
}

/// When a scan began, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanTime {
    /// Milliseconds since 1970, rounded up.
    pub(crate) millis: i64,
}

/// A claimed task.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The row, as claimed.
    pub task: Task,
    /// Proof for all further writes.
    pub lease: Lease,
}

/// What came of recording the name of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedBranch {
    /// The name that the task has from now on.
    Recorded(String),
    /// Another task of the repository has or had it.
    Taken,
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
    /// It does not count: the task did not cause the release (an outage).
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
    /// The worker shuts down: the task is queued again before all others, and the lease does not count as an
    /// attempt.
    HandOver {
        /// Why, in words.
        reason: String,
    },
    /// The task is paused until a person resumes it; it is stopped if that was requested since the pause was.
    Pause {
        /// Why, in words.
        reason: String,
    },
}

/// Which sessions a listing shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichSessions {
    /// All that have not ended.
    Running,
    /// All that have ended.
    Ended,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Only sessions of this task.
    pub task: Option<TaskId>,
    /// Only those that run, or that have ended.
    pub which: Option<WhichSessions>,
    /// Only sessions with a number below this one.
    pub before: Option<SessionId>,
    /// How many at most, newest first; 0 is all.
    pub limit: u32,
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

/// A step to be recorded; the store gives it its number.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStep {
    /// What it records.
    pub kind: StepKind,
    /// The content.
    pub payload: StepPayload,
    /// How long the event took, in milliseconds.
    pub duration_ms: u64,
    /// Names the step, so that appending it again finds it.
    pub token: StepToken,
}

impl NewStep {
    /// A step with its own token. Make it once and append it as often as necessary: it is
    /// recorded once.
    #[must_use]
    pub fn new(kind: StepKind, payload: StepPayload, duration_ms: u64) -> Self {
        Self {
            kind,
            payload,
            duration_ms,
            // Its index grows at one end only: tokens at random would touch a page of it each.
            token: StepToken(Uuid::now_v7()),
        }
    }
}

/// The identity of a step before it has a number. Only [`NewStep::new`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepToken(pub(crate) Uuid);

/// The workspace's files after a step, as a git bundle of what is new since the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The step after which it was taken.
    pub seq: Seq,
    /// The hash of the snapshot commit, as the guest reported it.
    pub commit: String,
    /// The bundle, zstd-compressed. Opaque: it comes from a sandbox and only goes into one.
    pub bundle: Vec<u8>,
}

/// A sweep's policy.
#[derive(Debug, Clone)]
pub struct SweepPolicy {
    /// Leases a task may begin before an expired one fails it; one more if its pull request was begun.
    pub max_attempts: u32,
    /// Queued rows whose newest wake-up is older than this get another one; later those that have waited for longer
    /// than twice this.
    pub wakeup_after: Duration,
    /// How long a lease lasts. For so long after an absence of the database, expired leases are left to
    /// their holders.
    pub lease: Duration,
}

/// What a sweep did. Nothing when another process held the sweep lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Tasks whose lease had run out, queued again.
    pub requeued: Vec<TaskId>,
    /// Tasks whose lease had run out for the last time, now failed.
    pub failed: Vec<TaskId>,
    /// Queued rows that got another wake-up.
    pub rewoken: u64,
    /// Effects that were begun, that nobody will finish, and that are no longer open.
    pub closed_effects: u64,
    /// The time until the next lease runs out, unless its holder extends it. Also without the sweep lock.
    pub next_expiry: Option<Duration>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only tasks with this status.
    pub status: Option<PublicStatus>,
    /// Only tasks that are assigned to this name.
    pub assignee: Option<String>,
    /// Only tasks with a number below this one.
    pub before: Option<TaskNumber>,
    /// How many at most, newest first; 0 is all.
    pub limit: u32,
}

/// Where the relay publishes wake-ups. Producer and consumer implement it over the queue.
#[async_trait]
pub trait Publish: Send + Sync {
    /// `Ok` only when the message is confirmed and routed.
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), String>;
}

/// How many there are, and how long the oldest one has waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Their number.
    pub count: u64,
    /// The age of the oldest; zero if there is none.
    pub oldest: Duration,
}

/// What a task that is not over waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStanding {
    /// A free slot.
    Due,
    /// The end of a delay.
    Delayed,
    /// The end of its session.
    Leased,
    /// A person.
    Paused,
    /// The turn of its repository, something of its item, or the files that a running task may change.
    Waiting,
}

impl TaskStanding {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Due,
        Self::Delayed,
        Self::Leased,
        Self::Paused,
        Self::Waiting,
    ];

    /// The stable name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Delayed => "delayed",
            Self::Leased => "leased",
            Self::Paused => "paused",
            Self::Waiting => "waiting",
        }
    }
}

/// The tasks of one priority and standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCount {
    /// Their priority.
    pub priority: agentmine_domain::Priority,
    /// What they wait for.
    pub standing: TaskStanding,
    /// Their number, and the time since the oldest row among them last changed.
    pub backlog: Backlog,
}

/// The whole fleet at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// Every priority with every standing.
    pub tasks: Vec<TaskCount>,
    /// The slots that have something to do: see the view `demand`.
    pub slots: u64,
    /// Wake-ups that are due and not published.
    pub outbox: Backlog,
    /// Ends that are not reported to the tracker.
    pub unreported: Backlog,
    /// Writes to trackers that began and whose outcome is unknown.
    pub effects: Backlog,
}
