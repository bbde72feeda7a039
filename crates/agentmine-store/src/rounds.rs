//! Pull requests that the fleet opened, and the rounds on them.

use agentmine_domain::{ItemRef, Lease, Round, RoundResult, Task, TaskId, TrackerKind};
use async_trait::async_trait;

use crate::StoreError;

/// Rounds on pull requests.
#[async_trait]
pub trait RoundStore: Send + Sync + 'static {
    /// From now on reviews and failed checks may begin rounds on the pull request that this task opened. One that was
    /// ended stays so.
    async fn watch_pull(&self, task: TaskId) -> Result<(), StoreError>;

    /// The tasks of a tracker whose pull requests are watched, in the order of their numbers.
    async fn watched_pulls(
        &self,
        tracker: TrackerKind,
        host: &str,
    ) -> Result<Vec<Task>, StoreError>;

    /// No further round begins on the pull request of this task. The first reason stays. `false`: it was ended before, or
    /// is not watched.
    async fn unwatch_pull(&self, task: TaskId, reason: &str) -> Result<bool, StoreError>;

    /// Records that a round begins, before its task is. Returns what is recorded under its number: another process may
    /// have been first, with what it found.
    async fn begin_round(&self, round: &Round) -> Result<Round, StoreError>;

    /// The rounds on a pull request, in order.
    async fn rounds(&self, pull: &ItemRef) -> Result<Vec<Round>, StoreError>;

    /// Records what came of the round that the lease's task is, before anything of it is written.
    async fn round_result(
        &self,
        lease: &Lease,
        number: u32,
        result: &RoundResult,
    ) -> Result<(), StoreError>;
}
