//! Why a queue did not do as asked, and whose fault that is.

use agentmine_domain::Blame;
use agentmine_runtime::failpoint::OutcomeUnknown;

/// Why a queue did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The broker cannot be reached or does not answer. Tasks are found by polling meanwhile.
    #[error("the queue is unavailable: {0}")]
    Unavailable(String),
    /// The broker took the message but had no queue for it (`basic.return`).
    #[error("no queue is bound for the message: {0}")]
    Unroutable(String),
    /// The broker refused the message (`basic.nack`).
    #[error("the broker refused the message: {0}")]
    Refused(String),
    /// The configuration, or a message of AgentMine, is not valid.
    #[error("{0}")]
    Invalid(String),
}

impl From<OutcomeUnknown> for QueueError {
    fn from(error: OutcomeUnknown) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl QueueError {
    /// Whose fault this is. No broker says until when it is away.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unavailable(_) | Self::Unroutable(_) | Self::Refused(_) => Blame::OUTAGE,
            Self::Invalid(_) => Blame::Ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_whose_fault_it_is() {
        let detail = || String::from("x");
        for (error, blame) in [
            (QueueError::Unavailable(detail()), Blame::OUTAGE),
            (QueueError::Unroutable(detail()), Blame::OUTAGE),
            (QueueError::Refused(detail()), Blame::OUTAGE),
            (QueueError::Invalid(detail()), Blame::Ours),
        ] {
            assert_eq!(error.blame(), blame, "{error}");
        }
    }
}
