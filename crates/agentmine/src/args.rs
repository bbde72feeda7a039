//! The arguments.

use std::path::PathBuf;

use agentmine_runtime::config::BackendKind;
use clap::{Parser, Subcommand, ValueEnum};

use crate::doctor::DoctorArgs;
use crate::mcp::McpArgs;
use crate::memory::MemoryArgs;
use crate::print::Json;
use crate::queue::QueueCommand;
use crate::session::SessionCommand;
use crate::store::StoreCommand;
use crate::task::TaskCommand;
use crate::top::TopArgs;
use crate::worker::WorkerCommand;

/// A self-hosted fleet of coding agents.
#[derive(Debug, Parser)]
#[command(name = "agentmine", version)]
pub(crate) struct Args {
    /// Configuration file [default: ./config.yaml (except for `run`), then ~/.config/agentmine/config.yaml]
    #[arg(long, short, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch an agent solve an issue in a sample repository, with recorded model replies
    Demo(DemoArgs),
    /// Work on the issues of a local git repository, without any services
    Run(RunArgs),
    /// Create, list, show and change tasks
    #[command(subcommand)]
    Task(TaskCommand),
    /// List sessions, show their transcripts, and begin and end sessions of other clients
    #[command(subcommand)]
    Session(SessionCommand),
    /// Start work on tasks, and manage the work trees of other clients
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Show how much work waits
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Show how large the database is, remove what is old, and resume after a restore
    #[command(subcommand)]
    Store(StoreCommand),
    /// List, show and validate the agents of a project
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Record decisions for a project, and show what agents receive of them
    Memory(MemoryArgs),
    /// Inspect and call MCP servers, and serve AgentMine's own tools
    Mcp(McpArgs),
    /// Check or show the configuration, or print its schema
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check everything that a fleet needs, and show how to fix each fault
    Doctor(DoctorArgs),
    /// Watch queue, sessions, tokens and cost
    Top(TopArgs),
    /// Print a script that completes commands and options in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Folder in which to create the sample repository [default: a new folder in the state folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The git repository to work on
    #[arg(long, value_name = "PATH")]
    pub(crate) repo: PathBuf,
    /// One issue, as a Markdown file [default: every open issue in .agentmine/issues with the request label]
    #[arg(long, value_name = "FILE")]
    pub(crate) issue: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) with: LoopArgs,
}

/// What the fleet's loop works with.
#[derive(Debug, clap::Args)]
pub(crate) struct LoopArgs {
    /// Base URL of an OpenAI-compatible API, e.g. http://127.0.0.1:11434/v1 for Ollama
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The model's name
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A shell command that must succeed on the result; can be repeated
    #[arg(long, value_name = "COMMAND")]
    pub(crate) check: Vec<String>,
    /// Where the agent's commands run: in a jail on this machine, or in a Docker container
    #[arg(long, value_name = "BACKEND", value_enum, default_value_t = SandboxArg::Local)]
    pub(crate) sandbox: SandboxArg,
}

/// Where the agent's commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxArg {
    Local,
    Docker,
}

impl From<SandboxArg> for BackendKind {
    fn from(arg: SandboxArg) -> Self {
        match arg {
            SandboxArg::Local => Self::Local,
            SandboxArg::Docker => Self::Docker,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the agents of the project in this folder
    List {
        /// Only agents that this client runs: agentmine, claude-code, codex or gemini-cli
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// Maximum number of agents; 0 lists all
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one agent as it runs
    Show {
        /// The agent's name
        name: String,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check the files of all agents and report every fault
    Validate {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and report every fault
    Check,
    /// Show every key with its value; secrets are shown as set or unset
    Show {
        /// Also show where each value came from: default, file and line, variable or flag
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Print the JSON Schema of config.yaml
    Schema,
}
