//! Errors of servers, in the kinds of the specification (spec 002 §4.3). Faults of the configuration, the
//! fifth kind, are [`ConfigFault`]s.
//!
//! `Display` is the message of spec 002 §4.1; [`McpError::hint`] is the next step for a person;
//! [`McpError::for_model`] is the error for the model. A server's own words in it are shortened, and it
//! contains no secrets.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

/// A failure of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// The server's process.
    #[error("MCP server '{server}' {what}: {detail}")]
    Process {
        /// The server's configured name.
        server: String,
        /// What happened to it.
        what: ProcessFault,
        /// How: not found, exit code, signal.
        detail: String,
        /// The end of its stderr, capped.
        stderr: String,
    },
    /// It could not be connected: no answer within the start limit, not the protocol, refused.
    #[error("the connection to MCP server '{server}' failed: {detail}")]
    Connection {
        /// The server's configured name.
        server: String,
        /// What happened.
        detail: String,
    },
    /// It broke the protocol after it was connected, or the connection ended.
    #[error("communication with MCP server '{server}' failed: {detail}")]
    Protocol {
        /// The server's configured name.
        server: String,
        /// What happened.
        detail: String,
    },
    /// The server answered with an error, or not in time.
    #[error("MCP tool '{server}:{tool}' failed: {fault}")]
    ToolExecution {
        /// The server's configured name.
        server: String,
        /// The tool, resource or prompt that was requested.
        tool: String,
        /// What happened.
        fault: CallFault,
    },
}

/// A fault of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigFault {
    /// The file.
    pub file: PathBuf,
    /// From 1, if known.
    pub line: Option<usize>,
    /// Such as `mcpServers.github.command.1`; empty for the file as a whole.
    pub field: String,
    /// What was seen, and what was expected.
    pub detail: String,
    /// The server that is skipped because of it, if any.
    pub server: Option<String>,
}

impl std::fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// What happened to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProcessFault {
    /// It could not be started, or ended before it was connected.
    #[error("could not be started")]
    Start,
    /// It ended without being asked to.
    #[error("ended unexpectedly")]
    Ended,
    /// It crashed too often and is not restarted.
    #[error("was given up")]
    GivenUp,
}

/// Why a request failed on a server that runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// No answer in time. The call was cancelled on the server.
    #[error("no answer within {} s", after.as_secs_f64())]
    Timeout {
        /// The limit that passed.
        after: Duration,
    },
    /// There is no such server, or no such tool on it, or it is not running.
    #[error("{0}")]
    Unavailable(String),
}

impl McpError {
    /// The error's code for the model.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Process { .. } => "mcp_process_error",
            Self::Connection { .. } => "mcp_connection_error",
            Self::Protocol { .. } => "mcp_protocol_error",
            Self::ToolExecution { .. } => "mcp_tool_execution_error",
        }
    }

    /// The next step, for a person.
    #[must_use]
    pub fn hint(&self) -> String {
        let (Self::Process { server, .. }
        | Self::Connection { server, .. }
        | Self::Protocol { server, .. }
        | Self::ToolExecution { server, .. }) = self;
        let doctor = format!("`agentmine mcp doctor {server}`");
        match self {
            Self::Process {
                what: ProcessFault::Start,
                ..
            } => format!("check `command` of {server:?}; {doctor} shows its stderr"),
            Self::Process { .. } | Self::Protocol { .. } => {
                format!("{doctor} starts it and shows its stderr")
            }
            Self::Connection { .. } => {
                format!("check that {server:?} speaks MCP; {doctor} shows how it starts")
            }
            Self::ToolExecution { .. } => format!(
                "`agentmine mcp tools {server}` shows its tools; a longer `timeoutSeconds` gives it more time"
            ),
        }
    }

    /// The error for the model: `{"status":"error","error":{"code":…,"message":…}}` (spec 002 §4.1).
    #[must_use]
    pub fn for_model(&self) -> Value {
        json!({ "status": "error", "error": { "code": self.code(), "message": self.to_string() } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_gets_code_and_message_and_nothing_of_stderr() {
        let error = McpError::Process {
            server: "docs".into(),
            what: ProcessFault::Ended,
            detail: "exit code 3".into(),
            stderr: "hostile words".into(),
        };
        let expected = json!({
            "status": "error",
            "error": {
                "code": "mcp_process_error",
                "message": "MCP server 'docs' ended unexpectedly: exit code 3",
            },
        });
        assert_eq!(error.for_model(), expected);
        assert!(error.hint().contains("agentmine mcp doctor docs"));
    }

    #[test]
    fn fault_of_a_file_names_its_place() {
        let fault = ConfigFault {
            file: "mcp_config.json".into(),
            line: Some(7),
            field: "mcpServers.a.command".into(),
            detail: "a number, where a list was expected".into(),
            server: Some("a".into()),
        };
        assert_eq!(
            fault.to_string(),
            "mcp_config.json:7: mcpServers.a.command: a number, where a list was expected"
        );
    }
}
