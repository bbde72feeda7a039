//! The arguments.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::config::ConfigCommand;
use crate::doctor::DoctorArgs;
use crate::mcp::McpArgs;
use crate::memory::MemoryArgs;
use crate::queue::QueueCommand;
use crate::run::RunArgs;
use crate::session::SessionCommand;
use crate::store::StoreCommand;
use crate::task::TaskCommand;
use crate::top::TopArgs;
use crate::worker::WorkerCommand;

/// A self-hosted fleet of coding agents.
#[derive(Debug, Parser)]
#[command(name = "agentmine", version)]
pub(crate) struct Args {
    /// Configuration file [default: ./config.yaml (not read by `run` and `mcp`, except `mcp serve`), then
    /// ~/.config/agentmine/config.yaml]
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
