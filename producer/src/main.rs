//! The producer's process.

use std::process::ExitCode;

use agentmine_producer::{ProducerArgs, main as produce};
use agentmine_runtime::exit;
use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(produce(ProducerArgs::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error).into(),
    }
}
