//! Why an operation was refused, with the codes of both skins.

use agentmine_runtime::exit::{Exit, Failure};
use agentmine_store::StoreError;

/// Why an operation failed. Nothing was changed, except where the message says so.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no task with this number or id.
    #[error("there is no task {0}")]
    TaskNotFound(String),
    /// An item that its tracker does not have.
    #[error("{0}")]
    ItemNotFound(String),
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
        hint: NextAction,
    },
}

/// What to do about an error. Each face renders it in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// Words for both faces.
    Text(String),
    /// An operation.
    Call {
        /// The tool with its arguments, as `task_retry with taskId 3`.
        tool: String,
        /// The command without the program's name, as `task retry 3`.
        command: String,
        /// What it does, as `opens it again`.
        does: String,
    },
}

impl NextAction {
    /// For a client of the MCP server.
    #[must_use]
    pub fn for_tools(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Call { tool, does, .. } => format!("{tool} {does}"),
        }
    }

    /// For a person at a terminal, who calls the program by this name.
    #[must_use]
    pub fn for_commands(&self, program: &str) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Call { command, does, .. } => format!("`{program} {command}` {does}"),
        }
    }
}

impl ControlError {
    /// Adds the next action, in words for both faces.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        self.hinted(NextAction::Text(hint.into()))
    }

    /// Adds the next action: an operation, as a tool and as a command, and what it does.
    #[must_use]
    pub fn next(
        self,
        tool: impl Into<String>,
        command: impl Into<String>,
        does: impl Into<String>,
    ) -> Self {
        self.hinted(NextAction::Call {
            tool: tool.into(),
            command: command.into(),
            does: does.into(),
        })
    }

    fn hinted(self, hint: NextAction) -> Self {
        Self::Hinted {
            error: Box::new(self),
            hint,
        }
    }

    /// The next action.
    pub fn next_action(&self) -> Option<NextAction> {
        let call = |tool: &str, command: &str, does: &str| {
            Some(NextAction::Call {
                tool: tool.to_owned(),
                command: command.to_owned(),
                does: does.to_owned(),
            })
        };
        match self {
            Self::Hinted { hint, .. } => Some(hint.clone()),
            Self::TaskNotFound(_) => call("task_list", "task list", "lists the tasks"),
            Self::ItemNotFound(_) => Some(NextAction::Text(
                "check its name, and whether the token may see its repository".into(),
            )),
            Self::AgentNotFound(_) => call("agent_list", "agent list", "lists the agents"),
            Self::SessionNotFound(_) => call("session_list", "session list", "lists the sessions"),
            Self::MemoryNotFound(_) => call("memory_list", "memory list", "lists the records"),
            Self::MemoryConflict { id, found, .. } => call(
                &format!("memory_get with id {id}"),
                &format!("memory show {id}"),
                &format!("shows it; then repeat the change with version {found}"),
            ),
            Self::SessionAlreadyRunning { session, .. } => call(
                &format!("session_end with sessionId {session}"),
                &format!("session end {session} --exit-code N"),
                "ends it",
            ),
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
            Self::TaskNotFound(_) | Self::ItemNotFound(_) => Some(-32001),
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
            Self::TaskNotFound(_) | Self::ItemNotFound(_) => "TaskNotFound",
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
            | Self::ItemNotFound(_)
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

    /// The error of the command line, for a person who calls the program by this name.
    #[must_use]
    pub fn failure(self, program: &str) -> Failure {
        let failure = Failure::new(self.exit(), self.to_string());
        match self.next_action() {
            Some(next) => failure.hint(next.for_commands(program)),
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
            let next = hinted.next_action().unwrap();
            assert_eq!(next.for_tools(), "do that");
        }
    }

    #[test]
    fn each_face_is_shown_its_own_next_action() {
        let error = ControlError::TaskNotFound("9".into());
        let next = error.next_action().unwrap();
        assert_eq!(next.for_tools(), "task_list lists the tasks");
        assert_eq!(
            next.for_commands("agentmine"),
            "`agentmine task list` lists the tasks"
        );
    }
}
