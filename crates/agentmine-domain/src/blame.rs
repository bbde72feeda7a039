//! Whose fault an error is.

use chrono::{DateTime, Utc};

/// Whose fault an error is. Each error type reports it; the consumer alone decides what it means for
/// the task (retry, fail, give back).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The task itself: its repository, its instructions, its permissions, or what the agent did.
    Task,
    /// An external service is unavailable or overloaded: a model API, a tracker, a git host, the
    /// container engine, the store.
    World {
        /// When the service accepts requests again, if it said so.
        until: Option<DateTime<Utc>>,
    },
    /// A bug in this program or an error in its configuration.
    Ours,
}

impl Blame {
    /// An outage without a known end.
    pub const OUTAGE: Self = Self::World { until: None };

    /// When a retry makes sense, if the service said so.
    #[must_use]
    pub fn until(self) -> Option<DateTime<Utc>> {
        match self {
            Self::World { until } => until,
            Self::Task | Self::Ours => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_outage_has_an_end() {
        let at = DateTime::from_timestamp(1_790_000_000, 0);
        assert_eq!(Blame::World { until: at }.until(), at);
        assert_eq!(Blame::OUTAGE.until(), None);
        assert_eq!(Blame::Ours.until(), None);
    }
}
