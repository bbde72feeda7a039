//! The shape of `config.yaml`: one struct per concern, each with its defaults.
//!
//! The sections of trackers and labels are in [`super::trackers`], those of the sandbox and the tools in
//! [`super::executor`], those of health, metrics, logs and traces in [`super::telemetry`]. The comments of these structs become the reference in docs/config.schema.json.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::agent_file::AgentLimits;
use super::branch::BranchPattern;
use super::capacity::Capacity;
use super::conversion::IssueToMrConversion;
use super::executor::{CommandExecutor, TextEditorMcp};
use super::labels::Labels;
use super::mcp::Mcp;
use super::retention::RetentionConfig;
use super::rounds::RoundsConfig;
use super::secret::Secret;
use super::size::ByteSize;
use super::telemetry::{Http, Log, Traces};
use super::trackers::Trackers;
use crate::exit::{Exit, Failure};

/// All of `config.yaml`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where issues and pull requests live.
    pub trackers: Trackers,
    /// The labels that request work and show its state.
    pub labels: Labels,
    /// How much of the fleet a repository gets.
    pub capacity: Capacity,
    /// The producer.
    pub producer: Producer,
    /// The consumer.
    pub consumer: Consumer,
    /// Further work on pull requests that AgentMine opened.
    pub rounds: RoundsConfig,
    /// A pull request that is opened when the work on an issue begins.
    pub issue_to_mr_conversion: IssueToMrConversion,
    /// The wake-up queue.
    pub queue: QueueConfig,
    /// The database.
    pub store: StoreConfig,
    /// The model.
    pub model: ModelConfig,
    /// The agent's limits and checks.
    pub agent: Agent,
    /// What agents receive of a project's memory.
    pub memory: Memory,
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
    /// Traces.
    pub traces: Traces,
}

impl Config {
    /// Fills in defaults that depend on the section or on the home folder.
    pub(super) fn complete(mut self, home: Option<&str>, config_home: Option<&str>) -> Self {
        self.command_executor.complete();
        self.text_editor_mcp.complete();
        self.mcp.complete(home);
        self.model.complete();
        self.agent.complete(home, config_home);
        self
    }

    /// The names of the built-in servers. An entry of an MCP file that has one of them, in whatever case, is ignored.
    #[must_use]
    pub fn reserved_servers(&self) -> [&str; 2] {
        [
            self.text_editor_mcp.mcp_server.name.as_str(),
            self.command_executor.mcp_server.name.as_str(),
        ]
    }

    /// Checks that the model has a tool to change files with; other commands work without one.
    ///
    /// # Errors
    /// Returns [`Exit::Config`] with a hint if both tools are off.
    pub fn require_a_tool(&self) -> Result<(), Failure> {
        if self.command_executor.enabled || self.text_editor_mcp.enabled {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Config,
            "command_executor.enabled and text_editor_mcp.enabled are both false, so the model could change nothing; expected at least one of them",
        )
        .hint("remove `text_editor_mcp: {enabled: false}`, or set `command_executor: {enabled: true}`; the variables TEXT_EDITOR_MCP_ENABLED and COMMAND_EXECUTOR_ENABLED override both"))
    }
}

/// The producer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Producer {
    /// Seconds between scans in continuous mode.
    pub interval_seconds: u64,
    /// Also remove stale sandboxes, at the start and every
    /// `command_executor.cleanup.interval_hours`. This needs access to the Docker engine.
    pub cleanup: bool,
    /// Where forges deliver webhooks.
    pub webhooks: Webhooks,
}

/// Webhooks: with them a label starts work at once instead of with the next scan. Each tracker has its own secret.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Webhooks {
    /// Address and port that producers listen on for `/webhooks/github` and `/webhooks/gitlab`, in plain HTTP: put a
    /// proxy with TLS before it. Without it, nothing listens.
    pub listen: Option<String>,
}

impl Default for Producer {
    fn default() -> Self {
        Self {
            interval_seconds: 60,
            cleanup: true,
            webhooks: Webhooks::default(),
        }
    }
}

