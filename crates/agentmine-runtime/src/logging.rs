//! Logs go to stderr, so that stdout stays free for what a command prints.
//!
//! A message reads by itself; facts beside it are dotted fields (`task.id`, `epoch`,
//! `duration_ms`). No secret, no issue text and no file content is logged.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts logging for the process.
///
/// # Errors
/// When `log.level` cannot be read, or logging has been started already.
pub fn init(log: &Log) -> Result<()> {
    let filter = filter(&log.level)?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .try_init(),
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .with_target(false)
            .compact()
            .try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

/// Reads `log.level`: a level, or directives as `info,agentmine_queue=debug`.
pub(crate) fn filter(level: &str) -> Result<EnvFilter> {
    // rmcp logs at info what servers notify, which is a sandbox's own text; sqlx repeats the
    // database's notices. What the user says of them comes later and wins.
    let level = match level.split_once(',') {
        Some((base, directives)) => format!("{base},rmcp=warn,sqlx=warn,{directives}"),
        None => format!("{level},rmcp=warn,sqlx=warn"),
    };
    EnvFilter::builder()
        .parse(&level)
        .with_context(|| format!("cannot read the log level `{level}`"))
}
