//! Which other pull requests a fault that one of them met would meet too.

use std::collections::HashSet;

use agentmine_domain::ItemRef;
use agentmine_effects::{EffectError, is_final};
use agentmine_trackers::TrackerError;

/// A tracker that does not answer for so many pull requests in a row is away.
const SILENT: u32 = 3;

/// The faults of one look at all pull requests of a tracker.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// A server that does not answer for one pull request may do so for the next: such ones in a row.
    silent: u32,
    /// The owners whose repositories are limited: each installation of an App has its own limits.
    limited: HashSet<String>,
}

impl Faults {
    /// Whether the pull requests of an item's owner are limited.
    pub(super) fn is_limited(&self, item: &ItemRef) -> bool {
        self.limited.contains(owner(item))
    }

    pub(super) fn none(&mut self) {
        self.silent = 0;
    }

    /// Takes note of an error. Whether it concerns the tracker or the store as a whole.
    pub(super) fn concerns_all(&mut self, item: &ItemRef, error: &anyhow::Error) -> bool {
        let by_effect = match error.downcast_ref() {
            Some(EffectError::Tracker(error)) => Some(error),
            Some(EffectError::Store(_) | EffectError::Record { .. }) | None => None,
        };
        match error.downcast_ref::<TrackerError>().or(by_effect) {
            Some(TrackerError::Unavailable { .. }) => {
                self.silent += 1;
                self.silent >= SILENT
            }
            Some(TrackerError::RateLimited { .. }) => {
                self.limited.insert(owner(item).to_owned());
                false
            }
            Some(TrackerError::Unauthorized { .. }) | None => true,
            Some(error) => !is_final(error),
        }
    }
}

/// The first part of a repository's path.
fn owner(item: &ItemRef) -> &str {
    let path = &item.repo_path;
    path.split_once('/').map_or(path, |(owner, _)| owner)
}

#[cfg(test)]
mod tests {
    use agentmine_domain::{ItemKind, TrackerKind};
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
        let item = |path: &str| ItemRef {
            tracker,
            host: "github.com".into(),
            repo_id: "1".into(),
            repo_path: path.into(),
            kind: ItemKind::PullRequest,
            number: 7,
        };
        let mut faults = Faults::default();
        let mut concerns = |error| faults.concerns_all(&item("octo/demo"), &error);
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
        assert!(!concerns(limited.into()));
        assert!(faults.is_limited(&item("octo/other")));
        assert!(!faults.is_limited(&item("acme/demo")));
    }
}
