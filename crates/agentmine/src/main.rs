//! The command line: runs the fleet in one process, and shows what it did.

mod args;
mod demo;
mod embedded;
mod git;
mod inspect;
mod live;
mod mcp;
mod paths;
mod print;
mod run;
mod transcript;

use std::process::ExitCode;

use agentmine_runtime::exit;
use clap::Parser as _;

use crate::args::{Args, Command, ConfigCommand, SessionCommand, TaskCommand};

#[tokio::main]
async fn main() -> ExitCode {
    agentmine_runtime::tls::install_default_provider();
    match dispatch(Args::parse()).await {
        Ok(code) => code.into(),
        Err(error) => exit::report(&error).into(),
    }
}

async fn dispatch(args: Args) -> anyhow::Result<exit::Exit> {
    match args.command {
        Command::Demo(demo) => demo::run(demo).await,
        Command::Run(run) => run::run(args.config, run).await,
        Command::Task(TaskCommand::List {
            status,
            limit,
            json,
        }) => inspect::tasks(args.config, status, limit, json).await,
        Command::Task(TaskCommand::Show { task, json }) => {
            inspect::task(args.config, &task, json).await
        }
        Command::Task(TaskCommand::Stop { task }) => inspect::stop(args.config, &task).await,
        Command::Task(TaskCommand::Pause { task }) => inspect::pause(args.config, &task).await,
        Command::Task(TaskCommand::Resume { task }) => inspect::resume(args.config, &task).await,
        Command::Session(SessionCommand::List { limit, json }) => {
            inspect::sessions(args.config, limit, json).await
        }
        Command::Session(SessionCommand::Show {
            session,
            json,
            full,
        }) => inspect::session(args.config, &session, json, full).await,
        // Boxed: it holds every server's start, and the other commands none of it.
        Command::Mcp(mcp) => Box::pin(mcp::run(args.config, mcp)).await,
        Command::Config(ConfigCommand::Check) => inspect::check_config(args.config),
        Command::Config(ConfigCommand::Schema) => inspect::print_schema(),
    }
}
