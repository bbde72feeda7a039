//! `agentmine mcp`: lists the configured servers, checks them, shows their offers, and calls them.
//!
//! Servers of a repository's file run only in a jail with a copy of the project; those of the user's own file
//! run on this machine, or in the jail with `"sandbox": true`. All end with the command. The output of servers
//! is hostile: it is limited, and control characters are replaced before it is shown.

mod args;
mod ask;
mod call;
mod control;
mod doctor;
mod files;
mod http;
mod jail;
mod list;
mod offer;
mod serve;
mod session;
mod setup;
mod show;
mod trouble;

use std::path::PathBuf;

use agentmine_runtime::exit::Exit;
use anyhow::Result;

use args::With;
pub(crate) use args::{McpArgs, McpCommand};

/// Runs one of the commands.
pub(crate) async fn run(config: Option<PathBuf>, args: McpArgs) -> Result<Exit> {
    let McpArgs { which, command } = args;
    let with = With { config, which };
    match command {
        McpCommand::List { start } => list::run(with, start).await,
        McpCommand::Tools { server } => offer::tools(with, server).await,
        McpCommand::Call {
            tool,
            arguments,
            timeout,
        } => call::run(with, &tool, arguments, timeout).await,
        McpCommand::Resources { server } => offer::resources(with, server).await,
        McpCommand::Read { server, uri } => call::read(with, &server, &uri).await,
        McpCommand::Prompts { server } => offer::prompts(with, server).await,
        McpCommand::Prompt {
            server,
            name,
            arguments,
        } => call::prompt(with, &server, &name, &arguments).await,
        McpCommand::Doctor { server } => doctor::run(with, server).await,
        McpCommand::Serve { verbose, http } => control::run(with, verbose, http).await,
        McpCommand::ServeTools(what) => serve::run(what).await,
    }
}
