//! What servers offer and return, as the rest of the program sees it.

use std::time::Duration;

use serde_json::Value;

use crate::output::weight;

/// A tool as a server describes it, checked, and in a form that model APIs accept.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name on the server.
    pub name: String,
    /// What it does; capped.
    pub description: String,
    /// JSON Schema of its arguments, without what model APIs refuse.
    pub input_schema: Value,
    /// JSON Schema of its structured results, as the server gave it.
    pub output_schema: Option<Value>,
    /// Hints such as `readOnlyHint`. They are the server's own claims, so never a reason to trust it.
    pub annotations: Value,
}

/// Something that can be read, or a template of such things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// What to read it by; of a template, an RFC 6570 URI template.
    pub uri: String,
    /// For people.
    pub name: String,
    /// What it is; may be empty.
    pub description: String,
    /// Its type, if the server names one.
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

/// All that a server offers. Each list is sorted, so that equal offers are equal values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// By name.
    pub tools: Vec<Tool>,
    /// By URI.
    pub resources: Vec<Resource>,
    /// By URI template.
    pub templates: Vec<Resource>,
    /// By name.
    pub prompts: Vec<Prompt>,
    /// Entries that were left out, each with the reason, for a person:
    /// `tool "x": its inputSchema is not an object`.
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
        let texts = |texts: &[&str]| 64 + texts.iter().map(|text| text.len()).sum::<usize>();
        let tools = tools.iter().map(|it| {
            let output = it.output_schema.as_ref().map_or(0, weight);
            let schemas = weight(&it.input_schema) + output + weight(&it.annotations);
            texts(&[&it.name, &it.description]) + schemas
        });
        let resources = resources.iter().chain(templates);
        let resources = resources.map(|it| texts(&[&it.uri, &it.name, &it.description]));
        let prompts = prompts.iter().map(|it| {
            let arguments = it.arguments.iter();
            let arguments = arguments.map(|it| texts(&[&it.name, &it.description]));
            texts(&[&it.name, &it.description]) + arguments.sum::<usize>()
        });
        let left_out = left_out.iter().map(String::len);
        tools.chain(resources).chain(prompts).chain(left_out).sum()
    }
}

/// What a call returned, as the model gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// All of the result as text, capped.
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

/// What a server says of itself, and how it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Its own name for itself, shortened; empty where it gives none.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// The revision that was agreed on, e.g. `2025-11-25`.
    pub protocol: String,
    /// Its era.
    pub era: Era,
    /// What it declares of `tools`, `resources`, `prompts`, `logging`, `completions`.
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
    /// For one request in all, however much progress it reports.
    pub total: Duration,
    /// Bytes of one line (or event) from the server. A longer one ends the connection. A body of JSON
    /// over HTTP is bounded by 16 MiB.
    pub max_line: usize,
    /// Bytes of one call's text: the start and the end are kept.
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
