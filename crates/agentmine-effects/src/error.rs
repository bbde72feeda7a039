//! Why an effect did not happen.

use agentmine_store::StoreError;
use agentmine_trackers::TrackerError;

/// Why an effect did not happen, or is not known to have happened. It may be tried again in whole.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// It could not be recorded, or the lease is lost.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tracker could not be written to.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// What was recorded of it cannot be read.
    #[error("the record of {effect} cannot be read: {detail}")]
    Record {
        /// Which effect.
        effect: String,
        /// What is wrong with it.
        detail: serde_json::Error,
    },
}

/// Whether trying the same again is no use.
#[must_use]
pub fn is_final(error: &TrackerError) -> bool {
    match error {
        TrackerError::Unauthorized { .. }
        | TrackerError::Invalid { .. }
        | TrackerError::NotFound { .. }
        | TrackerError::Refused { .. } => true,
        TrackerError::RateLimited { .. } | TrackerError::Unavailable { .. } => false,
    }
}
