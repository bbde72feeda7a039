//! The metrics that servers move.

use std::time::Duration;

use crate::config::{Owner, ServerConfig};

/// The metrics of one server. Repositories choose names freely, so theirs share one label.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    server: String,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// The tool or the server said that it failed.
    ToolError,
    Timeout,
    /// It could not be made.
    Unavailable,
    /// The server ended or broke the protocol meanwhile.
    Broken,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ToolError => "tool_error",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Broken => "broken",
        }
    }
}

impl Metrics {
    pub(crate) fn of(config: &ServerConfig) -> Self {
        let server = match config.origin.owner {
            Owner::Operator => config.name.clone(),
            Owner::Repository => "(repository)".to_owned(),
        };
        Self { server }
    }

    pub(crate) fn entered(&self, state: &'static str) {
        metrics::gauge!("agentmine_mcp_servers", "state" => state).increment(1.0);
    }

    pub(crate) fn left(&self, state: &'static str) {
        metrics::gauge!("agentmine_mcp_servers", "state" => state).decrement(1.0);
    }

    pub(crate) fn restarted(&self) {
        metrics::counter!("agentmine_mcp_restarts_total", "server" => self.server.clone())
            .increment(1);
    }

    pub(crate) fn called(&self, outcome: Outcome, took: Duration) {
        let server = self.server.clone();
        metrics::counter!("agentmine_mcp_calls_total", "server" => server.clone(), "outcome" => outcome.label())
            .increment(1);
        metrics::histogram!("agentmine_mcp_call_duration_seconds", "server" => server)
            .record(took.as_secs_f64());
    }
}

/// Describes them for `/metrics`. May be called again.
pub(super) fn describe() {
    metrics::describe_gauge!("agentmine_mcp_servers", "MCP servers, by state.");
    metrics::describe_counter!(
        "agentmine_mcp_restarts_total",
        "MCP servers that were started again after a crash, by server."
    );
    metrics::describe_counter!(
        "agentmine_mcp_calls_total",
        "Calls, reads and prompts of MCP servers, by server and outcome."
    );
    metrics::describe_histogram!(
        "agentmine_mcp_call_duration_seconds",
        metrics::Unit::Seconds,
        "Time of one call, waiting for a restart included, by server."
    );
}
