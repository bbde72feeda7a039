//! What servers offer and answer, as the rest of the program sees it.

use std::time::Duration;

use serde_json::Value;

use crate::output::weight;

/// A tool as a server describes it, checked and cleaned.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name on the server.
    pub name: String,
    /// What it does; capped.
    pub description: String,
    /// JSON Schema of its arguments, cleaned of what model APIs refuse.
    pub input_schema: Value,
    /// JSON Schema of its structured results, as the server gave it.
    pub output_schema: Option<Value>,
    /// Hints such as `readOnlyHint`; a server's own word, so never a reason to trust.
    pub annotations: Value,
}

/// Something that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// What to read it by.
    pub uri: String,
    /// For people.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Its type, where told.
    pub mime_type: Option<String>,
}

/// A family of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceTemplate {
    /// An RFC 6570 template.
    pub uri_template: String,
    /// For people.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Type of its resources, where told.
    pub mime_type: Option<String>,
}

/// A prompt that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// What to get it by.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Its arguments.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Whether it must be given.
    pub required: bool,
}

/// All that a server offers. Each list is sorted, so that the same offer is always the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// By name.
    pub tools: Vec<Tool>,
    /// By URI.
    pub resources: Vec<Resource>,
    /// By template.
    pub templates: Vec<ResourceTemplate>,
    /// By name.
    pub prompts: Vec<Prompt>,
    /// Entries that were left out, each with why, for a person: `tool "x": its inputSchema is no object`.
    pub left_out: Vec<String>,
}

impl Offer {
    /// About how many bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let Self {
            tools,
            resources,
            templates,
            prompts,
            left_out,
        } = self;
        let tools = tools.iter().map(|tool| {
            let output = tool.output_schema.as_ref().map_or(0, weight);
            tool.name.len()
                + tool.description.len()
                + weight(&tool.input_schema)
                + output
                + weight(&tool.annotations)
        });
        let words = |words: [&str; 3]| 64 + words.iter().map(|word| word.len()).sum::<usize>();
        let resources = resources
            .iter()
            .map(|it| words([&it.uri, &it.name, &it.description]));
        let templates = templates
            .iter()
            .map(|it| words([&it.uri_template, &it.name, &it.description]));
        let prompts = prompts.iter().map(|it| {
            let arguments = it
                .arguments
                .iter()
                .map(|it| words([&it.name, &it.description, ""]));
            words([&it.name, &it.description, ""]) + arguments.sum::<usize>()
        });
        let left_out = left_out.iter().map(String::len);
        tools
            .chain(resources)
            .chain(templates)
            .chain(prompts)
            .chain(left_out)
            .sum()
    }
}

/// What a call gave, as the model is told.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// All of the result as text, capped.
    pub text: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// `structuredContent`, if there was one within the cap; for programs.
    pub structured: Option<Value>,
}

/// The protocol's era that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, up to 2025-11-25.
    Handshake,
    /// Stateless, from 2026-07-28.
    Stateless,
}

/// Who a server says it is, and how it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The name it gave itself; empty where it gave none. Shortened.
    pub name: String,
    /// The version it gave itself.
    pub version: String,
    /// What was agreed on, e.g. `2025-11-25`.
    pub protocol: String,
    /// Its era.
    pub era: Era,
    /// `tools`, `resources`, `prompts`, `logging`, `completions`: what it says it has.
    pub capabilities: Vec<String>,
    /// Its instructions for the model, capped; a server's own words.
    pub instructions: String,
}

/// How far a server is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpLimits {
    /// For process start, handshake and first listing together.
    pub start: Duration,
    /// For one request without progress.
    pub call: Duration,
    /// For one request in all, however much progress it tells.
    pub total: Duration,
    /// Bytes of one line (or event) from the server. A longer one ends the connection. A body of JSON
    /// over HTTP is bounded by 16 MiB.
    pub max_line: usize,
    /// Bytes of one call's text: the first and the last half are kept.
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
