//! The shape of `config.yaml`: one struct per concern, each with its defaults.
//!
//! `command_executor` and `text_editor_mcp` keep the names and defaults of the specification
//! (seeds/001 §10, seeds/000 §8). Where a section has more keys than the specification names, the
//! extra ones say so in their comment. Secrets are [`Secret`]s and cannot be printed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;

/// All of `config.yaml`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where issues and pull requests live.
    pub trackers: Trackers,
    /// The labels that ask for work and tell of it.
    pub labels: Labels,
    /// The producer.
    pub producer: Producer,
    /// The consumer.
    pub consumer: Consumer,
    /// The wake-up queue.
    pub queue: Queue,
    /// The database.
    pub store: Store,
    /// The model.
    pub model: Model,
    /// The agent's limits and checks.
    pub agent: Agent,
    /// The sandbox and the command tool (seeds/001 §10).
    pub command_executor: CommandExecutor,
    /// The text editor (seeds/000 §8).
    pub text_editor_mcp: TextEditorMcp,
    /// Health and metrics.
    pub http: Http,
    /// Logs.
    pub log: Log,
}

/// The trackers to scan. At least one is needed by a producer and a consumer.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trackers {
    /// GitHub or GitHub Enterprise.
    pub github: Option<GitHub>,
    /// A folder of Markdown issues beside a git repository.
    pub local: Option<LocalTracker>,
}

/// GitHub through its REST API.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitHub {
    /// Base of the REST API; `https://HOST/api/v3/` for GitHub Enterprise.
    pub api_url: Url,
    /// Personal access token; usually from `GITHUB_PERSONAL_ACCESS_TOKEN`.
    pub token: Option<Secret>,
    /// Repositories to scan, as `owner/name`.
    pub repositories: Vec<String>,
    /// Further search qualifiers instead of or beside `repositories`, e.g. `org:acme`.
    pub query: Option<String>,
}

impl Default for GitHub {
    fn default() -> Self {
        Self {
            #[expect(clippy::expect_used, reason = "a literal URL parses")]
            api_url: Url::parse("https://api.github.com/").expect("a literal URL"),
            token: None,
            repositories: Vec::new(),
            query: None,
        }
    }
}

/// A local folder: `issues/*.md` with front matter, and a git repository.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocalTracker {
    /// The git repository that branches are pushed to.
    pub repository: PathBuf,
    /// The folder of issues; default `.agentmine/issues` in the repository.
    #[serde(default)]
    pub issues: Option<PathBuf>,
}

/// Label names. Each can be changed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Labels {
    /// Asks for work.
    pub request: String,
    /// Work is under way.
    pub processing: String,
    /// The pull request is there.
    pub done: String,
    /// Set aside.
    pub paused: String,
    /// Stopped by somebody.
    pub stopped: String,
    /// Ended without a result.
    pub failed: String,
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            request: "coding agent".into(),
            processing: "coding agent processing".into(),
            done: "coding agent done".into(),
            paused: "coding agent paused".into(),
            stopped: "coding agent stopped".into(),
            failed: "coding agent failed".into(),
        }
    }
}

/// The producer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Producer {
    /// Seconds between two scans in continuous mode.
    pub interval_seconds: u64,
    /// Whether the producer also clears stale sandboxes, at its start and at
    /// `command_executor.cleanup.interval_hours`. It needs the Docker engine for that.
    pub cleanup: bool,
}

impl Default for Producer {
    fn default() -> Self {
        Self {
            interval_seconds: 60,
            cleanup: true,
        }
    }
}

/// The consumer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Consumer {
    /// Tasks at once in one process.
    pub concurrency: usize,
    /// Leases a task may begin before it has failed.
    pub max_attempts: u32,
    /// Seconds that a lease holds without a heartbeat.
    pub lease_seconds: u64,
    /// Seconds between heartbeats.
    pub heartbeat_seconds: u64,
    /// Seconds without a successful heartbeat after which the sandbox is paused and effects stop.
    pub heartbeat_loss_seconds: u64,
    /// Seconds between sweeps.
    pub sweep_seconds: u64,
    /// Seconds after which a queued row without a recent wake-up is given another.
    pub wakeup_after_seconds: u64,
    /// Seconds that running tasks get to end after SIGTERM before they are given back.
    pub drain_seconds: u64,
}

impl Default for Consumer {
    fn default() -> Self {
        Self {
            concurrency: 2,
            max_attempts: 3,
            lease_seconds: 60,
            heartbeat_seconds: 10,
            heartbeat_loss_seconds: 40,
            sweep_seconds: 15,
            wakeup_after_seconds: 60,
            drain_seconds: 30,
        }
    }
}

/// The wake-up queue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// `amqp://` or `amqps://` URL of RabbitMQ, or `inproc:` for a queue in the process itself.
    pub url: Secret,
    /// Put before the names of exchanges and queues.
    pub prefix: String,
    /// Delays of the retry ladder, in seconds, first to last.
    pub retry_seconds: Vec<u64>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            url: Secret::new("amqp://guest:guest@127.0.0.1:5672/%2f"),
            prefix: "agentmine".into(),
            retry_seconds: vec![5, 30, 120],
        }
    }
}

