//! Recorded replies: a JSON Lines file, one object for each reply, in the order of the conversation.
//!
//! Besides the reply itself (`text`, `calls`, `stop`) a line may hold `usage`, `delay_ms`, and `expect`:
//! a text that the last message must contain, to detect a recording of another conversation. A call
//! needs no `id`, and its `arguments` may be an object, which is easier to write by hand.

use std::path::Path;

use agentmine_domain::Usage;
use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::message::{ModelReply, Stop, ToolCall};

/// Bytes of a recording at most.
const MAX_FILE: u64 = 256 << 20;

/// One line of a recording.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// What the last message of the conversation must contain.
    #[serde(default)]
    pub expect: Option<String>,
    /// Text of the reply.
    #[serde(default)]
    pub text: String,
    /// Calls of the reply.
    #[serde(default)]
    pub calls: Vec<RecordedCall>,
    /// Why it ended. If absent, the presence of calls decides.
    #[serde(default)]
    pub stop: Option<Stop>,
    /// Its tokens and its cost.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Milliseconds to wait before the reply.
    #[serde(default)]
    pub delay_ms: Option<u64>,
}

/// A call in a recording.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedCall {
    /// If absent, one is generated.
    #[serde(default)]
    pub id: Option<String>,
    /// The wire name of the tool.
    pub name: String,
    /// A string is taken as it is, any other value as its JSON text.
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
    /// The reply at position `turn` of the conversation, which becomes part of generated ids.
    #[must_use]
    pub(crate) fn reply(&self, turn: usize) -> ModelReply {
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
                ..ToolCall::default()
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
            ..ModelReply::default()
        }
    }
}

/// Reads a recording's file.
///
/// # Errors
/// Names the file, and the line where one cannot be read.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Recorded>> {
    let shown = path.display();
    let size = std::fs::metadata(path)
        .with_context(|| format!("cannot read the recording {shown}"))?
        .len();
    if size > MAX_FILE {
        bail!("the recording {shown} has {size} bytes; at most {MAX_FILE} are read");
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the recording {shown}"))?;
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
