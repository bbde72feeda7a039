//! The arguments.

use std::path::PathBuf;

use agentmine_runtime::exit::{Exit, Failure};
use clap::{Parser, Subcommand};

use crate::config::ConfigCommand;
use crate::doctor::DoctorArgs;
use crate::mcp::{McpArgs, McpCommand};
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

impl Args {
    /// Refuses a file that the command does not read.
    ///
    /// # Errors
    /// [`Exit::Validation`], with the option.
    pub(crate) fn check_files(&self) -> Result<(), Failure> {
        let refuse = |option: &str, command: &str| {
            Err(Failure::new(
                Exit::Validation,
                format!("{option} has no effect on `{command}`, which does not read that file"),
            )
            .hint(format!("omit {option}")))
        };
        if self.config.is_some()
            && let Some(command) = self.without_configuration()
        {
            return refuse("--config", command);
        }
        let Command::Mcp(McpArgs { which, command }) = &self.command else {
            return Ok(());
        };
        match command {
            _ if which.mcp_config.is_none() => Ok(()),
            McpCommand::Serve { .. } => refuse("--mcp-config", "mcp serve"),
            McpCommand::ServeTools(_) => refuse("--mcp-config", "mcp serve-tools"),
            McpCommand::List { .. }
            | McpCommand::Tools { .. }
            | McpCommand::Call { .. }
            | McpCommand::Resources { .. }
            | McpCommand::Read { .. }
            | McpCommand::Prompts { .. }
            | McpCommand::Prompt { .. }
            | McpCommand::Doctor { .. } => Ok(()),
        }
    }

    /// Whether the command reads the configuration.
    pub(crate) fn reads_configuration(&self) -> bool {
        self.without_configuration().is_none()
    }

    /// The command, if it reads no configuration.
    fn without_configuration(&self) -> Option<&'static str> {
        match &self.command {
            Command::Demo(_) => Some("demo"),
            Command::Completions { .. } => Some("completions"),
            Command::Config(ConfigCommand::Schema) => Some("config schema"),
            Command::Mcp(McpArgs {
                command: McpCommand::ServeTools(_),
                ..
            }) => Some("mcp serve-tools"),
            Command::Config(ConfigCommand::Check | ConfigCommand::Show { .. })
            | Command::Run(_)
            | Command::Task(_)
            | Command::Session(_)
            | Command::Worker(_)
            | Command::Queue(_)
            | Command::Store(_)
            | Command::Agent(_)
            | Command::Memory(_)
            | Command::Mcp(_)
            | Command::Doctor(_)
            | Command::Top(_) => None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_command_does_not_read_is_refused() {
        let checked = |line: &str| {
            let args = ["agentmine"].into_iter().chain(line.split(' '));
            Args::try_parse_from(args).unwrap().check_files()
        };
        for refused in [
            "demo --config x.yaml",
            "--config x.yaml completions bash",
            "config schema --config x.yaml",
            "mcp serve-tools file-read --config x.yaml",
            "mcp serve-tools file-read --mcp-config x.json",
            "mcp serve --mcp-config x.json",
        ] {
            let error: anyhow::Error = checked(refused).unwrap_err().into();
            assert_eq!(Exit::of(&error), Exit::Validation, "{refused}: {error}");
        }
        for read in [
            "demo",
            "config check --config x.yaml",
            "mcp serve --config x.yaml",
            "mcp list --mcp-config x.json --config x.yaml",
        ] {
            assert!(checked(read).is_ok(), "{read}");
        }
    }
}
