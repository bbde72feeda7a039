//! Failed checks of a pull request's head, and conflicts with its target branch.

use std::collections::HashSet;

use agentmine_domain::{ItemRef, RedCheck};
use agentmine_trackers::{Checks, OpenPull, Tracker, TrackerError};
use chrono::{DateTime, Utc};

use super::failure::failure_of;

/// Checks whose logs are compared with those of the last round.
const MAX_LOGS: usize = 10;

/// What is red.
#[derive(Debug, Default)]
pub(super) struct Red {
    /// The failed checks that do not fail on the target branch.
    pub(super) checks: Vec<RedCheck>,
    /// Whether some failed that fail on the target branch too.
    pub(super) of_base: bool,
    /// Whether a check has no outcome yet: one round is for all of them.
    pub(super) pending: bool,
    /// Whether it conflicts with its target branch; `None` while the forge finds out.
    pub(super) conflict: Option<bool>,
    since: Option<DateTime<Utc>>,
}

impl Red {
    /// Reads it. A token that may not see checks sees none.
    pub(super) async fn read(
        tracker: &dyn Tracker,
        item: &ItemRef,
        pull: &OpenPull,
    ) -> Result<Self, TrackerError> {
        let conflict = tracker.conflicts(item).await?;
        let Checks {
            red,
            pending,
            since,
        } = seen(tracker.checks(item, &pull.head_sha).await)?;
        let mut found = Self {
            pending,
            conflict,
            since: since.filter(|_| !red.is_empty()),
            ..Self::default()
        };
        if red.is_empty() {
            return Ok(found);
        }
        let base = seen(tracker.checks_of_branch(item, &pull.base).await)?;
        let base: HashSet<String> = base.red.into_iter().map(|check| check.name).collect();
        let (of_base, own): (Vec<RedCheck>, Vec<RedCheck>) = red
            .into_iter()
            .partition(|check| base.contains(&check.name));
        found.of_base = !of_base.is_empty();
        found.checks = own;
        Ok(found)
    }

    /// When the first check failed.
    pub(super) fn first(&self) -> Option<DateTime<Utc>> {
        self.since
    }
}

/// The checks, or none where they are not shown.
fn seen(checks: Result<Checks, TrackerError>) -> Result<Checks, TrackerError> {
    match checks {
        Err(error @ (TrackerError::Forbidden { .. } | TrackerError::NotFound { .. })) => {
            tracing::debug!(%error, "the checks cannot be read");
            Ok(Checks::default())
        }
        checks => checks,
    }
}

/// The commit of the target branch, or none where it is not shown.
pub(super) async fn target(
    tracker: &dyn Tracker,
    item: &ItemRef,
    branch: &str,
) -> Result<Option<String>, TrackerError> {
    match tracker.branch_commit(item, branch).await {
        Err(TrackerError::Forbidden { .. } | TrackerError::NotFound { .. }) => Ok(None),
        commit => commit,
    }
}

/// Adds the digests of the failures.
pub(super) async fn add_failures(
    tracker: &dyn Tracker,
    item: &ItemRef,
    checks: &mut [RedCheck],
) -> Result<(), TrackerError> {
    for check in checks.iter_mut().take(MAX_LOGS) {
        let log = match &check.log {
            Some(log) => tracker.check_log(item, log).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "a log cannot be read");
                None
            }),
            None => None,
        };
        check.failure = failure_of(log.as_deref(), &check.summary);
    }
    Ok(())
}
