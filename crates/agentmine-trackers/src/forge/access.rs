//! What a forge's answers say of a token, for a person who sets the fleet up.

use crate::error::TrackerError;

/// Repositories that are requested at most.
pub(crate) const MOST_ASKED: usize = 20;

/// Whether a token names its scopes, and has none of these.
pub(crate) fn lacks(scopes: Option<&[String]>, any_of: &[&str]) -> bool {
    scopes.is_some_and(|own| !own.iter().any(|it| any_of.contains(&it.as_str())))
}

/// Why the fleet cannot work on a repository that could not be read; `not_found` is said of one that is not there.
///
/// # Errors
/// What concerns more than this repository.
pub(crate) fn refusal(
    path: &str,
    error: TrackerError,
    not_found: String,
) -> Result<Option<String>, TrackerError> {
    match error {
        TrackerError::NotFound { .. } => Ok(Some(not_found)),
        TrackerError::Forbidden { detail, hint, .. } => {
            Ok(Some(format!("{path}: {detail}. hint: {hint}")))
        }
        TrackerError::Refused { .. } | TrackerError::Unavailable { .. } => Ok(Some(format!(
            "{path} cannot be read: {error}. hint: check it on the tracker; the scan skips it in the meantime"
        ))),
        error => Err(error),
    }
}

/// What was answered; `None` if it is not there, or the token may not see it.
pub(crate) fn shown<T>(asked: Result<T, TrackerError>) -> Result<Option<T>, TrackerError> {
    match asked {
        Ok(shown) => Ok(Some(shown)),
        Err(
            error @ (TrackerError::NotFound { .. }
            | TrackerError::Forbidden { .. }
            | TrackerError::Archived { .. }
            | TrackerError::Refused { .. }
            | TrackerError::Confidential { .. }),
        ) => {
            tracing::debug!(%error, "it is not shown");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
