//! The producer's process.

use std::process::ExitCode;

use agentmine_producer::{Args, main as produce};
use agentmine_runtime::exit;
use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    match produce(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error).into(),
    }
}
