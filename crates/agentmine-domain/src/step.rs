//! The journal: what happened in a session, in order, never rewritten.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

use crate::ids::{Epoch, Seq};
use crate::names::{UnknownName, named};

named!(
    /// What a step records.
    StepKind, "step kind" {
        /// The text that opened or continued the conversation: the task, a correction.
        Prompt = "prompt",
        /// A reply of the model, with the calls it asks for. A call in it without a later
        /// `tool_result` was interrupted: its outcome is unknown.
        ModelReply = "model_reply",
        /// The result of one tool call.
        ToolResult = "tool_result",
        /// A phase began.
        Phase = "phase",
        /// A fact the worker measured: a check's exit code, the pushed commit.
        Fact = "fact",
        /// Something a reader of the transcript should know.
        Note = "note",
    }
);

/// One recorded event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its place in the task's journal, from 1, over all sessions of the task.
    pub seq: Seq,
    /// Under which lease it was recorded.
    pub epoch: Epoch,
    /// What it records.
    pub kind: StepKind,
    /// The content; its shape belongs to whoever writes the kind.
    pub payload: Value,
    /// How long the event took, in milliseconds.
    pub duration_ms: u64,
    /// When it was recorded.
    pub at: DateTime<Utc>,
}
