//! The sections of the sandbox and the tools.
//!
//! `command_executor` and `text_editor_mcp` keep the names and defaults of the specification
//! (spec 001 §10, spec 000 §8). Where a section has more keys than the specification names, the
//! extra ones say so in their comment.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::schema::Config;

impl Config {
    /// Fills in what a `mcp_server` section left out, from the defaults of its own section.
    pub(super) fn with_server_names(mut self) -> Self {
        fill(
            &mut self.command_executor.mcp_server,
            CommandExecutor::default().mcp_server,
        );
        fill(
            &mut self.text_editor_mcp.mcp_server,
            TextEditorMcp::default().mcp_server,
        );
        self
    }
}

fn fill(server: &mut McpServer, default: McpServer) {
    if server.name.is_empty() {
        server.name = default.name;
    }
    if server.command.is_empty() {
        server.command = default.command;
    }
}

/// A server process: its name and how it is started.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpServer {
    /// The server's name; absent: the section's own.
    pub name: String,
    /// Program and arguments; absent: the section's own.
    pub command: Vec<String>,
}

/// The sandbox and the command tool (spec 001 §10.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CommandExecutor {
    /// Offer the command tool to the model. `COMMAND_EXECUTOR_ENABLED` overrides.
    pub enabled: bool,
    /// Accepted for compatibility. Commands run through the sandbox's own guest, so nothing is
    /// started by this; `name` is the tool's prefix.
    pub mcp_server: McpServer,
    /// Which kind of sandbox (not in the specification).
    pub backend: BackendKind,
    /// Docker.
    pub docker: Docker,
    /// The local jail (not in the specification).
    pub local: LocalJail,
    /// Cloning.
    pub clone: CloneOptions,
    /// Commands.
    pub execution: Execution,
    /// Clearing what was left behind.
    pub cleanup: Cleanup,
}

impl Default for CommandExecutor {
    fn default() -> Self {
        Self {
            enabled: false,
            mcp_server: McpServer {
                name: "command-executor".into(),
                command: vec![
                    "npx".into(),
                    "@sunwood-ai-labs/command-executor-mcp-server".into(),
                ],
            },
            backend: BackendKind::default(),
            docker: Docker::default(),
            local: LocalJail::default(),
            clone: CloneOptions::default(),
            execution: Execution::default(),
            cleanup: Cleanup::default(),
        }
    }
}

/// Where a task's commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A Docker container.
    #[default]
    Docker,
    /// A jail on the worker's own machine.
    Local,
}

/// Docker (spec 001 §10.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Docker {
    /// The engine; `DOCKER_HOST` overrides. `unix://`, `tcp://`, `http://` or `ssh://`.
    pub host: Option<String>,
    /// The image. `EXECUTOR_BASE_IMAGE` overrides.
    pub base_image: String,
    /// Images that a repository's `.agentmine/config.yaml` may choose instead; `*` at the end
    /// matches any rest. Empty: none.
    pub allowed_images: Vec<String>,
    /// The OCI runtime: `runc`, `runsc` or `kata`. A missing one is refused, never replaced.
    pub runtime: Option<String>,
    /// User and group inside, as numbers. Not 0.
    pub user: String,
    /// Processes at most.
    pub pids_limit: i64,
    /// Seconds for one call of the engine's API (spec 001 §8.2).
    pub api_timeout_seconds: u64,
    /// Limits.
    pub resources: Resources,
    /// Network policy.
    pub network: Network,
}

impl Default for Docker {
    fn default() -> Self {
        Self {
            host: None,
            base_image: "coding-agent-executor:latest".into(),
            allowed_images: Vec::new(),
            runtime: None,
            user: "1000:1000".into(),
            pids_limit: 1024,
            api_timeout_seconds: 60,
            resources: Resources::default(),
            network: Network::default(),
        }
    }
}

/// Limits of a container.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// Cores. `EXECUTOR_CPU_LIMIT` overrides.
    pub cpu_limit: f64,
    /// Memory with swap, e.g. `4g`. `EXECUTOR_MEMORY_LIMIT` overrides.
    pub memory_limit: String,
    /// Size of `/workspace`, e.g. `10g`.
    pub disk_limit: String,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            cpu_limit: 2.0,
            memory_limit: "4g".into(),
            disk_limit: "10g".into(),
        }
    }
}

/// What a sandbox may reach, through the gateway alone.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// Whether anything but the task's own repository may be reached.
    pub external_access: bool,
    /// Only `allowed_domains`.
    pub whitelist_mode: bool,
    /// Exact names, `*.suffix`, or a preset: `preset:npm`, `preset:pypi`, `preset:crates`,
    /// `preset:go`, `preset:maven`, `preset:rubygems`, `preset:debian`.
    pub allowed_domains: Vec<String>,
    /// `host:port` of private addresses that may be reached all the same, e.g. an in-house package
    /// mirror (not in the specification).
    pub allowed_private: Vec<String>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            external_access: true,
            whitelist_mode: false,
            allowed_domains: Vec::new(),
            allowed_private: Vec::new(),
        }
    }
}

/// The local jail.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LocalJail {
    /// Folders that may be read besides the system's own, e.g. a toolchain in a home folder. The
    /// common ones (`~/.cargo/bin`, `~/.rustup`, `~/.pyenv`, `~/.nvm`) are found without this.
    pub read_only: Vec<PathBuf>,
    /// Refuse to run where bubblewrap does not work, instead of using the weaker jail.
    pub require_namespaces: bool,
}

/// Cloning (spec 001 §4).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CloneOptions {
    /// Take only the newest commits.
    pub shallow: bool,
    /// How many.
    pub depth: u32,
    /// Install what the project's files name (`npm install`, `pip install -r`, …).
    pub auto_install_deps: bool,
}

impl Default for CloneOptions {
    fn default() -> Self {
        Self {
            shallow: true,
            depth: 1,
            auto_install_deps: true,
        }
    }
}

/// Commands.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Execution {
    /// Seconds that one command may take. `EXECUTOR_TIMEOUT` overrides.
    pub timeout_seconds: u64,
    /// Bytes kept of stdout and of stderr, each.
    pub max_output_size: usize,
    /// Programs that the model may not run (not in the specification's keys; its §6.3 names them).
    pub denied_commands: Vec<String>,
}

impl Default for Execution {
    fn default() -> Self {
        Self {
            timeout_seconds: 1800,
            max_output_size: 1_048_576,
            denied_commands: [
                "sudo",
                "su",
                "doas",
                "iptables",
                "ip6tables",
                "nft",
                "systemctl",
                "service",
                "shutdown",
                "reboot",
            ]
            .map(String::from)
            .into(),
        }
    }
}

/// Clearing what was left behind (spec 001 §7.4).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cleanup {
    /// Hours between two runs.
    pub interval_hours: u64,
    /// Hours after which a sandbox that no row knows is removed.
    pub stale_threshold_hours: u64,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self {
            interval_hours: 24,
            stale_threshold_hours: 24,
        }
    }
}

/// The text editor (spec 000 §8.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TextEditorMcp {
    /// Offer the text editor. `TEXT_EDITOR_MCP_ENABLED` overrides.
    pub enabled: bool,
    /// The server. The default command is AgentMine's own static one, which is put into every
    /// sandbox; the specification's npm package is no longer on its registry.
    pub mcp_server: McpServer,
}

impl Default for TextEditorMcp {
    fn default() -> Self {
        Self {
            enabled: true,
            mcp_server: McpServer {
                name: "text-editor".into(),
                command: vec!["mcp-server-text-editor".into()],
            },
        }
    }
}
