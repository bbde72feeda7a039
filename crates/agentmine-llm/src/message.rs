//! The conversation, in no provider's wire format.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What an API wants back as it is with the conversation, in its own form: reasoning and its signatures. Without it
/// some servers refuse the next request.
pub type Extra = Map<String, Value>;

/// One message of the conversation. Messages are appended and never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// The system prompt.
    System {
        /// Text.
        text: String,
    },
    /// The task, or a message from the worker.
    User {
        /// Text.
        text: String,
    },
    /// A reply of the model.
    Assistant(ModelReply),
    /// The result of a tool call.
    Tool {
        /// The call's id.
        call_id: String,
        /// The wire name of the tool.
        name: String,
        /// The text for the model.
        text: String,
        /// Whether the tool failed.
        is_error: bool,
    },
}

impl Message {
    /// Whether `test` holds for one of the texts to which [`Self::redacted`] applies.
    #[must_use]
    pub fn any_text(&self, test: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Self::System { text } | Self::User { text } => test(text),
            Self::Assistant(ModelReply {
                text,
                calls,
                stop: _,
                extra,
            }) => {
                let in_call = |call: &ToolCall| {
                    let ToolCall {
                        id,
                        name,
                        arguments,
                        extra,
                    } = call;
                    test(id) || test(name) || test(arguments) || any_in(extra, test)
                };
                test(text) || calls.iter().any(in_call) || any_in(extra, test)
            }
            Self::Tool {
                call_id,
                name,
                text,
                is_error: _,
            } => test(call_id) || test(name) || test(text),
        }
    }

    /// The same message with `redact` applied to every text.
    #[must_use]
    pub fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        match self {
            Self::System { text } => Self::System { text: redact(text) },
            Self::User { text } => Self::User { text: redact(text) },
            Self::Assistant(reply) => Self::Assistant(reply.redacted(redact)),
            Self::Tool {
                call_id,
                name,
                text,
                is_error,
            } => Self::Tool {
                call_id: redact(call_id),
                name: redact(name),
                text: redact(text),
                is_error,
            },
        }
    }
}

/// One reply of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// Text; may be empty.
    #[serde(default)]
    pub text: String,
    /// The tool calls it asks for, in order.
    #[serde(default)]
    pub calls: Vec<ToolCall>,
    /// Why it ended.
    #[serde(default)]
    pub stop: Stop,
    /// What the API wants back with it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Extra,
}

impl ModelReply {
    /// The same reply with `redact` applied to every text.
    #[must_use]
    pub fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            text,
            calls,
            stop,
            extra,
        } = self;
        let calls = calls.into_iter().map(|call| {
            let ToolCall {
                id,
                name,
                arguments,
                extra,
            } = call;
            ToolCall {
                id: redact(id),
                name: redact(name),
                arguments: redact(arguments),
                extra: redacted_extra(extra, redact),
            }
        });
        Self {
            text: redact(text),
            calls: calls.collect(),
            stop,
            extra: redacted_extra(extra, redact),
        }
    }
}

fn any_in(extra: &Extra, test: &dyn Fn(&str) -> bool) -> bool {
    extra.values().any(|value| any_in_value(value, test))
}

fn any_in_value(value: &Value, test: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => test(text),
        Value::Array(values) => values.iter().any(|value| any_in_value(value, test)),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| test(name) || any_in_value(value, test)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn redacted_extra(extra: Extra, redact: &dyn Fn(String) -> String) -> Extra {
    extra
        .into_iter()
        .map(|(name, value)| (redact(name), redacted_value(value, redact)))
        .collect()
}

fn redacted_value(value: Value, redact: &dyn Fn(String) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(redact(text)),
        Value::Array(values) => {
            let values = values.into_iter();
            values.map(|value| redacted_value(value, redact)).collect()
        }
        Value::Object(members) => Value::Object(redacted_extra(members, redact)),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model ended its turn.
    #[default]
    EndTurn,
    /// It waits for the results of tools.
    ToolCalls,
    /// It reached the limit of tokens: text and the last call may be cut.
    Length,
    /// It was cut off where the conversation had filled the model's context window.
    WindowFull,
    /// The provider's content filter ended it.
    Filtered,
}

/// One tool call that the model asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call; a generated one if the provider gave none. Unique in a reply.
    pub id: String,
    /// The wire name of the tool.
    pub name: String,
    /// The arguments as the model wrote them, which may be anything. The agent loop parses them.
    pub arguments: String,
    /// What the API wants back with it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Extra,
}

/// A tool that is offered to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Wire name, `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
}
