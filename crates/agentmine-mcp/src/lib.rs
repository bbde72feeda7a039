//! The MCP client manager: connect to a server over a byte stream, list its tools, call them, cap
//! what comes back.
//!
//! Servers are hostile: start, list and call have time limits, lines have a length limit, and a
//! server that ends takes only its own tools with it.

use std::time::Duration;

use serde_json::Value;

/// Why a server did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// It did not come up: no answer, not the protocol, ended at once.
    #[error("MCP server {server:?} could not be connected: {detail}")]
    Connection { server: String, detail: String },
    /// It broke the protocol, or ended.
    #[error("communication with MCP server {server:?} failed: {detail}")]
    Protocol { server: String, detail: String },
    /// It did not answer in time.
    #[error("MCP server {server:?} did not answer {what} within {} s", after.as_secs())]
    Timeout {
        server: String,
        what: String,
        after: Duration,
    },
}

/// A tool as a server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name on the server.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// What a call gave, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// All text of the result, capped.
    pub text: String,
    /// Whether the tool failed.
    pub is_error: bool,
}

// To be provided:
//   pub struct Limits { start: Duration, call: Duration, max_line: usize, max_output: usize } with Default
//   pub struct Client; Client::connect(server_name, stream: AsyncRead+AsyncWrite, Limits) -> Result<Client, McpError>
//   client.tools() -> &[Tool]; client.call(tool, arguments: Value object) -> Result<ToolOutput, McpError>
//   client.server_info() -> (name, version); client.closed() -> bool; client.shutdown()
//   pub fn wire_names(&[(server, tool)]) -> table of wire name <-> (server, tool), as DESIGN.md §9
