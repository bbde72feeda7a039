//! How GitHub refuses, and the errors that follow.

use agentmine_domain::TrackerKind;

use crate::error::TrackerError;
use crate::forge::{LimitRules, Reply, SIGN_ON};

/// GitHub's "Best practices for using the REST API".
pub(super) const LIMITS: LimitRules = LimitRules {
    header_prefix: "x-ratelimit-",
    phrases: &["secondary rate limit", "abuse detection"],
};

/// What a list lacks because its token is not authorized for the single sign-on of some organizations: it is answered with 200
/// and without what belongs to them (`X-GitHub-SSO: partial-results; organizations=1,2`).
pub(super) fn hidden_by_sign_on(reply: &Reply) -> Option<TrackerError> {
    let said = reply.headers.get("x-github-sso")?.to_str().ok()?;
    let named = said.strip_prefix("partial-results")?;
    let ids = named.chars().filter(|c| c.is_ascii_digit() || *c == ',');
    let ids: String = ids.take(200).collect();
    Some(TrackerError::Forbidden {
        tracker: TrackerKind::GitHub,
        detail: format!("results of the organizations with the ids {ids} are omitted"),
        hint: SIGN_ON.to_owned(),
    })
}

pub(super) fn refused(detail: impl Into<String>) -> TrackerError {
    TrackerError::refused(TrackerKind::GitHub, detail)
}

pub(super) fn invalid(detail: impl Into<String>) -> TrackerError {
    TrackerError::invalid(TrackerKind::GitHub, detail)
}

pub(super) fn unavailable(detail: impl Into<String>) -> TrackerError {
    TrackerError::unavailable(TrackerKind::GitHub, detail)
}
