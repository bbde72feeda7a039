//! MCP servers: the file that lists the operator's, and what servers may do in a session.
//!
//! The servers themselves are in `mcp_config.json` (spec 002 §2), which other clients write too.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// MCP servers (spec 002 §2; the keys are not in the specification).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mcp {
    /// Start the servers in the files. `AGENTMINE_MCP_ENABLED` overrides. Only
    /// `text_editor_mcp.enabled` controls the text editor.
    pub enabled: bool,
    /// The operator's file. Default: `~/.agentmine/mcp_config.json`. It need not exist.
    /// `AGENTMINE_MCP_CONFIG` overrides. Its servers run on the worker, in the folder of the file; those
    /// with `"sandbox": true` run in the task's sandbox.
    pub config_file: Option<PathBuf>,
    /// Also start the servers in the repository's `.agentmine/mcp_config.json`, as of the commit that the
    /// work begins from. They run only in the task's sandbox. `AGENTMINE_MCP_REPOSITORY_SERVERS`
    /// overrides.
    pub repository_servers: bool,
    /// What happens to a tool whose description changes during the session.
    pub changed_descriptions: ChangedDescriptions,
    /// How often a server is restarted after crashes before it stays stopped. One with a `url` is also tried again
    /// later, unless this is 0.
    pub max_restarts: u32,
    /// Timeout in seconds of a server's start: process, connection and first lists. The first start of `npx`, `uvx` or
    /// `docker run` also downloads the server. A session begins only when each server is ready or has failed.
    pub start_timeout_seconds: u64,
    /// Bytes of one result of a server, or of the text editor, that the model gets. A longer one is cut
    /// between lines, with a note of what is omitted.
    pub max_output_size: usize,
    /// Timeout of one call in seconds, regardless of the progress that the server reports.
    pub total_timeout_seconds: u64,
    /// Tools that are offered, as `server:tool`; `*` matches any text. Built-in tools are not affected.
    pub allowed_tools: Vec<String>,
    /// Tools that are not offered, even if `allowed_tools` matches them.
    pub denied_tools: Vec<String>,
    /// Limits for servers with the capability `sampling`.
    pub sampling: SamplingConfig,
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            enabled: true,
            config_file: None,
            repository_servers: true,
            changed_descriptions: ChangedDescriptions::Refuse,
            max_restarts: 3,
            start_timeout_seconds: 30,
            max_output_size: 49_152,
            total_timeout_seconds: 600,
            allowed_tools: vec!["*".into()],
            denied_tools: Vec::new(),
            sampling: SamplingConfig::default(),
        }
    }
}

/// What happens to a tool whose description changes during the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangedDescriptions {
    /// It is no longer offered; the transcript records the change.
    Refuse,
    /// It is offered with its new description; the transcript records the change.
    Record,
}

/// Limits on the servers' use of the model, for all servers of a session together. Their use also
/// counts toward the limits of `agent`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingConfig {
    /// Requests in one session; 0 refuses all. A repository's servers are always refused.
    pub max_requests: u32,
    /// Tokens in one session, input and output. Checked before each request: the last one may exceed
    /// it.
    pub max_tokens: u64,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            max_requests: 20,
            max_tokens: 100_000,
        }
    }
}

/// The operator's file, in the home folder.
const USER_FILE: &str = ".agentmine/mcp_config.json";

impl Mcp {
    /// Fills in the default of the operator's file, and replaces `~` by the home folder.
    pub(super) fn complete(&mut self, home: Option<&str>) {
        let home = home.map(Path::new).filter(|home| home.is_absolute());
        self.config_file = match (self.config_file.take(), home) {
            (None, home) => home.map(|home| home.join(USER_FILE)),
            (Some(file), Some(home)) => Some(match file.strip_prefix("~") {
                Ok(rest) => home.join(rest),
                Err(_) => file,
            }),
            (file, None) => file,
        };
    }
}
