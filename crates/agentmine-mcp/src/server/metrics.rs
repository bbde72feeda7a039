//! The metrics of MCP servers.

use std::time::Duration;

use super::status::ServerState;
use crate::config::{Owner, ServerConfig};
use crate::{CallFault, McpError, ToolOutput};

/// The result of a call.
pub(crate) type CallResult = Result<ToolOutput, McpError>;

/// The metrics of one server. Repositories choose names freely, so theirs share one label.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    server: String,
}

impl Metrics {
    pub(crate) fn of(config: &ServerConfig) -> Self {
        let server = match config.origin.owner {
            Owner::Operator => config.name.clone(),
            Owner::Repository => "(repository)".to_owned(),
        };
        let metrics = Self { server };
        metrics.begin_at_zero();
        metrics
    }

    /// So that a first restart or failure is an increase.
    fn begin_at_zero(&self) {
        let server = &self.server;
        metrics::counter!("agentmine_mcp_restarts_total", "server" => server.clone()).increment(0);
        for outcome in OUTCOMES {
            metrics::counter!("agentmine_mcp_calls_total", "server" => server.clone(), "outcome" => outcome)
                .increment(0);
        }
    }

    pub(crate) fn entered(&self, state: &ServerState) {
        metrics::gauge!("agentmine_mcp_servers", "state" => state.word()).increment(1.0);
    }

    pub(crate) fn left(&self, state: &ServerState) {
        metrics::gauge!("agentmine_mcp_servers", "state" => state.word()).decrement(1.0);
    }

    pub(crate) fn restarted(&self) {
        metrics::counter!("agentmine_mcp_restarts_total", "server" => self.server.clone())
            .increment(1);
    }

    pub(crate) fn called(&self, result: &CallResult, took: Duration) {
        let server = self.server.clone();
        metrics::counter!("agentmine_mcp_calls_total", "server" => server.clone(), "outcome" => outcome(result))
            .increment(1);
        metrics::histogram!("agentmine_mcp_call_duration_seconds", "server" => server)
            .record(took.as_secs_f64());
    }
}

/// What [`outcome`] returns.
const OUTCOMES: [&str; 5] = ["success", "tool_error", "timeout", "unavailable", "broken"];

fn outcome(result: &CallResult) -> &'static str {
    match result {
        Ok(output) if output.is_error => "tool_error",
        Ok(_) => "success",
        Err(McpError::ToolExecution { fault, .. }) => match fault {
            CallFault::Timeout { .. } => "timeout",
            CallFault::Unavailable(_) => "unavailable",
        },
        // The server ended or violated the protocol in the meantime.
        Err(McpError::Process { .. } | McpError::Connection { .. } | McpError::Protocol { .. }) => {
            "broken"
        }
    }
}

/// Describes them for `/metrics`. May be called again.
pub(crate) fn describe() {
    metrics::describe_gauge!("agentmine_mcp_servers", "MCP servers, by state.");
    metrics::describe_counter!(
        "agentmine_mcp_restarts_total",
        "Restarts of MCP servers after a crash, by server."
    );
    metrics::describe_counter!(
        "agentmine_mcp_calls_total",
        "Calls, reads and prompts of MCP servers, by server and outcome."
    );
    metrics::describe_histogram!(
        "agentmine_mcp_call_duration_seconds",
        metrics::Unit::Seconds,
        "Duration of a call, including the wait for a restart, by server."
    );
}
