//! One worker's run of a task, under one lease epoch.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::budget::Usage;
use crate::ids::{Epoch, SessionId, TaskId, TaskNumber, WorkerId};
use crate::names::{UnknownName, named};
use std::fmt;
use std::str::FromStr;

named!(
    /// How a session ended. The task may continue, except after `done`, `failed` and `stopped`.
    SessionEnd, "session end" {
        /// The task ended with a result.
        Done = "done",
        /// The task failed.
        Failed = "failed",
        /// A person stopped the task.
        Stopped = "stopped",
        /// A person paused the task.
        Paused = "paused",
        /// The worker gave the task back to the queue.
        Released = "released",
        /// The lease expired: the worker died or lost the store.
        Expired = "expired",
    }
);

/// One worker's run of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Session {
    /// The session's number.
    pub id: SessionId,
    /// The task it ran.
    pub task: TaskId,
    /// That task's number, for people.
    pub task_number: TaskNumber,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// The model's name.
    pub model: Option<String>,
    /// When the lease began.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// How it ended; `None` while it runs.
    pub end: Option<SessionEnd>,
    /// Why it ended.
    pub reason: Option<String>,
    /// Its own usage, without that of the task's other sessions.
    pub usage: Usage,
}
