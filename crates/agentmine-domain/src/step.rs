//! The rows of the journal: the events of a session, in order and append-only.

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
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
        /// A reply of the model with its tool calls. A call without a later `tool_result` was
        /// interrupted, and its outcome is unknown.
        ModelReply = "model_reply",
        /// The result of one tool call.
        ToolResult = "tool_result",
        /// A phase began.
        Phase = "phase",
        /// A fact that the worker recorded: the start of the work, the result of a measurement.
        Fact = "fact",
        /// A note for readers of the transcript.
        Note = "note",
    }
);

/// The encoded content of a step. Only `agentmine_agent::journal::Entry` encodes and decodes it;
/// the tool `session_logs` shortens its texts, and everything else passes it on unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepPayload(Value);

impl StepPayload {
    /// Encodes a value as JSON.
    ///
    /// # Errors
    /// Returns an error if the value cannot be JSON (a map with keys that are not strings).
    pub fn encode(value: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::to_value(value).map(Self)
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// Returns an error if the JSON does not match `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        T::deserialize(&self.0)
    }
}

impl fmt::Display for StepPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for StepPayload {
    type Err = serde_json::Error;

    fn from_str(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json).map(Self)
    }
}

/// One recorded event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The position in the task's journal, from 1, across all sessions of the task.
    pub seq: Seq,
    /// The epoch of the lease under which it was recorded.
    pub epoch: Epoch,
    /// The kind.
    pub kind: StepKind,
    /// The content.
    pub payload: StepPayload,
    /// How long the event took, in milliseconds.
    pub duration_ms: u64,
    /// When it was recorded.
    pub at: DateTime<Utc>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_survives_serialization_as_text() {
        let payload = StepPayload::encode(&[("a\u{0}", 1.5)]).unwrap();
        let read: StepPayload = payload.to_string().parse().unwrap();
        assert_eq!(read, payload);
        assert_eq!(
            read.decode::<Vec<(String, f64)>>().unwrap(),
            [("a\u{0}".to_owned(), 1.5)]
        );
        assert!(read.decode::<Vec<u8>>().is_err());
        assert!("{".parse::<StepPayload>().is_err());
    }
}
