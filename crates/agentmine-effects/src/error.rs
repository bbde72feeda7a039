//! Errors of effects.

use agentmine_domain::EffectKey;
use agentmine_store::StoreError;
use agentmine_trackers::TrackerError;

/// An effect failed, or its outcome is unknown. The whole effect may be retried.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The effect could not be recorded, or the lease is lost.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tracker could not be read or written.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// The record of an earlier execution cannot be read.
    #[error("the record of {effect} cannot be read: {detail}")]
    Record {
        /// Which effect.
        effect: String,
        /// The decoding error.
        detail: serde_json::Error,
    },
}

/// What came of an effect cannot be decoded, or not be encoded.
pub(crate) fn unreadable(effect: &EffectKey) -> impl Fn(serde_json::Error) -> EffectError {
    move |detail| EffectError::Record {
        effect: effect.to_string(),
        detail,
    }
}

/// Whether the report of an end is given up. A token is renewed; then the end is reported.
pub(crate) fn ends_the_report(error: &TrackerError) -> bool {
    is_final(error) && !matches!(error, TrackerError::Unauthorized { .. })
}

/// Whether the error is permanent, so that a retry would not help.
#[must_use]
pub fn is_final(error: &TrackerError) -> bool {
    match error {
        TrackerError::Unauthorized { .. }
        | TrackerError::Forbidden { .. }
        | TrackerError::Archived { .. }
        | TrackerError::Invalid { .. }
        | TrackerError::NotFound { .. }
        | TrackerError::Refused { .. }
        | TrackerError::Confidential { .. } => true,
        TrackerError::RateLimited { .. }
        | TrackerError::Unavailable { .. }
        | TrackerError::NotPermitted { .. } => false,
    }
}

/// Whether the refusal of a comment may concern comments on this item alone, as where its conversation is locked or its
/// comments are switched off. Where the credentials are at fault, or the item is gone, everything else is refused too.
#[must_use]
pub fn may_be_of_comments(error: &TrackerError) -> bool {
    matches!(
        error,
        TrackerError::Forbidden { .. }
            | TrackerError::NotFound { .. }
            | TrackerError::Refused { .. }
    )
}
