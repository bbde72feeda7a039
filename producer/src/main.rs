//! The producer's process.

use std::process::ExitCode;

use agentmine_producer::{ProducerArgs, main as produce};
use agentmine_runtime::exit;
use clap::Parser as _;

fn main() -> ExitCode {
    agentmine_runtime::allocator::keep_small();
    async_main()
}

#[tokio::main]
async fn async_main() -> ExitCode {
    match Box::pin(produce(ProducerArgs::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error).into(),
    }
}
