//! One worker's run of a task, under one lease epoch.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

named!(
    /// What became of the definition of done, as the client of an external session reports it (spec 003, `session_end`).
    DodResult, "dodResult" {
        /// Not decided yet.
        Pending = "pending",
        /// The work was merged.
        Merged = "merged",
        /// A check took too long.
        Timeout = "timeout",
        /// A check failed.
        Error = "error",
    }
);

/// What is known of a session that a client outside of the fleet runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct External {
    /// The client: `claude-code`, `codex`, `gemini-cli`, or another name.
    pub client: String,
    /// The agent's name.
    pub agent: String,
    /// The folder of its git work tree, if one was made for it.
    pub worktree: Option<String>,
    /// The client's exit code, once it has ended.
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// What became of the definition of done.
    pub dod_result: Option<DodResult>,
    /// What the client names as its results.
    pub artifacts: Vec<Value>,
    /// What the client reports as its error.
    pub error: Option<Value>,
}

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
    /// What is known of it if a client outside of the fleet runs it.
    pub external: Option<External>,
}
