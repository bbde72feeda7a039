//! What is kept of tasks that are over, and for how long.
//!
//! A task's row, with its dedup key and its trigger, and the sums of its sessions are kept for good: an old trigger must
//! not make a second task, and costs are added up over years.

use agentmine_domain::{EndState, TaskNumber};
use agentmine_runtime::config::RetentionConfig;
use async_trait::async_trait;

use crate::StoreError;

/// Removing what is no longer needed, and looking at what takes space.
#[async_trait]
pub trait RetentionStore: Send + Sync + 'static {
    /// Removes one small batch of what is older than the policy keeps. Any number of processes may do so at once.
    async fn prune(&self, policy: &RetentionConfig) -> Result<Pruned, StoreError>;

    /// What [`Self::prune`] would remove in all its batches.
    async fn prunable(&self, policy: &RetentionConfig) -> Result<Vec<Prunable>, StoreError>;

    /// The size of each table, largest first.
    async fn sizes(&self) -> Result<Vec<TableSize>, StoreError>;

    /// The database was restored to an earlier time: nothing that was begun before may continue. Lifts the epochs of all
    /// tasks that are not over above any that was given since that time, and takes the tasks from their workers. Such a
    /// task is queued again without counting the attempt, or gets the state that a person requested.
    async fn restored(&self) -> Result<Restored, StoreError>;
}

/// What retention removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionKind {
    /// The files of a workspace. Nobody resumes a task that is over.
    Checkpoints,
    /// The steps.
    Journal,
    /// The record of writes to the tracker.
    Effects,
}

impl RetentionKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Checkpoints, Self::Journal, Self::Effects];

    /// The stable name, also in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Checkpoints => "checkpoints",
            Self::Journal => "journal",
            Self::Effects => "effects",
        }
    }
}

/// One batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Checkpoints that were removed.
    pub checkpoints: u64,
    /// Steps that were removed.
    pub steps: u64,
    /// Effects that were removed.
    pub effects: u64,
    /// Tasks of which something was removed.
    pub tasks: u64,
}

impl Pruned {
    /// Whether there may be more to remove.
    #[must_use]
    pub fn found_any(&self) -> bool {
        self.tasks + self.checkpoints > 0
    }
}

/// What would be removed of the tasks with one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prunable {
    /// What.
    pub what: RetentionKind,
    /// The outcome of the tasks.
    pub outcome: EndState,
    /// The number of tasks.
    pub tasks: u64,
    /// The number of rows.
    pub rows: u64,
    /// Their content in bytes, as far as the database counts it.
    pub bytes: u64,
}

/// The size of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSize {
    /// Its name; `other` is all that is not a table of tasks, sessions or memory.
    pub table: String,
    /// The number of rows; an estimate of the database on Postgres.
    pub rows: u64,
    /// Bytes on the disk, with indexes and free space inside.
    pub bytes: u64,
}

/// What [`RetentionStore::restored`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Tasks whose epoch was lifted.
    pub lifted: u64,
    /// Those that were taken from a worker.
    pub taken: Vec<TaskNumber>,
}
