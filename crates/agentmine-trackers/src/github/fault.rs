//! How GitHub refuses, and the errors that follow.

use agentmine_domain::TrackerKind;

use crate::error::TrackerError;
use crate::forge::LimitRules;

/// GitHub's "Best practices for using the REST API".
pub(super) const LIMITS: LimitRules = LimitRules {
    header_prefix: "x-ratelimit-",
    phrases: &["secondary rate limit", "abuse detection"],
};

pub(super) fn refused(detail: impl Into<String>) -> TrackerError {
    TrackerError::refused(TrackerKind::GitHub, detail)
}

pub(super) fn invalid(detail: impl Into<String>) -> TrackerError {
    TrackerError::invalid(TrackerKind::GitHub, detail)
}

pub(super) fn unavailable(detail: impl Into<String>) -> TrackerError {
    TrackerError::unavailable(TrackerKind::GitHub, detail)
}
