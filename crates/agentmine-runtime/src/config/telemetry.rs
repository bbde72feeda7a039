//! The sections about what a process says of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

/// Health and metrics.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Address that serves `/live`, `/ready` and `/metrics`, e.g. `127.0.0.1:9464`; port 0 selects a free
    /// port. Default: none.
    pub listen: Option<String>,
}

/// Traces, for a collector that speaks OTLP over HTTP.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Traces {
    /// Base URL of the collector, e.g. `http://127.0.0.1:4318`; `/v1/traces` is added. Without TLS: the collector is on the
    /// same machine or in the same cluster. Default: no traces.
    pub endpoint: Option<Url>,
}

/// Logs, written to stderr.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `text` or `json`.
    pub format: LogFormat,
    /// A level, or directives such as `info,agentmine_queue=debug`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: "info".into(),
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}
