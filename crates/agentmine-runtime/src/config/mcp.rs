//! MCP servers: which file names the operator's, and what servers may do to a session.
//!
//! The servers themselves stand in `mcp_config.json` (spec 002 §2), since other clients write that
//! file too.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::schema::Config;

/// MCP servers (spec 002 §2; the keys are not in the specification).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mcp {
    /// Start the servers that the files name. `AGENTMINE_MCP_ENABLED` overrides. The text editor is
    /// switched by `text_editor_mcp.enabled` alone.
    pub enabled: bool,
    /// The operator's file; absent: `~/.agentmine/mcp_config.json`. A missing file names no server.
    /// `AGENTMINE_MCP_CONFIG` overrides. Its servers run on the worker, in the folder of the file, or
    /// in the task's sandbox where they say `"sandbox": true`.
    pub config_file: Option<PathBuf>,
    /// Also start what the repository's own `.agentmine/mcp_config.json` names, as it is at the
    /// commit that the work begins from. Such servers run in the task's sandbox and nowhere else.
    /// `AGENTMINE_MCP_REPOSITORY_SERVERS` overrides.
    pub repository_servers: bool,
    /// What becomes of a tool whose description changes while the session runs.
    pub changed_descriptions: ChangedDescriptions,
    /// Times that a server is started again after a crash, before it is given up.
    pub max_restarts: u32,
    /// Bytes of one result that the model is told, head and tail kept.
    pub max_output_size: usize,
    /// Seconds for one call in all, however much progress the server tells.
    pub total_timeout_seconds: u64,
    /// Tools that are offered, as `server:tool`; `*` stands for any text. The built-in tools are not
    /// meant.
    pub allowed_tools: Vec<String>,
    /// Tools that are not offered, whatever `allowed_tools` says.
    pub denied_tools: Vec<String>,
    /// What servers with the capability `sampling` may use of the model.
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
            max_output_size: 49_152,
            total_timeout_seconds: 600,
            allowed_tools: vec!["*".into()],
            denied_tools: Vec::new(),
            sampling: SamplingConfig::default(),
        }
    }
}

/// What becomes of a tool whose description changes while the session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangedDescriptions {
    /// It is no longer offered, and the transcript says so.
    Refuse,
    /// It is offered as it is now, and the transcript says so.
    Record,
}

/// Limits of what servers may use of the model, all servers of a session together. It is counted
/// into the limits of `agent` too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingConfig {
    /// Requests of one session; 0 refuses them all. Not for a repository's own servers, which are
    /// always refused.
    pub max_requests: u32,
    /// Tokens of one session, input and output. Checked before each request, so that the last one
    /// may go over it.
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

/// Where the operator's file is unless another is named.
const USER_FILE: &str = ".agentmine/mcp_config.json";

impl Config {
    /// Names the operator's file where nothing else does, and puts the home folder in place of `~`.
    pub(super) fn with_mcp_file(mut self, home: Option<&str>) -> Self {
        let home = home.map(Path::new).filter(|home| home.is_absolute());
        self.mcp.config_file = match (self.mcp.config_file.take(), home) {
            (None, home) => home.map(|home| home.join(USER_FILE)),
            (Some(file), Some(home)) => Some(match file.strip_prefix("~") {
                Ok(rest) => home.join(rest),
                Err(_) => file,
            }),
            (file, None) => file,
        };
        self
    }
}
