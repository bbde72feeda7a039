//! The consumer's process.

use std::process::ExitCode;

use agentmine_consumer::{ConsumerArgs, main as consume};
use agentmine_runtime::exit;
use clap::Parser as _;

fn main() -> ExitCode {
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
