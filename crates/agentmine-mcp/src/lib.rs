//! The MCP client manager: connect to a server over a byte stream, list its tools, call them, cap
//! what comes back.
//!
//! Servers are hostile: start, list and call have time limits, lines have a length limit, and a
//! server that ends takes only its own tools with it. What a server writes reaches the model only as
//! text of bounded length, and never a log.
//!
//! [`Client`] is one connection; [`WireTable`] gives the tools of all servers names that model APIs
//! accept.

mod client;
mod guard;
mod listing;
mod names;
mod output;

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;

pub use client::Client;
pub use names::{WireTable, wire_names};

/// Why a server did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// It did not come up: no answer, not the protocol, ended at once.
    #[error("MCP server {server:?} could not be connected: {detail}")]
    Connection {
        /// The server's configured name.
        server: String,
        /// What happened.
        detail: String,
    },
    /// It broke the protocol, or ended.
    #[error("communication with MCP server {server:?} failed: {detail}")]
    Protocol {
        /// The server's configured name.
        server: String,
        /// What happened.
        detail: String,
    },
    /// It did not answer in time.
    #[error("MCP server {server:?} did not answer {what} within {} s", after.as_secs())]
    Timeout {
        /// The server's configured name.
        server: String,
        /// What was asked.
        what: String,
        /// The time limit.
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

/// How far a server is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For the handshake and the listing of tools together.
    pub start: Duration,
    /// For one call.
    pub call: Duration,
    /// Bytes of one line from the server. A longer one ends the connection.
    pub max_line: usize,
    /// Bytes of one call's text: the first and the last half are kept.
    pub max_output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            call: Duration::from_secs(300),
            max_line: 2 * 1024 * 1024,
            max_output: 100 * 1024,
        }
    }
}
