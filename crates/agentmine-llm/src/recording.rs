//! Recorded replies: a JSON Lines file, one object for each reply, in the order of the conversation.
//!
//! Besides the reply itself (`text`, `calls`, `stop`) a line may hold `usage`; `expect`, a text that
//! the last message must contain, so that a recording made for another conversation is noticed; and
//! `delay_ms`. Written by hand, a call needs no `id`, and its `arguments` may be an object.

use std::path::Path;

use agentmine_domain::Usage;
use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{Message, ModelReply, Stop, ToolCall};

/// Bytes of a recording at most.
const MAX_FILE: u64 = 256 << 20;

/// One line of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// What the last message of the conversation must contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
    /// Text of the reply.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Calls of the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RecordedCall>,
    /// Why it ended; absent: what the calls say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// What it cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Milliseconds to wait before the reply is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// A call in a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedCall {
    /// Absent: made up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The wire name of the tool.
    pub name: String,
    /// A string is taken as it is, anything else as the JSON it is.
    #[serde(default, deserialize_with = "arguments")]
    pub arguments: String,
}

fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        value => value.to_string(),
    })
}

impl Recorded {
    /// The line for a reply that was seen.
    #[must_use]
    pub fn new(reply: &ModelReply, usage: Option<Usage>) -> Self {
        let ModelReply { text, calls, stop } = reply;
        Self {
            text: text.clone(),
            calls: calls
                .iter()
                .map(|call| RecordedCall {
                    id: Some(call.id.clone()),
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                })
                .collect(),
            stop: Some(*stop),
            usage,
            ..Self::default()
        }
    }

    /// The reply at place `turn` of the conversation, which goes into the ids that are made up.
    #[must_use]
    pub fn reply(&self, turn: usize) -> ModelReply {
        let calls: Vec<_> = self
            .calls
            .iter()
            .enumerate()
            .map(|(n, call)| ToolCall {
                id: call
                    .id
                    .clone()
                    .unwrap_or_else(|| format!("call_{turn}_{n}")),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            })
            .collect();
        let stop = self.stop.unwrap_or(match calls.is_empty() {
            true => Stop::EndTurn,
            false => Stop::ToolCalls,
        });
        ModelReply {
            text: self.text.clone(),
            calls,
            stop,
        }
    }
}

/// Reads a recording's file.
///
/// # Errors
/// Names the file, and the line where one cannot be read.
pub fn read(path: &Path) -> anyhow::Result<Vec<Recorded>> {
    let shown = path.display();
    let size = std::fs::metadata(path)
        .with_context(|| format!("the recording {shown} cannot be read"))?
        .len();
    if size > MAX_FILE {
        bail!("the recording {shown} has {size} bytes; at most {MAX_FILE} are read");
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the recording {shown} cannot be read"))?;
    parse(&text, &shown.to_string())
}

/// Reads a recording's text. `source` names it in errors.
///
/// # Errors
/// Names the source and the line.
pub fn parse(text: &str, source: &str) -> anyhow::Result<Vec<Recorded>> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(n, line)| {
            serde_json::from_str(line)
                .with_context(|| format!("{source}:{}: not a recorded reply", n + 1))
        })
        .collect()
}

/// The recording of a conversation that was recorded otherwise, e.g. as a session's steps.
#[must_use]
pub fn from_messages(messages: &[Message]) -> Vec<Recorded> {
    messages
        .iter()
        .filter_map(|message| match message {
            Message::Assistant(reply) => Some(Recorded::new(reply, None)),
            Message::System { .. } | Message::User { .. } | Message::Tool { .. } => None,
        })
        .collect()
}

/// The lines as the text of a file.
///
/// # Errors
/// None that these types can cause; it is serde's.
pub fn to_text(recording: &[Recorded]) -> serde_json::Result<String> {
    recording
        .iter()
        .map(|line| Ok(serde_json::to_string(line)? + "\n"))
        .collect()
}
