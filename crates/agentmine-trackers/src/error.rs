//! Why a tracker did not do as asked, and whose fault that is.

use agentmine_domain::{Blame, TrackerKind};
use agentmine_runtime::failpoint::OutcomeUnknown;
use agentmine_runtime::permit::Lapsed;
use chrono::{DateTime, Utc};

/// Why a tracker did not do as asked. Retries are over when a caller sees it.
#[derive(Debug, thiserror::Error)]
pub enum TrackerError {
    /// The credentials were refused (401).
    #[error("{tracker} refused the credentials: {detail}. hint: {hint}")]
    Unauthorized {
        /// Which tracker.
        tracker: TrackerKind,
        /// The tracker's message.
        detail: String,
        /// What the operator can do.
        hint: String,
    },
    /// The credentials are valid and do not allow this (403 without a rate limit).
    #[error("{tracker} refused access: {detail}. hint: {hint}")]
    Forbidden {
        /// Which tracker.
        tracker: TrackerKind,
        /// The tracker's message.
        detail: String,
        /// What the operator can do.
        hint: String,
    },
    /// There is no such repository, item or branch, or the token may not see it (404, 410).
    #[error("{what} was not found on {tracker}")]
    NotFound {
        /// Which tracker.
        tracker: TrackerKind,
        /// What was looked for.
        what: String,
    },
    /// The tracker asked to wait for longer than one call may take.
    #[error("{tracker} limits the rate of requests until {until}")]
    RateLimited {
        /// Which tracker.
        tracker: TrackerKind,
        /// When it accepts requests again.
        until: DateTime<Utc>,
    },
    /// The tracker understood the request and refused it (409, 422 and the like).
    #[error("{tracker} refused: {detail}")]
    Refused {
        /// Which tracker.
        tracker: TrackerKind,
        /// The tracker's message.
        detail: String,
    },
    /// The issue is confidential: only some people may read it, and its pull request would show the text to others.
    #[error(
        "{what} is confidential, and its merge request would publish what it says; expected an issue that everybody who sees the project may read. hint: describe the work in an issue that is not confidential"
    )]
    Confidential {
        /// Which tracker.
        tracker: TrackerKind,
        /// Which issue.
        what: String,
    },
    /// The repository (project) is archived, or is to be deleted in some days: it is read only.
    #[error(
        "{what} is {state}, so that nothing can be written to it. hint: {remedy}, or stop the task"
    )]
    Archived {
        /// Which tracker.
        tracker: TrackerKind,
        /// Which repository.
        what: String,
        /// That it is archived, or is to be deleted.
        state: &'static str,
        /// What a person can do.
        remedy: &'static str,
    },
    /// The configuration or this program asked for something that cannot be. Nothing was sent.
    #[error("{tracker}: {detail}")]
    Invalid {
        /// Which tracker.
        tracker: TrackerKind,
        /// What is wrong, and where known what to do.
        detail: String,
    },
    /// The tracker could not be reached, failed, or sent a response that cannot be read.
    #[error("{tracker} is unavailable: {detail}{}", after(*until))]
    Unavailable {
        /// Which tracker.
        tracker: TrackerKind,
        /// The last failure.
        detail: String,
        /// When it asked to be tried again (`Retry-After`).
        until: Option<DateTime<Utc>>,
    },
    /// The lease under which a write was to be sent may have ended. Nothing was sent.
    #[error("nothing was written to {tracker}: {lapsed}")]
    NotPermitted {
        /// Which tracker.
        tracker: TrackerKind,
        /// Since when.
        lapsed: Lapsed,
    },
}

fn after(until: Option<DateTime<Utc>>) -> String {
    until.map_or_else(String::new, |until| {
        format!(" (it asks to wait until {until})")
    })
}

impl From<OutcomeUnknown> for TrackerError {
    fn from(error: OutcomeUnknown) -> Self {
        Self::unavailable(TrackerKind::GitHub, error.to_string())
    }
}

impl TrackerError {
    pub(crate) fn archived(tracker: TrackerKind, what: String) -> Self {
        Self::Archived {
            tracker,
            what,
            state: "archived",
            remedy: "take it out of the archive",
        }
    }

    pub(crate) fn refused(tracker: TrackerKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::Refused { tracker, detail }
    }

    pub(crate) fn invalid(tracker: TrackerKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::Invalid { tracker, detail }
    }

    /// An outage with no known end.
    pub(crate) fn unavailable(tracker: TrackerKind, detail: impl Into<String>) -> Self {
        Self::Unavailable {
            tracker,
            detail: detail.into(),
            until: None,
        }
    }

    /// Whose fault this is, and until when.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            // A token and its permissions are the operator's configuration.
            Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::Archived { .. }
            | Self::Invalid { .. } => Blame::Ours,
            Self::NotFound { .. } | Self::Refused { .. } | Self::Confidential { .. } => Blame::Task,
            Self::RateLimited { until, .. } => Blame::World {
                until: Some(*until),
            },
            Self::Unavailable { until, .. } => Blame::World { until: *until },
            Self::NotPermitted { .. } => Blame::OUTAGE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_whose_fault_it_is() {
        let tracker = TrackerKind::GitHub;
        let detail = String::from("x");
        let until = DateTime::UNIX_EPOCH;
        let cases = [
            (
                TrackerError::Unauthorized {
                    tracker,
                    detail: detail.clone(),
                    hint: detail.clone(),
                },
                Blame::Ours,
            ),
            (
                TrackerError::Invalid {
                    tracker,
                    detail: detail.clone(),
                },
                Blame::Ours,
            ),
            (
                TrackerError::NotFound {
                    tracker,
                    what: detail.clone(),
                },
                Blame::Task,
            ),
            (
                TrackerError::Refused {
                    tracker,
                    detail: detail.clone(),
                },
                Blame::Task,
            ),
            (
                TrackerError::RateLimited { tracker, until },
                Blame::World { until: Some(until) },
            ),
            (
                TrackerError::Unavailable {
                    tracker,
                    detail: detail.clone(),
                    until: Some(until),
                },
                Blame::World { until: Some(until) },
            ),
            (
                TrackerError::Unavailable {
                    tracker,
                    detail,
                    until: None,
                },
                Blame::OUTAGE,
            ),
        ];
        for (error, blame) in cases {
            assert_eq!(error.blame(), blame, "{error}");
        }
    }

    #[test]
    fn an_outage_with_a_known_end_names_it() {
        let error = TrackerError::Unavailable {
            tracker: TrackerKind::GitHub,
            detail: "503".into(),
            until: Some(DateTime::UNIX_EPOCH),
        };
        assert_eq!(
            error.to_string(),
            "github is unavailable: 503 (it asks to wait until 1970-01-01 00:00:00 UTC)"
        );
    }
}
