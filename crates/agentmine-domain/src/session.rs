//! One worker's run of a task, under one lease epoch.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::budget::Usage;
use crate::ids::{Epoch, SessionId, TaskId, TaskNumber, WorkerId};
use crate::names::{UnknownName, named};
use std::fmt;
use std::str::FromStr;

named!(
    /// How a session ended. A task may go on after any of these but `done`, `failed` and `stopped`.
    SessionEnd, "session end" {
        /// The task ended well.
        Done = "done",
        /// The task ended badly.
        Failed = "failed",
        /// The task was stopped by somebody.
        Stopped = "stopped",
        /// The task was set aside by somebody.
        Paused = "paused",
        /// The worker gave the task back, to be taken up again.
        Released = "released",
        /// The lease ran out: the worker died or lost the store.
        Expired = "expired",
    }
);

/// One worker's run of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// The task it ran.
    pub task: TaskId,
    /// That task's number, for people.
    pub task_number: TaskNumber,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// Who ran it.
    pub worker: WorkerId,
    /// The model's name.
    pub model: Option<String>,
    /// When the lease began.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// How it ended; `None` while it runs.
    pub end: Option<SessionEnd>,
    /// In words: why.
    pub reason: Option<String>,
    /// What it used.
    pub usage: Usage,
}
