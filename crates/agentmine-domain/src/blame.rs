//! Whose fault an error is.

use chrono::{DateTime, Utc};

/// Whose fault an error is. An error says this of itself; what it means for the task (try again,
/// fail, give back) is decided in one place, by the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The task itself: its repository, its instructions, its permissions, or what the agent did.
    Task,
    /// Something outside that is away or overloaded: a model API, a tracker, a git host, the engine,
    /// the store.
    World {
        /// When the other side said that it can be asked again.
        until: Option<DateTime<Utc>>,
    },
    /// A fault of this program or of its configuration.
    Ours,
}

impl Blame {
    /// The world's, with no known end.
    pub const OUTAGE: Self = Self::World { until: None };

    /// When it can be tried again, if the other side said so.
    #[must_use]
    pub fn until(self) -> Option<DateTime<Utc>> {
        match self {
            Self::World { until } => until,
            Self::Task | Self::Ours => None,
        }
    }
}
