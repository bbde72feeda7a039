//! Why upstream did not do what was asked.

use agentmine_runtime::failpoint::OutcomeUnknown;

/// Why upstream did not do what was asked. The texts are shown to the user of git.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("the repository's host refused the worker's credentials (HTTP {0})")]
    Auth(u16),
    #[error(
        "the repository was not found: it was deleted, renamed or moved, or the worker's token has no access to it"
    )]
    NotFound,
    /// Until a person changes something, which the text names.
    #[error("{0}")]
    Refused(String),
    /// This one request, and nothing shows that the next one fails, too.
    #[error("{0}")]
    Rejected(String),
    #[error("{0}")]
    Network(String),
}

impl From<OutcomeUnknown> for UpstreamError {
    fn from(error: OutcomeUnknown) -> Self {
        Self::Network(error.to_string())
    }
}
