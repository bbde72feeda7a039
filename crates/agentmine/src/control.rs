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

/// Redacts what the worker redacts.
pub(crate) fn redactor(config: &Config) -> Redactor {
    let of_servers = agentmine_consumer::operator_secrets(config);
    Redactor::new(config.secrets().into_iter().chain(of_servers))
}
