//! The filter of log lines.

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

/// Parses `log.level`: a level, or directives such as `info,agentmine_queue=debug`.
pub(crate) fn log_filter(level: &str) -> Result<EnvFilter> {
    // At info, rmcp logs the notifications of servers, which are a sandbox's own text, and sqlx repeats
    // the database's notices. The user's own directives come later and win.
    let level = match level.split_once(',') {
        Some((base, directives)) => format!("{base},rmcp=warn,sqlx=warn,{directives}"),
        None => format!("{level},rmcp=warn,sqlx=warn"),
    };
    EnvFilter::builder()
        .parse(&level)
        .with_context(|| format!("cannot parse the log level `{level}`"))
}
