//! The shape of `config.yaml`: one struct per concern, each with its defaults.
//!
//! [`super::executor`] holds the sections of the sandbox and the tools. Secrets are [`Secret`]s and
//! cannot be printed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;
use super::executor::{CommandExecutor, TextEditorMcp};
use super::mcp::Mcp;

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
    pub queue: QueueConfig,
    /// The database.
    pub store: StoreConfig,
    /// The model.
    pub model: ModelConfig,
    /// The agent's limits and checks.
    pub agent: Agent,
    /// The sandbox and the command tool (spec 001 §10).
    pub command_executor: CommandExecutor,
    /// The text editor (spec 000 §8).
    pub text_editor_mcp: TextEditorMcp,
    /// MCP servers (spec 002 §2).
    pub mcp: Mcp,
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
    pub local: Option<LocalTrackerConfig>,
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
pub struct LocalTrackerConfig {
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
pub struct QueueConfig {
    /// `amqp://` or `amqps://` URL of RabbitMQ, or `inproc:` for a queue in the process itself.
    pub url: Secret,
    /// Put before the names of exchanges and queues.
    pub prefix: String,
    /// Delays of the retry ladder, in seconds, first to last.
    pub retry_seconds: Vec<u64>,
}

impl Default for QueueConfig {
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
pub struct StoreConfig {
    /// `postgres://…` or `sqlite:PATH`.
    pub url: Secret,
    /// Connections in the pool. The heartbeat has one more of its own.
    pub max_connections: u32,
}

impl Default for StoreConfig {
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
pub struct ModelConfig {
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

impl Default for ModelConfig {
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
