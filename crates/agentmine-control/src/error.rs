//! Why an operation was refused, with the codes of both skins.

use agentmine_runtime::exit::{Exit, Failure};
use agentmine_store::StoreError;

/// Why an operation failed. Nothing was changed, except where the message says so.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no task with this number or id.
    #[error("there is no task {0}")]
    TaskNotFound(String),
    /// There is no agent with this name.
    #[error("there is no agent {0:?}")]
    AgentNotFound(String),
    /// There is no session with this number.
    #[error("there is no session {0}")]
    SessionNotFound(String),
    /// The project has no record with this id.
    #[error("there is no record {0:?} in the memory of this project")]
    MemoryNotFound(String),
    /// The record was changed since the version that a change was made from.
    #[error(
        "the record {id:?} has version {found}, but the change was made from version {expected}"
    )]
    MemoryConflict {
        /// The record.
        id: String,
        /// The version that the change was made from.
        expected: i64,
        /// The version that it has.
        found: i64,
    },
    /// The state of the task or session does not allow it.
    #[error("{0}")]
    InvalidStatus(String),
    /// The task has a running session.
    #[error("task {task} already has a running session, {session}")]
    SessionAlreadyRunning {
        /// The task's number.
        task: String,
        /// The session's number.
        session: String,
    },
    /// The configuration does not allow it.
    #[error("{0}")]
    Config(String),
    /// An argument is wrong: what was seen, and what was expected.
    #[error("{0}")]
    Validation(String),
    /// Git failed.
    #[error("{0}")]
    Git(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another error, with a hint of its own.
    #[error("{error}")]
    Hinted {
        /// The error.
        error: Box<Self>,
        /// The next action.
        hint: String,
    },
}

impl ControlError {
    /// Adds the next action.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self::Hinted {
            error: Box::new(self),
            hint: hint.into(),
        }
    }

    /// The next action.
    pub fn next_action(&self) -> Option<String> {
        match self {
            Self::Hinted { hint, .. } => Some(hint.clone()),
            Self::TaskNotFound(_) => {
                Some("task_list (`agentmine task list`) lists the tasks".into())
            }
            Self::AgentNotFound(_) => {
                Some("agent_list (`agentmine agent list`) lists the agents".into())
            }
            Self::SessionNotFound(_) => {
                Some("session_list (`agentmine session list`) lists the sessions".into())
            }
            Self::MemoryNotFound(_) => {
                Some("memory_list (`agentmine memory list`) lists the records".into())
            }
            Self::MemoryConflict { id, found, .. } => Some(format!(
                "look at it with memory_get (`agentmine memory show {id}`), then repeat the change with version {found}"
            )),
            Self::SessionAlreadyRunning { session, .. } => Some(format!(
                "end it first: session_end with sessionId {session} (`agentmine session end {session} --exit-code N`)"
            )),
            Self::InvalidStatus(_)
            | Self::Config(_)
            | Self::Validation(_)
            | Self::Git(_)
            | Self::Store(_) => None,
        }
    }

    /// The code of the MCP server (spec 003, "MCP error codes"); `None`: an internal error of the protocol.
    pub fn mcp_code(&self) -> Option<i32> {
        match self {
            Self::TaskNotFound(_) => Some(-32001),
            Self::AgentNotFound(_) => Some(-32002),
            Self::SessionNotFound(_) => Some(-32003),
            // The id is an argument, and the specification has no code for records.
            Self::MemoryNotFound(_) => Some(-32007),
            Self::InvalidStatus(_) | Self::MemoryConflict { .. } => Some(-32004),
            Self::SessionAlreadyRunning { .. } => Some(-32005),
            Self::Config(_) => Some(-32006),
            Self::Validation(_) => Some(-32007),
            Self::Git(_) => Some(-32008),
            Self::Store(_) => None,
            Self::Hinted { error, .. } => error.mcp_code(),
        }
    }

    /// The name of the code (spec 003).
    pub fn name(&self) -> &'static str {
        match self {
            Self::TaskNotFound(_) => "TaskNotFound",
            Self::AgentNotFound(_) => "AgentNotFound",
            Self::SessionNotFound(_) => "SessionNotFound",
            Self::MemoryNotFound(_) => "ValidationError",
            Self::MemoryConflict { .. } => "InvalidStatus",
            Self::InvalidStatus(_) => "InvalidStatus",
            Self::SessionAlreadyRunning { .. } => "SessionAlreadyRunning",
            Self::Config(_) => "ConfigError",
            Self::Validation(_) => "ValidationError",
            Self::Git(_) => "GitError",
            Self::Store(_) => "StoreError",
            Self::Hinted { error, .. } => error.name(),
        }
    }

    /// The exit code of the command line (spec 003).
    pub fn exit(&self) -> Exit {
        match self {
            Self::TaskNotFound(_)
            | Self::AgentNotFound(_)
            | Self::SessionNotFound(_)
            | Self::MemoryNotFound(_)
            | Self::Git(_) => Exit::NotFound,
            Self::InvalidStatus(_)
            | Self::MemoryConflict { .. }
            | Self::SessionAlreadyRunning { .. } => Exit::WrongState,
            Self::Config(_) => Exit::Config,
            Self::Validation(_) => Exit::Validation,
            Self::Store(_) => Exit::Other,
            Self::Hinted { error, .. } => error.exit(),
        }
    }

    /// The error of the command line.
    #[must_use]
    pub fn failure(self) -> Failure {
        let failure = Failure::new(self.exit(), self.to_string());
        match self.next_action() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_skins_have_the_codes_of_the_specification() {
        let text = || "x".to_owned();
        let running = ControlError::SessionAlreadyRunning {
            task: text(),
            session: text(),
        };
        for (error, name, code, exit) in [
            (
                ControlError::TaskNotFound(text()),
                "TaskNotFound",
                -32001,
                5,
            ),
            (
                ControlError::AgentNotFound(text()),
                "AgentNotFound",
                -32002,
                5,
            ),
            (
                ControlError::SessionNotFound(text()),
                "SessionNotFound",
                -32003,
                5,
            ),
            (
                ControlError::InvalidStatus(text()),
                "InvalidStatus",
                -32004,
                6,
            ),
            (running, "SessionAlreadyRunning", -32005, 6),
            (ControlError::Config(text()), "ConfigError", -32006, 3),
            (
                ControlError::Validation(text()),
                "ValidationError",
                -32007,
                2,
            ),
            (ControlError::Git(text()), "GitError", -32008, 5),
        ] {
            let hinted = error.hint("do that");
            assert_eq!(hinted.name(), name);
            assert_eq!(
                (hinted.mcp_code(), hinted.exit() as u8),
                (Some(code), exit),
                "{name}"
            );
            assert_eq!(hinted.next_action().as_deref(), Some("do that"));
        }
    }
}
