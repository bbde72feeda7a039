//! The queues of wake-ups and their order.

use std::fmt;

use agentmine_domain::{Priority, Urgency, WakeUp};

/// One queue of wake-ups: that of a priority class, or the one before all classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Tasks that lost their worker.
    Takeover,
    /// New tasks of a priority.
    Class(Priority),
}

impl Lane {
    /// All of them, in the order in which messages are taken.
    pub(crate) const ORDER: [Self; 5] = [
        Self::Takeover,
        Self::Class(Priority::Critical),
        Self::Class(Priority::High),
        Self::Class(Priority::Medium),
        Self::Class(Priority::Low),
    ];

    /// The queue of a wake-up.
    pub(crate) fn of(wake_up: &WakeUp) -> Self {
        match wake_up.urgency {
            Urgency::Takeover => Self::Takeover,
            Urgency::Normal => Self::Class(wake_up.priority),
        }
    }

    /// The routing key, and the last part of the queue's name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Takeover => "takeover",
            Self::Class(priority) => priority.as_str(),
        }
    }

    /// The place in [`Self::ORDER`].
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Takeover => 0,
            Self::Class(Priority::Critical) => 1,
            Self::Class(Priority::High) => 2,
            Self::Class(Priority::Medium) => 3,
            Self::Class(Priority::Low) => 4,
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_is_at_its_place_and_every_priority_has_one() {
        for (place, lane) in Lane::ORDER.iter().enumerate() {
            assert_eq!(lane.place(), place);
        }
        for priority in Priority::ALL {
            assert!(Lane::ORDER.contains(&Lane::Class(*priority)));
        }
    }
}
