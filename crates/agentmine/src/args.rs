//! The arguments.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::mcp::McpArgs;

/// A self-hosted fleet of coding agents.
#[derive(Debug, Parser)]
#[command(name = "agentmine", version, about)]
pub(crate) struct Args {
    /// Configuration file [default: ./config.yaml (not for `run`), then ~/.config/agentmine/config.yaml]
    #[arg(long, short, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the whole of it on a small repository made on the spot, with a recorded model
    Demo(DemoArgs),
    /// Work on issues of a repository on this machine, with no service installed
    Run(RunArgs),
    /// Tasks: what was asked for
    #[command(subcommand)]
    Task(TaskCommand),
    /// Sessions: what was done
    #[command(subcommand)]
    Session(SessionCommand),
    /// MCP servers: what is configured, whether it works, and our own tools as servers
    Mcp(McpArgs),
    /// The configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Where to make the sample repository [default: a new folder under the state folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The git repository to work on
    #[arg(long, value_name = "PATH")]
    pub(crate) repo: PathBuf,
    /// One issue, a Markdown file. Without it, every open issue in .agentmine/issues that carries the request label
    #[arg(long, value_name = "FILE")]
    pub(crate) issue: Option<PathBuf>,
    /// Base URL of an OpenAI-compatible API, e.g. http://127.0.0.1:11434/v1 for Ollama
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The model's name
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A shell line that must pass on the result; may be given more than once
    #[arg(long, value_name = "COMMAND")]
    pub(crate) check: Vec<String>,
    /// Where commands run: `local` (a jail on this machine) or `docker` [default: local]
    #[arg(long, value_name = "BACKEND", value_parser = ["local", "docker"])]
    pub(crate) sandbox: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List tasks, newest first
    List {
        /// Only tasks in this state: open, in_progress, done, failed or cancelled
        #[arg(long)]
        status: Option<String>,
        /// At most so many; 0 is all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// One JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one task with its sessions
    Show {
        /// The task's number or UUID
        task: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Stop a task for good
    Stop {
        /// The task's number or UUID
        task: String,
    },
    /// Set a task aside
    Pause {
        /// The task's number or UUID
        task: String,
    },
    /// Queue a paused task again
    Resume {
        /// The task's number or UUID
        task: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions, newest first
    List {
        /// At most so many; 0 is all
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// One JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show the transcript of a session
    Show {
        /// The session's number
        session: String,
        /// One JSON object with every step as recorded
        #[arg(long)]
        json: bool,
        /// Long texts whole
        #[arg(long)]
        full: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and tell every fault
    Check,
    /// Print the JSON Schema of config.yaml
    Schema,
}