/// The database.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `postgres://…` or `sqlite:PATH`.
    pub url: Secret,
    /// Connections in the pool. The heartbeat has one more of its own.
    pub max_connections: u32,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: Secret::new("postgres://postgres@127.0.0.1:5432/agentmine"),
            max_connections: 8,
        }
    }
}

/// Which program speaks to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Any endpoint that speaks OpenAI Chat Completions.
    OpenAi,
    /// Recorded replies from a file.
    Replay,
}

/// The model.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// Which wire format.
    pub provider: Provider,
    /// Base of the API, `/v1` included.
    pub base_url: Url,
    /// API key; usually from `OPENAI_API_KEY`. Local servers need none.
    pub api_key: Option<Secret>,
    /// The model's name.
    pub name: String,
    /// The recording that `provider: replay` plays.
    pub recording: Option<PathBuf>,
    /// Ask for a streamed reply.
    pub stream: bool,
    /// Sampling temperature; left to the provider when absent.
    pub temperature: Option<f64>,
    /// Most tokens of one reply; left to the provider when absent.
    pub max_output_tokens: Option<u32>,
    /// Seconds to connect.
    pub connect_timeout_seconds: u64,
    /// Seconds until the first byte of a reply.
    pub first_byte_timeout_seconds: u64,
    /// Seconds between two bytes of a reply.
    pub idle_timeout_seconds: u64,
    /// Tries of one call, the first included.
    pub max_tries: u32,
    /// US dollars for a million input tokens, to count money.
    pub input_price: f64,
    /// US dollars for a million cached input tokens.
    pub cached_input_price: f64,
    /// US dollars for a million output tokens.
    pub output_price: f64,
    /// Headers added to each request, e.g. for a gateway in front of the model.
    pub headers: BTreeMap<String, Secret>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            provider: Provider::OpenAi,
            #[expect(clippy::expect_used, reason = "a literal URL parses")]
            base_url: Url::parse("https://api.openai.com/v1").expect("a literal URL"),
            api_key: None,
            name: "gpt-5".into(),
            recording: None,
            stream: true,
            temperature: None,
            max_output_tokens: None,
            connect_timeout_seconds: 10,
            first_byte_timeout_seconds: 300,
            idle_timeout_seconds: 120,
            max_tries: 5,
            input_price: 0.0,
            cached_input_price: 0.0,
            output_price: 0.0,
            headers: BTreeMap::new(),
        }
    }
}

/// The agent's limits and checks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// Model calls for one task.
    pub max_steps: u32,
    /// Tokens for one task, input and output.
    pub max_tokens: Option<u64>,
    /// US dollars for one task; needs prices in `model`.
    pub max_cost_usd: Option<f64>,
    /// Minutes of wall time for one task.
    pub max_minutes: u64,
    /// Rounds of work and verification before a partial result is reported.
    pub max_rounds: u32,
    /// Commands that must pass on the pushed commit. Empty: the repository's own
    /// `.agentmine/config.yaml`, or what its files suggest (`npm test`, `cargo test`, …).
    pub checks: Vec<String>,
    /// Seconds that one check may take.
    pub check_timeout_seconds: u64,
    /// Name and mail address of the commits.
    pub git_user_name: String,
    /// Mail address of the commits.
    pub git_user_email: String,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            max_steps: 100,
            max_tokens: None,
            max_cost_usd: None,
            max_minutes: 120,
            max_rounds: 3,
            checks: Vec::new(),
            check_timeout_seconds: 900,
            git_user_name: "AgentMine".into(),
            git_user_email: "agentmine@localhost".into(),
        }
    }
}

/// A server process: its name and how it is started.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// The server's name.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
}

/// The sandbox and the command tool (seeds/001 §10.1).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CommandExecutor {
    /// Offer the command tool to the model. `COMMAND_EXECUTOR_ENABLED` overrides.
    pub enabled: bool,
    /// Accepted for compatibility. Commands run through the sandbox's own guest, so nothing is
    /// started by this; `name` is the tool's prefix.
    pub mcp_server: McpServer,
    /// Which kind of sandbox (not in the specification).
    pub backend: Backend,
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
            backend: Backend::default(),
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
pub enum Backend {
    /// A Docker container.
    #[default]
    Docker,
    /// A jail on the worker's own machine.
    Local,
}

/// Docker (seeds/001 §10.1).
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
    /// Seconds for one call of the engine's API (seeds/001 §8.2).
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

/// Cloning (seeds/001 §4).
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

/// Clearing what was left behind (seeds/001 §7.4).
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

/// The text editor (seeds/000 §8.1).
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

/// Health and metrics.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Address for `/live`, `/ready` and `/metrics`, e.g. `127.0.0.1:9464`; port 0 takes a free one.
    /// Absent: not served.
    pub listen: Option<String>,
}

/// Logs, to stderr.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `text` or `json`.
    pub format: LogFormat,
    /// A level, or directives as `info,agentmine_queue=debug`.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
