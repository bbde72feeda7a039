//! What asked for a task.

use crate::round::Round;

/// With this begins the trigger of a task that a command asked for; the id of the comment follows.
pub const COMMAND_TRIGGER: &str = "command-";

/// What asked for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedBy {
    /// The request label on its item.
    Label,
    /// A round, or `/agentmine retry`: its item need not have any label of AgentMine before work on it begins.
    Other,
}

impl AskedBy {
    /// By the trigger of a task.
    #[must_use]
    pub fn of(trigger: &str) -> Self {
        match Round::number_of(trigger).is_some() || trigger.starts_with(COMMAND_TRIGGER) {
            true => Self::Other,
            false => Self::Label,
        }
    }
}
