//! `agentmine config`.

use std::path::PathBuf;

use agentmine_runtime::config::{self, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::Result;

use crate::args::ConfigCommand;
use crate::print::line;

/// Runs one of the commands.
pub(crate) fn run(file: Option<PathBuf>, command: &ConfigCommand) -> Result<Exit> {
    match command {
        ConfigCommand::Check => check(file),
        ConfigCommand::Schema => {
            line(serde_json::to_string_pretty(&config::json_schema())?);
            Ok(Exit::Done)
        }
    }
}

/// Also reports what a producer or consumer would find only at its start. It connects to nothing.
fn check(file: Option<PathBuf>) -> Result<Exit> {
    let config = config::load(&Sources::from_process(file))?;
    let mut faults = Vec::new();
    if let Err(error) = config.trackers.require_one() {
        faults.push(error.to_string());
    }
    if let Err(error) = config.require_a_tool() {
        faults.push(error.to_string());
    }
    if let Err(error) = agentmine_trackers::from_config(&config.trackers) {
        faults.push(format!("trackers: {error}"));
    }
    if let Err(error) = agentmine_llm::from_config(&config.model) {
        faults.push(format!("model: {error:#}"));
    }
    if faults.is_empty() {
        line("the configuration is valid");
        return Ok(Exit::Done);
    }
    Err(Failure::new(Exit::Config, faults.join("\n")).into())
}
