//! The filter of log lines.

use anyhow::{Context, Result, bail};
use tracing_subscriber::EnvFilter;

/// Parses `log.level`: a level, or directives such as `info,agentmine_queue=debug`.
pub(crate) fn log_filter(level: &str) -> Result<EnvFilter> {
    // A bare word that is no level would be taken for the name of a module, and nothing else logged.
    if let Some(word) = level.split(',').find(|part| !is_directive(part.trim())) {
        bail!("`{word}` is neither a log level nor a directive");
    }
    // At info, rmcp logs the notifications of servers, which are a sandbox's own text, and sqlx repeats
    // the database's notices. lapin repeats each failed attempt to connect, which the queue reports once. The
    // user's own directives come later and win.
    let level = match level.split_once(',') {
        Some((base, directives)) => format!("{base},rmcp=warn,sqlx=warn,lapin=off,{directives}"),
        None => format!("{level},rmcp=warn,sqlx=warn,lapin=off"),
    };
    EnvFilter::builder()
        .parse(&level)
        .with_context(|| format!("cannot parse the log level `{level}`"))
}

/// Whether this is a level, or a directive such as `agentmine_queue=debug`.
fn is_directive(part: &str) -> bool {
    let is_level = part
        .parse::<tracing_subscriber::filter::LevelFilter>()
        .is_ok();
    !part.is_empty() && (is_level || part.contains(['=', '[']))
}