/// The consumer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Consumer {
    /// Tasks that one process runs at the same time.
    pub concurrency: usize,
    /// Attempts of a task, the first included, before it fails.
    pub max_attempts: u32,
    /// Seconds for which outages of external services (model API, tracker, git host, engine, database) may delay
    /// a task before it fails. They do not count as attempts.
    pub outage_seconds: u64,
    /// Seconds until a lease expires without a heartbeat.
    pub lease_seconds: u64,
    /// Seconds between heartbeats.
    pub heartbeat_seconds: u64,
    /// Seconds without a successful heartbeat until the sandbox is paused and effects stop.
    pub heartbeat_loss_seconds: u64,
    /// Seconds between two checks of the item of a running task. A person withdraws the work by closing the
    /// item, removing its labels or unassigning the bot. Comments are also read before a model call, once in a sixth of
    /// this time at most.
    pub item_check_seconds: u64,
    /// Seconds for which an item must not be found before it counts as deleted, where the tracker does not report a
    /// deletion: a tracker may not find a repository for some minutes.
    pub item_gone_seconds: u64,
    /// Minimum seconds between two edits of the progress comment while a session works. In a long session the time between
    /// edits grows to at most ten times this.
    pub progress_seconds: u64,
    /// Seconds between sweeps.
    pub sweep_seconds: u64,
    /// Seconds without a wake-up until a queued task gets another one.
    pub wakeup_after_seconds: u64,
    /// Seconds that running tasks have to end after SIGTERM before they are returned to the queue.
    pub drain_seconds: u64,
    /// Sandboxes that are started ahead, of `command_executor.docker.base_image` and with its limits, so that a task
    /// with that image starts faster. Each takes its memory and its disk space before a task needs it. 0: none.
    pub warm_sandboxes: usize,
    /// While this file exists, processes on this machine take no new tasks; running sessions continue to their end. Checked
    /// every second. Without it, nothing is checked.
    pub pause_file: Option<PathBuf>,
    /// Copies of repositories on this machine, from which new clones are served.
    pub mirrors: MirrorsConfig,
}

impl Consumer {
    /// The pause file, if it exists.
    #[must_use]
    pub fn paused_by(&self) -> Option<&Path> {
        let file = self.pause_file.as_deref()?;
        file.symlink_metadata().is_ok().then_some(file)
    }
}

/// Mirrors of repositories on the consumer's machine. The repository's host still decides about each clone; only its
/// data comes from here.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MirrorsConfig {
    /// Whether repositories are mirrored.
    pub enabled: bool,
    /// Upper limit of all mirrors together. Those that were not used for the longest time are removed; a repository
    /// that is larger is not mirrored.
    pub max_size: ByteSize,
    /// Their folder, shared by all consumers of this user [default: `mirrors` in `$XDG_STATE_HOME/agentmine`].
    pub folder: Option<PathBuf>,
    /// Whether the workspace of a sandbox begins as a copy of an earlier clone of the same branches and tags, where it has a file
    /// system of its own. The copies take at most `max_size` once more; `consumer.warm_sandboxes` has none.
    pub templates: bool,
}

impl Default for MirrorsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max_size: ByteSize::from_bytes(2 << 30),
            folder: None,
            templates: true,
        }
    }
}

impl Default for Consumer {
    fn default() -> Self {
        Self {
            concurrency: 2,
            max_attempts: 3,
            outage_seconds: 24 * 3600,
            lease_seconds: 60,
            heartbeat_seconds: 10,
            heartbeat_loss_seconds: 40,
            item_check_seconds: 30,
            item_gone_seconds: 600,
            progress_seconds: 30,
            sweep_seconds: 15,
            wakeup_after_seconds: 60,
            // Below the 30 s that Kubernetes and most others give a process to end.
            drain_seconds: 20,
            warm_sandboxes: 0,
            pause_file: None,
            mirrors: MirrorsConfig::default(),
        }
    }
}

/// The wake-up queue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// URL of RabbitMQ (`amqp://` or `amqps://`), or `inproc:` for a queue within the process.
    pub url: Secret,
    /// Prefix of the names of exchanges and queues.
    pub prefix: String,
    /// Delays of the retry ladder in seconds, from first to last.
    pub retry_seconds: Vec<u64>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            url: Secret::default_value("amqp://guest:guest@127.0.0.1:5672/%2f"),
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
    /// Size of the connection pool. The heartbeat has one more connection.
    pub max_connections: u32,
    /// Who changes the schema: `run` makes each process apply the missing migrations when it starts; `wait` makes
    /// it wait until `producer migrate` has done so, and needs no right to change the schema. Postgres only.
    pub migrations: Migrations,
    /// How long the producer keeps data of tasks that are over.
    pub retention: RetentionConfig,
}

/// Who applies the migrations of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Migrations {
    /// Each process, when it starts.
    #[default]
    Run,
    /// `producer migrate`; all other processes wait for it.
    Wait,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: Secret::default_value("postgres://postgres@127.0.0.1:5432/agentmine"),
            max_connections: 8,
            migrations: Migrations::default(),
            retention: RetentionConfig::default(),
        }
    }
}

/// How the model is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Any endpoint that speaks OpenAI Chat Completions.
    OpenAi,
    /// Any endpoint that speaks Anthropic Messages. Prompts are cached.
    Anthropic,
    /// Recorded replies from a file.
    Replay,
}

impl Provider {
    /// Where its API is by default.
    ///
    /// # Panics
    /// Never: the addresses are valid.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a literal URL parses")]
    pub fn base_url(self) -> Url {
        let literal = match self {
            Self::OpenAi | Self::Replay => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com/v1",
        };
        Url::parse(literal).expect("a literal URL")
    }

