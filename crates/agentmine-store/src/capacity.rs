//! Tasks that wait until a producer admits them, and what their repositories have of the fleet meanwhile.

use std::time::Duration;

use agentmine_domain::{ItemRef, NewTask, Priority, RepositoryKey, Task, TaskId, TrackerKind};
use async_trait::async_trait;

use crate::{Enqueued, ScanTime, StoreError};

/// A request whose task waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRequest {
    /// Its task.
    pub task: TaskId,
    /// The item that asks.
    pub item: ItemRef,
    /// See [`NewTask::dedup_key`].
    pub dedup_key: String,
    /// The priority of its task.
    pub priority: Priority,
}

impl WaitingRequest {
    /// What asked for the work.
    #[must_use]
    pub fn trigger(&self) -> &str {
        let key = self.item.key();
        let trigger = self.dedup_key.strip_prefix(&key);
        trigger.map_or("", |trigger| trigger.trim_start_matches('|'))
    }
}

/// What a repository with waiting tasks has of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryLoad {
    /// The repository.
    pub repository: RepositoryKey,
    /// Its path when the tasks were recorded.
    pub repo_path: String,
    /// Its tasks that wait.
    pub waiting: u64,
    /// Its tasks that were admitted and that no worker has.
    pub queued: u64,
    /// Those of the queued ones that were given back and whose delay is not over.
    pub delayed: u64,
    /// Its tasks that workers have.
    pub leased: u64,
    /// Those of the queued and leased ones that work on issues.
    pub on_issues: u64,
}

/// How much room a repository has for one more task, by what was known at `since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// How many of its tasks may be queued or leased; `None`: any number.
    pub tasks: Option<u64>,
    /// How many of them on issues, which will open pull requests.
    pub on_issues: Option<u64>,
    /// Tasks on issues that ended or were paused after this with a pull request count too: it may not be in the numbers
    /// above.
    pub since: ScanTime,
}

/// Whether a repository had room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// The task is queued, with its wake-up in the outbox.
    Yes,
    /// The task does not wait any more.
    NotWaiting,
    /// Other tasks took the room meanwhile.
    Full,
}

/// A pull request that a task on an issue opened, with its result or before that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedPullRequest {
    /// The number of the issue.
    pub issue: u64,
    /// Its address.
    pub url: String,
}

/// Why a task waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// What its repository waits for; `None`: no producer has looked at it yet.
    pub reason: Option<String>,
    /// Waiting tasks of its repository that go before it.
    pub before: u64,
}

/// Tasks that wait. Only producers change them.
#[async_trait]
pub trait CapacityStore: Send + Sync + 'static {
    /// The same as [`crate::EnqueueStore::enqueue`] for a task that waits: it has no wake-up, and no worker claims it.
    async fn enqueue_waiting(&self, new: &NewTask) -> Result<Enqueued, StoreError>;

    /// All requests whose tasks wait.
    async fn waiting_requests(&self) -> Result<Vec<WaitingRequest>, StoreError>;

    /// The queued tasks of a tracker that wait for no turn, newest first. Those that do are not read, since there may be
    /// thousands.
    async fn admitted(&self, tracker: TrackerKind, host: &str) -> Result<Vec<Task>, StoreError>;

    /// The repositories that have waiting tasks, the one that has waited for longest first.
    async fn loads(&self) -> Result<Vec<RepositoryLoad>, StoreError>;

    /// The next tasks of a repository, by priority and age: at most `each` on issues and `each` on pull requests that wait
    /// for their turn, and at most `each` whose items were checked and are due for another look.
    async fn next_waiting(
        &self,
        repository: &RepositoryKey,
        each: u32,
    ) -> Result<Vec<Task>, StoreError>;

    /// The newest 300 pull requests that tasks on issues of a repository opened and that became done, newest first, then
    /// those that failed, stopped and paused tasks left.
    async fn pull_requests_of(
        &self,
        repository: &RepositoryKey,
    ) -> Result<Vec<OpenedPullRequest>, StoreError>;

    /// How many tasks on issues of a repository ended with a pull request in this time, or opened one in it and are over or
    /// paused without a result.
    async fn opened_within(
        &self,
        repository: &RepositoryKey,
        time: Duration,
    ) -> Result<u64, StoreError>;

    /// Records why the tasks of a repository wait for their turn.
    async fn hold_repository(
        &self,
        repository: &RepositoryKey,
        reason: &str,
    ) -> Result<(), StoreError>;

    /// Records what the item of a waiting task waits for, and that it is not looked at again for a time. An empty reason:
    /// it waits for its turn again.
    async fn hold_task(&self, task: TaskId, reason: &str, time: Duration)
    -> Result<(), StoreError>;

    /// Gives a waiting task another priority.
    async fn prioritize(&self, task: TaskId, priority: Priority) -> Result<(), StoreError>;

    /// Admits a waiting task if its repository has room, and records its wake-up, in one transaction. Of the tasks of a
    /// repository, no more are admitted ahead of a worker than workers have, but one in any case: so those of another
    /// repository wait for one of them at most.
    async fn admit(&self, task: &Task, room: &Room) -> Result<Admitted, StoreError>;

    /// Admits a waiting task whatever its repository has, since a person wants it now. `false`: it does not wait.
    async fn admit_at_once(&self, task: TaskId) -> Result<bool, StoreError>;

    /// Why a waiting task waits.
    async fn turn(&self, task: &Task) -> Result<Turn, StoreError>;
}
