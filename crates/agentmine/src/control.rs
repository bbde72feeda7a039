//! What the commands over `agentmine-control` share: errors with exit codes, and whose secrets are redacted.

use agentmine_control::ControlError;
use agentmine_runtime::config::Config;
use agentmine_runtime::exit::Failure;
use agentmine_runtime::redact::Redactor;

use crate::print::program;

/// The error of a command.
pub(crate) fn failure(error: ControlError) -> anyhow::Error {
    let hint = hint(&error);
    let exit = error.exit();
    // A store's error keeps its chain.
    if let ControlError::Store(error) = error {
        return error.into();
    }
    let failure = Failure::new(exit, error.to_string());
    match hint {
        Some(hint) => failure.hint(hint).into(),
        None => failure.into(),
    }
}

fn hint(error: &ControlError) -> Option<String> {
    let program = program();
    match error {
        ControlError::TaskNotFound(_) => Some(format!("`{program} task list` shows the tasks")),
        ControlError::AgentNotFound(_) => Some(format!("`{program} agent list` shows the agents")),
        ControlError::SessionNotFound(_) => {
            Some(format!("`{program} session list` shows the sessions"))
        }
        ControlError::MemoryNotFound(_) => Some(format!(
            "`{program} memory list` shows the records; --project names another project"
        )),
        ControlError::MemoryConflict { id, found, .. } => Some(format!(
            "look at it with `{program} memory show {id}`, then repeat the change with --version {found}"
        )),
        ControlError::SessionAlreadyRunning { session, .. } => {
            Some(format!("`{program} session show {session}` shows it"))
        }
        ControlError::Hinted { .. } => error.next_action(),
        ControlError::InvalidStatus(_)
        | ControlError::Config(_)
        | ControlError::Validation(_)
        | ControlError::Git(_)
        | ControlError::Store(_) => None,
    }
}

/// Redacts what the worker redacts.
pub(crate) fn redactor(config: &Config) -> Redactor {
    let of_servers = agentmine_consumer::operator_secrets(config);
    Redactor::new(config.secrets().into_iter().chain(of_servers))
}
