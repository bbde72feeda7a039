//! The consumer's process.

use std::process::ExitCode;

use agentmine_consumer::{ConsumerArgs, main as consume};
use agentmine_process::watch_as_first_process;
use agentmine_runtime::exit;
use clap::Parser as _;

fn main() -> ExitCode {
    // In a container without an init of its own, what sandboxes, git and MCP servers leave behind is waited for.
    if let Some(code) = watch_as_first_process() {
        return code.into();
    }
    agentmine_runtime::allocator::keep_small();
    async_main()
}

#[tokio::main]
async fn async_main() -> ExitCode {
    match Box::pin(consume(ConsumerArgs::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error).into(),
    }
}
