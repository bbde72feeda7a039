//! The command line: runs the fleet in one process, and shows what it did.

mod again;
mod agents;
mod args;
mod config;
mod control;
mod demo;
mod embedded;
mod git;
mod live;
mod mcp;
mod memory;
mod paths;
mod print;
mod run;
mod session;
mod summary;
mod takeover;
mod task;
mod transcript;
mod worker;

use std::process::ExitCode;

use agentmine_runtime::exit::{self, Exit};
use clap::Parser as _;

use crate::args::{Args, Command};

#[tokio::main]
async fn main() -> ExitCode {
    agentmine_runtime::tls::install_default_provider();
    match dispatch(Args::parse()).await {
        Ok(code) => code.into(),
        Err(error) => exit::report(&error).into(),
    }
}

async fn dispatch(args: Args) -> anyhow::Result<Exit> {
    let Args { config, command } = args;
    match command {
        Command::Demo(demo) => demo::run(demo).await,
        Command::Run(run) => run::run(config, run).await,
        Command::Task(task) => task::run(config, task).await,
        Command::Session(session) => session::run(config, session).await,
        Command::Agent(agent) => agents::run(config, agent).await,
        Command::Memory(memory) => memory::run(config, memory).await,
        Command::Worker(worker) => worker::run(config, worker).await,
        // Boxed: it contains the start of every server, which the other commands do not need.
        Command::Mcp(mcp) => Box::pin(mcp::run(config, mcp)).await,
        Command::Config(command) => config::run(config, &command),
    }
}
