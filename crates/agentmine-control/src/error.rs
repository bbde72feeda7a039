//! Why an operation was refused, with the codes of both skins.

use agentmine_runtime::exit::Exit;
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
}

impl ControlError {
    /// The code of the MCP server (spec 003, "MCP error codes"); `None`: an internal error of the protocol.
    pub fn mcp_code(&self) -> Option<i32> {
        match self {
            Self::TaskNotFound(_) => Some(-32001),
            Self::AgentNotFound(_) => Some(-32002),
            Self::SessionNotFound(_) => Some(-32003),
            Self::MemoryNotFound(_) => Some(-32007),
            Self::InvalidStatus(_) | Self::MemoryConflict { .. } => Some(-32004),
            Self::SessionAlreadyRunning { .. } => Some(-32005),
            Self::Config(_) => Some(-32006),
            Self::Validation(_) => Some(-32007),
            Self::Git(_) => Some(-32008),
            Self::Store(_) => None,
        }
    }

    /// The exit code of the command line (spec 003, "MCP error codes").
    #[must_use]
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
        }
    }
}
