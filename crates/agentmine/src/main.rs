//! The command line: runs the fleet in one process, and shows what it did.

mod again;
mod agents;
mod agreement;
mod args;
mod config;
mod control;
mod demo;
mod doctor;
mod embedded;
mod git;
mod live;
mod live_reply;
mod loop_args;
mod mcp;
mod memory;
mod pager;
mod paths;
mod print;
mod queue;
mod run;
mod session;
mod store;
mod summary;
mod takeover;
mod task;
mod top;
mod transcript;
mod worker;

use std::process::ExitCode;

use agentmine_runtime::config::{Sources, unread_variables};
use agentmine_runtime::exit::{self, Exit};
use clap::{CommandFactory as _, Parser as _};

use crate::args::{Args, Command};

fn main() -> ExitCode {
    agentmine_runtime::allocator::keep_small();
    async_main()
}

#[tokio::main]
async fn async_main() -> ExitCode {
    agentmine_runtime::tls::install_default_provider();
    let outcome = match Args::try_parse() {
        Ok(args) => Box::pin(dispatch(args)).await.and_then(print::all_written),
        Err(usage) => print::usage(&usage),
    };
    match outcome {
        Ok(code) => code.into(),
        Err(error) => exit::report(&error).into(),
    }
}

async fn dispatch(args: Args) -> anyhow::Result<Exit> {
    args.check_files()?;
    warn_of_variables(&args);
    let Args { config, command } = args;
    match command {
        Command::Demo(demo) => Box::pin(demo::run(demo)).await,
        Command::Run(run) => Box::pin(run::run(config, run)).await,
        Command::Task(task) => task::run(config, task).await,
        Command::Session(session) => session::run(config, session).await,
        Command::Agent(agent) => agents::run(config, agent).await,
        Command::Memory(memory) => memory::run(config, memory).await,
        Command::Worker(worker) => worker::run(config, worker).await,
        // Boxed: it contains the start of every server, which the other commands do not need.
        Command::Mcp(mcp) => Box::pin(mcp::run(config, mcp)).await,
        Command::Config(command) => config::run(config, &command),
        Command::Queue(command) => queue::run(config, command).await,
        Command::Store(command) => store::run(config, command).await,
        Command::Doctor(doctor) => Box::pin(doctor::run(config, doctor)).await,
        Command::Top(top) => top::run(config, top).await,
        Command::Completions { shell } => Ok(completions(shell)),
    }
}

/// Warns of mistyped variables on stderr, whatever the log's level is. `doctor` reports them itself.
fn warn_of_variables(args: &Args) {
    if !args.reads_configuration() || matches!(args.command, Command::Doctor(_)) {
        return;
    }
    let sources = Sources::from_process(args.config.clone());
    let sources = match args.command {
        // They do not read a file that may belong to a repository.
        Command::Run(_) | Command::Mcp(_) => sources.without_working_folder(),
        _ => sources,
    };
    for unread in unread_variables(&sources) {
        print::note(format!("warning: {}", print::clean(&unread)));
    }
}

/// Prints the script for a shell.
fn completions(shell: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "agentmine", &mut script);
    print::line(String::from_utf8_lossy(&script).trim_end());
    Exit::Done
}
