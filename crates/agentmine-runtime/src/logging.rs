//! Logs go to stderr; stdout is for the output of commands.
//!
//! A message is readable by itself; facts are dotted fields (`task.id`, `epoch`, `duration_ms`). No
//! secret, no issue text and no file content is logged.

use std::io::IsTerminal;

use anyhow::Result;

use crate::config::{Log, LogFormat, log_filter};

/// Starts logging for the process.
///
/// # Errors
/// If `log.level` cannot be parsed, or logging was started before.
pub fn init(log: &Log) -> Result<()> {
    let filter = log_filter(&log.level)?;
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
