//! Whether a fault that one pull request met would meet the others too.

use agentmine_effects::{EffectError, is_final};
use agentmine_trackers::TrackerError;

/// A tracker that does not answer for so many pull requests in a row is away.
const SILENT: u32 = 3;

/// Whether an error concerns the tracker or the store as a whole. A server that does not answer for one pull request may do so
/// for the next: `silent` counts such ones in a row.
pub(super) fn concerns_all(error: &anyhow::Error, silent: &mut u32) -> bool {
    let by_effect = match error.downcast_ref() {
        Some(EffectError::Tracker(error)) => Some(error),
        Some(EffectError::Store(_) | EffectError::Record { .. }) | None => None,
    };
    match error.downcast_ref::<TrackerError>().or(by_effect) {
        Some(TrackerError::Unavailable { .. }) => {
            *silent += 1;
            *silent >= SILENT
        }
        Some(TrackerError::Unauthorized { .. }) | None => true,
        Some(error) => !is_final(error),
    }
}

#[cfg(test)]
mod tests {
    use agentmine_domain::TrackerKind;
    use agentmine_store::StoreError;

    use super::*;

    #[test]
    fn a_fault_of_one_pull_request_is_not_that_of_the_others() {
        let tracker = TrackerKind::GitHub;
        let away = || TrackerError::Unavailable {
            tracker,
            detail: "502".into(),
            until: None,
        };
        let gone = || TrackerError::NotFound {
            tracker,
            what: "the check".into(),
        };
        let mut silent = 0;
        let mut concerns = |error| concerns_all(&error, &mut silent);
        assert!(!concerns(gone().into()));
        assert!(!concerns(EffectError::Tracker(gone()).into()));
        assert!(!concerns(away().into()));
        assert!(!concerns(EffectError::Tracker(away()).into()));
        // The third in a row.
        assert!(concerns(away().into()));
        assert!(concerns(StoreError::Unavailable("down".into()).into()));
        let limited = TrackerError::RateLimited {
            tracker,
            until: chrono::Utc::now(),
        };
        assert!(concerns(limited.into()));
    }
}
