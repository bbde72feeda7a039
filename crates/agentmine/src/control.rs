//! What the commands over `agentmine-control` share: errors with exit codes, and whose secrets are redacted.

use agentmine_control::ControlError;
use agentmine_runtime::config::Config;
use agentmine_runtime::redact::Redactor;

use crate::print::program;

/// The error of a command. That of the store keeps its chain.
pub(crate) fn failure(error: ControlError) -> anyhow::Error {
    match error {
        ControlError::Store(error) => error.into(),
        error => error.failure(&program()).into(),
    }
}

/// How many entries of a list to ask for next, if some are still wanted. An operation gives 500 at once; a limit of 0 is none.
pub(crate) fn part(limit: u32, have: usize) -> Option<u32> {
    const MOST: u32 = 500;
    let have = u32::try_from(have).unwrap_or(u32::MAX);
    match limit {
        0 => Some(MOST),
        limit => Some(limit.saturating_sub(have).min(MOST)).filter(|left| *left > 0),
    }
}

/// Redacts what the worker redacts.
pub(crate) fn redactor(config: &Config) -> Redactor {
    let of_servers = agentmine_consumer::operator_secrets(config);
    Redactor::new(config.secrets().into_iter().chain(of_servers))
}
