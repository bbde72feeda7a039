//! What an error of a tracker means for an effect.

use agentmine_domain::TrackerKind;
use agentmine_trackers::TrackerError;
use chrono::DateTime;

use super::forge::{not_found, refused, unauthorized, unavailable};
use super::world::lapsed;
use crate::error::ends_the_report;
use crate::{is_final, may_be_of_comments};

#[test]
fn each_error_is_final_or_not_and_may_concern_comments_alone_or_not() {
    let tracker = TrackerKind::GitHub;
    let text = String::new;
    let forbidden = TrackerError::Forbidden {
        tracker,
        detail: text(),
        hint: text(),
    };
    let limited = TrackerError::RateLimited {
        tracker,
        until: DateTime::UNIX_EPOCH,
    };
    let confidential = TrackerError::Confidential {
        tracker,
        what: text(),
    };
    let archived = TrackerError::Archived {
        tracker,
        what: text(),
        state: "archived",
        remedy: "unarchive it",
    };
    let invalid = TrackerError::Invalid {
        tracker,
        detail: text(),
    };
    let late = TrackerError::NotPermitted {
        tracker,
        lapsed: lapsed().check().unwrap_err(),
    };
    // Whether it is final, ends a report, and may be of comments alone.
    for (error, expected) in [
        (unauthorized(), (true, false, false)),
        (forbidden, (true, true, true)),
        (not_found(), (true, true, true)),
        (refused(), (true, true, true)),
        (confidential, (true, true, false)),
        (archived, (true, true, false)),
        (invalid, (true, true, false)),
        (limited, (false, false, false)),
        (unavailable(), (false, false, false)),
        (late, (false, false, false)),
    ] {
        let found = (
            is_final(&error),
            ends_the_report(&error),
            may_be_of_comments(&error),
        );
        assert_eq!(found, expected, "{error}");
    }
}
