//! What a person who looks on is told, as it happens.

use agentmine_agent::Facts;
use agentmine_domain::{EndState, Phase, SessionId, Task, Usage};

/// Something happened in a session.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A session began.
    Began {
        /// The task as claimed.
        task: Box<Task>,
        /// The session.
        session: SessionId,
    },
    /// A phase began.
    Phase(Phase),
    /// A tool call began.
    ToolBegan {
        /// The tool.
        name: String,
        /// What it is called for, on one line.
        summary: String,
    },
    /// A tool call ended.
    ToolEnded {
        /// The tool.
        name: String,
        /// Whether it failed.
        is_error: bool,
        /// How long it took, in milliseconds.
        duration_ms: u64,
    },
    /// The model replied.
    Reply {
        /// What it said; may be empty.
        text: String,
        /// What the reply cost.
        usage: Usage,
    },
    /// Something worth a line.
    Note(String),
    /// The result was measured.
    Facts(Box<Facts>),
    /// The session ended.
    Ended {
        /// The task, as it is now.
        task: Box<Task>,
        /// How the task ended, if it is over.
        end: Option<EndState>,
        /// Why.
        reason: Option<String>,
    },
}