    /// The environment variable that its key usually comes from.
    #[must_use]
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Replay => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
        }
    }
}

/// The model.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// The API of the model.
    pub provider: Provider,
    /// Base URL of the API, including `/v1`. Default with `provider: anthropic`: `https://api.anthropic.com/v1`.
    pub base_url: Url,
    /// API key; usually set by `OPENAI_API_KEY`, or `ANTHROPIC_API_KEY` with `provider: anthropic`. `${NAME}` stands for
    /// the environment variable `NAME`. Local servers need none.
    pub api_key: Option<Secret>,
    /// The model's name.
    pub name: String,
    /// The recording for `provider: replay`.
    pub recording: Option<PathBuf>,
    /// Ask for streamed replies.
    pub stream: bool,
    /// Sampling temperature. Default: that of the provider.
    pub temperature: Option<f64>,
    /// Highest number of tokens of one reply. Default: that of the provider; with `provider: anthropic` 32000 (16000
    /// without `stream`), or the model's maximum if that is lower.
    pub max_output_tokens: Option<u32>,
    /// Timeout of connecting, in seconds.
    pub connect_timeout_seconds: u64,
    /// Timeout until the first byte of a reply, and then until its first part, in seconds.
    pub first_byte_timeout_seconds: u64,
    /// Timeout between two parts of a reply, in seconds, once it has begun. Some servers hold a tool call back until it
    /// is complete.
    pub idle_timeout_seconds: u64,
    /// Tries of one call, including the first. A call whose replies break off, or come too late for a proxy (524, and 504 after
    /// 20 seconds), ends after these.
    pub max_tries: u32,
    /// How long a call is tried while the API cannot be reached, is overloaded or is loading (connect errors,
    /// 429, other 5xx), in seconds, even if that takes more than `max_tries`. After that the task is returned to
    /// the queue without counting the attempt.
    pub retry_seconds: u64,
    /// The same for an address where no server was reached and that has not replied before, if it is less. No key of the
    /// configuration: set where a person waits, since such an address is probably wrong.
    #[serde(skip)]
    pub unreached_seconds: Option<u64>,
    /// How often a call that still waits for the first part of a reply is reported, in seconds.
    pub waiting_notice_seconds: u64,
    /// US dollars for a million input tokens; used to compute costs.
    pub input_price: f64,
    /// US dollars for a million cached input tokens. Default: `input_price`.
    pub cached_input_price: Option<f64>,
    /// US dollars for a million input tokens that the provider writes to its cache, where it reports them. Default: 1.25
    /// times `input_price`, what Anthropic charges for its cache of five minutes; that of one hour costs twice `input_price`.
    pub cache_write_price: Option<f64>,
    /// US dollars for a million output tokens.
    pub output_price: f64,
    /// The prices of other models, which agents name in their files, by the name of the model. A model without an entry has
    /// no prices: its cost is unknown, and a task with a limit on the cost fails before it starts with it.
    pub more_prices: BTreeMap<String, ModelPrices>,
    /// More headers for each request, e.g. for a gateway in front of the model. A value `${NAME}` stands for the environment
    /// variable `NAME`.
    pub headers: BTreeMap<String, Secret>,
    /// More members of each request's body, for what only some servers know: `{reasoning_effort: low}`, or
    /// `{cache_control: {type: ephemeral}}` where a proxy does not cache prompts by itself, or `{thinking: {type: adaptive}}`
    /// with `provider: anthropic`.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            provider: Provider::OpenAi,
            base_url: Provider::OpenAi.base_url(),
            api_key: None,
            name: "gpt-5".into(),
            recording: None,
            stream: true,
            temperature: None,
            max_output_tokens: None,
            connect_timeout_seconds: 10,
            first_byte_timeout_seconds: 300,
            idle_timeout_seconds: 300,
            max_tries: 5,
            retry_seconds: 300,
            unreached_seconds: None,
            waiting_notice_seconds: 60,
            input_price: 0.0,
            cached_input_price: None,
            cache_write_price: None,
            output_price: 0.0,
            more_prices: BTreeMap::new(),
            headers: BTreeMap::new(),
            extra_body: serde_json::Map::new(),
        }
    }
}

impl ModelConfig {
    /// The default address is that of the provider. Where OpenAI's was written beside another provider, that is a fault.
    fn complete(&mut self) {
        if self.base_url == Provider::OpenAi.base_url() {
            self.base_url = self.provider.base_url();
        }
    }

