//! What servers offer and return.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::text::weight;

/// A tool of a server, validated and in a form that model APIs accept.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Its name on the server.
    pub name: String,
    /// What it does; capped.
    pub description: String,
    /// JSON Schema of its arguments, as model APIs accept it.
    pub input_schema: Value,
    /// JSON Schema of its structured results, as the server gave it.
    pub output_schema: Option<Value>,
    /// Hints such as `readOnlyHint`. The server claims them, so they are no reason to trust it.
    pub annotations: Value,
}

/// A resource, or a template of resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Its URI; for a template, an RFC 6570 URI template.
    pub uri: String,
    /// For people.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Its type, if the server names one.
    pub mime_type: Option<String>,
}

/// A prompt that a server offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerPrompt {
    /// Its name on the server.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Its arguments.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Whether it must be given.
    pub required: bool,
}

/// Everything that a server offers. The lists are sorted, so equal offers are equal values.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Offer {
    /// By name.
    pub tools: Vec<Tool>,
    /// By URI.
    pub resources: Vec<Resource>,
    /// By URI template.
    pub templates: Vec<Resource>,
    /// By name.
    pub prompts: Vec<ServerPrompt>,
    /// Entries that were omitted, with the reason: `tool "x": its inputSchema is not an object`.
    pub left_out: Vec<String>,
}

impl Offer {
    /// Estimated bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        weight(&json!(self))
    }
}

/// The result of a call, as the model gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// The whole result as text, capped.
    pub text: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// `structuredContent`, if there was one within the cap; for programs.
    pub structured: Option<Value>,
}

/// The era of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, up to 2025-11-25.
    Handshake,
    /// Stateless, from 2026-07-28.
    Stateless,
}

/// The result of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The server's own name, shortened; empty if it has none.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// The revision that was agreed on, e.g. `2025-11-25`.
    pub protocol: String,
    /// Its era.
    pub era: Era,
}

/// The limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpLimits {
    /// For process start, handshake and first listing together.
    pub start: Duration,
    /// For one request without progress.
    pub call: Duration,
    /// For one request in total, regardless of progress.
    pub total: Duration,
    /// Bytes of one line (or event) from the server. A longer one ends the connection. A JSON body over HTTP
    /// is limited to 16 MiB.
    pub max_line: usize,
    /// Bytes of the text of one call. A longer one is cut between lines: its start and its end are kept.
    pub max_output: usize,
}

impl Default for McpLimits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            call: Duration::from_secs(30),
            total: Duration::from_secs(600),
            max_line: 8 * 1024 * 1024,
            max_output: 100 * 1024,
        }
    }
}
