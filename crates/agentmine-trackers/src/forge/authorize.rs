//! Which token a request is sent with, and whose rate limits it counts against.

use agentmine_runtime::config::Secret;
use async_trait::async_trait;

use super::rate_limit::Holder;
use crate::error::TrackerError;

/// What a token is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// Credentials that know which token a request is sent with.
#[async_trait]
pub(crate) trait Authorize: std::fmt::Debug + Send + Sync {
    /// The token for a request to `path`, which is below the API's base.
    async fn token(&self, path: &str, purpose: Purpose) -> Result<Secret, TrackerError>;

    /// Whose limits a request to `path` counts against.
    async fn holder(&self, _path: &str) -> Result<Holder, TrackerError> {
        Ok(Holder::Token)
    }

    /// The server refused this token with a 401, although it may not have expired yet.
    async fn refused(&self, _token: &Secret) -> Renewal {
        Renewal::None
    }
}

/// Whether there may be another token in place of a refused one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    None,
    Possible,
}

/// The same token for every request.
#[async_trait]
impl Authorize for Secret {
    async fn token(&self, _: &str, _: Purpose) -> Result<Secret, TrackerError> {
        Ok(self.current())
    }
}
