//! The consumer's process.

use std::process::ExitCode;

use agentmine_consumer::{ConsumerArgs, main as consume};
use agentmine_runtime::exit;
use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(consume(ConsumerArgs::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error).into(),
    }
}
