//! What caused the end of a session, for metrics.

use agentmine_domain::Blame;

use crate::error::SessionError;

/// What caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nothing went wrong.
    None,
    /// The task: its repository, its text, or what the agent did.
    Task,
    /// A service outside.
    World,
    /// A person asked for it.
    Person,
    /// The fleet or its configuration. The error budget counts these.
    Ours,
}

impl Cause {
    /// All of them.
    pub(crate) const ALL: &'static [Self] = &[
        Self::None,
        Self::Task,
        Self::World,
        Self::Person,
        Self::Ours,
    ];

    /// The stable name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Task => "task",
            Self::World => "world",
            Self::Person => "person",
            Self::Ours => "ours",
        }
    }

    pub(crate) fn of(error: &SessionError) -> Self {
        match (error, error.blame()) {
            (SessionError::Interrupted(_), _) => Self::Person,
            (_, Blame::Task) => Self::Task,
            (_, Blame::World { .. }) => Self::World,
            (_, Blame::Ours) => Self::Ours,
        }
    }
}