    /// The same server with another of its models, which has the prices of `more_prices`, or none.
    #[must_use]
    pub fn with_model(&self, name: &str) -> Self {
        let ModelPrices {
            input_price,
            cached_input_price,
            cache_write_price,
            output_price,
        } = self.more_prices.get(name).copied().unwrap_or_default();
        Self {
            name: name.to_owned(),
            input_price,
            cached_input_price,
            cache_write_price,
            output_price,
            ..self.clone()
        }
    }
}

/// The prices of another model, in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelPrices {
    /// Of input tokens.
    pub input_price: f64,
    /// Of cached input tokens. Default: `input_price`.
    pub cached_input_price: Option<f64>,
    /// Of input tokens that the provider writes to its cache. Default: 1.25 times `input_price`.
    pub cache_write_price: Option<f64>,
    /// Of output tokens.
    pub output_price: f64,
}

/// The agent's limits and checks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// Limit on the model calls of one task.
    pub max_steps: u32,
    /// Limit on the tokens of one task, input and output.
    pub max_tokens: Option<u64>,
    /// Limit on the cost of one task in US dollars; needs prices in `model`.
    pub max_cost_usd: Option<f64>,
    /// Limit on the wall time of one task, in minutes: the work of all its sessions together, without preparation and the time
    /// between sessions.
    pub max_minutes: u64,
    /// Limit on the rounds of work and verification; after the last, a partial result is reported.
    pub max_rounds: u32,
    /// Commands that must pass on the pushed commit. Default: those in the repository's
    /// `.agentmine/config.yaml`, else what its files suggest (`npm test`, `cargo test`, …).
    pub checks: Vec<String>,
    /// Timeout of one check, in seconds. A check of an agent's `definition_of_done` may have a lower one.
    pub check_timeout_seconds: u64,
    /// The operator's folder of agents, one YAML file each. Default: `~/.config/agentmine/agents`. It need not exist.
    /// A repository's `.agentmine/agents/` only narrows them.
    pub folder: Option<PathBuf>,
    /// How the fleet's work branches are named, with the fields `{type}` (`fix`, `feature`, `docs`, `refactor`, `test` or
    /// `task`), `{bot}`, `{number}` and `{description}`, such as `{type}/{bot}-{number}-{description}`. The model words
    /// type and description. Default: `agentmine/issue-NUMBER-ID`.
    pub branch_pattern: Option<String>,
    /// Author name of the commits.
    pub git_user_name: String,
    /// Author email address of the commits.
    pub git_user_email: String,
    /// Name the person who requested the work as co-author of each commit (`Co-authored-by:`), with the forge's
    /// no-reply address of the account.
    pub co_author_requester: bool,
}

impl Agent {
    /// How work branches are named, if that is configured. The configuration was validated.
    #[must_use]
    pub fn branch_pattern(&self) -> Option<BranchPattern> {
        self.branch_pattern.as_deref()?.parse().ok()
    }

    /// The limits of every agent.
    #[must_use]
    pub fn limits(&self) -> AgentLimits {
        AgentLimits {
            max_steps: Some(self.max_steps),
            max_tokens: self.max_tokens,
            max_cost_usd: self.max_cost_usd,
            max_minutes: Some(self.max_minutes),
            max_rounds: Some(self.max_rounds),
        }
    }

    /// Fills in the default of the folder, and replaces `~` by the home folder.
    fn complete(&mut self, home: Option<&str>, config_home: Option<&str>) {
        let absolute = |path: Option<&str>| path.map(PathBuf::from).filter(|it| it.is_absolute());
        let home = absolute(home);
        self.folder = match (self.folder.take(), &home) {
            (None, home) => absolute(config_home)
                .or_else(|| Some(home.as_ref()?.join(".config")))
                .map(|config| config.join("agentmine/agents")),
            (Some(folder), Some(home)) => Some(match folder.strip_prefix("~") {
                Ok(rest) => home.join(rest),
                Err(_) => folder,
            }),
            (folder, None) => folder,
        };
    }
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
            folder: None,
            branch_pattern: None,
            git_user_name: "AgentMine".into(),
            git_user_email: "agentmine@localhost".into(),
            co_author_requester: false,
        }
    }
}

/// What agents receive of a project's memory.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Give agents the active records of the project's memory, and let them propose more.
    pub enabled: bool,
    /// Limit on what they receive, in estimated tokens.
    pub max_tokens: u64,
    /// Records that the sessions of one task may propose as drafts, which agents do not receive until a person
    /// activates them; 0 for none.
    pub max_proposals: u32,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            enabled: true,
            max_tokens: 2000,
            max_proposals: 3,
        }
    }
}

impl Memory {
    /// The limit that applies; 0 if agents are given nothing.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self.enabled {
            true => self.max_tokens,
            false => 0,
        }
    }

    /// How many records the sessions of one task may propose.
    #[must_use]
    pub fn proposals(&self) -> u32 {
        match self.enabled {
            true => self.max_proposals,
            false => 0,
        }
    }
}
