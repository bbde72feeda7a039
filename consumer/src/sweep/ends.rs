//! Reports the ends of tasks whose worker could not: it died, or the tracker was unavailable. Each end is checked once more a lease later.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Task, TaskNumber};
use agentmine_effects::{EffectError, Reporter};
use agentmine_store::StoreError;
use agentmine_trackers::{Tracker, TrackerError};

use uuid::Uuid;

use crate::session::deps::ConsumerDeps;

/// Normally the worker reports the end of its task; after this time the sweep does.
const REPORT_AFTER: Duration = Duration::from_secs(2);
/// How many rows are read at once.
const PAGE: u32 = 50;
/// After so many failures in a row a tracker is taken to be away. A single item may fail for ever.
const AWAY_AFTER: u32 = 3;

/// A second look is due one lease after the report, so nearly all of them fall within this time or within
/// [`RECENT_LEASES`] leases, whichever is longer.
const RECENT: Duration = Duration::from_secs(900);
const RECENT_LEASES: u32 = 10;

/// Which ends are due.
#[derive(Debug, Clone, Copy)]
enum Due {
    Report,
    /// Of the tasks that ended within this time.
    SecondLook(Duration),
}

/// Reports ended tasks that are not yet reported.
pub(super) async fn report_ends(deps: Arc<ConsumerDeps>) {
    of_each_tracker(&deps, Due::Report).await;
}

/// Confirms reported ends of tasks that ended recently. Each process does this in each sweep, and reads all tasks that ended
/// within that time.
pub(super) async fn confirm_ends(deps: Arc<ConsumerDeps>) {
    let lease = Duration::from_secs(deps.config.consumer.lease_seconds);
    let recent = lease.saturating_mul(RECENT_LEASES).max(RECENT);
    of_each_tracker(&deps, Due::SecondLook(recent)).await;
}

/// The same for the last day: ends that could not be confirmed in time, for example because the tracker was away.
pub(super) async fn confirm_older_ends(deps: Arc<ConsumerDeps>) {
    of_each_tracker(&deps, Due::SecondLook(Duration::MAX)).await;
}

/// Trackers are written to side by side: one that does not answer holds up no other.
async fn of_each_tracker(deps: &ConsumerDeps, due: Due) {
    let trackers = deps.trackers.iter();
    let all = trackers.map(|tracker| all(deps, due, tracker));
    for done in futures::future::join_all(all).await {
        if let Err(error) = done {
            tracing::debug!(%error, ?due, "the ended tasks cannot be read");
        }
    }
}

/// Whether a tracker answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Given,
    Failed,
}

/// The ends of one tracker's items, until it turns out to be away: then the others wait for a later sweep.
async fn all(deps: &ConsumerDeps, due: Due, tracker: &Arc<dyn Tracker>) -> Result<(), StoreError> {
    let lease = Duration::from_secs(deps.config.consumer.lease_seconds);
    let mut after = TaskNumber(0);
    let mut failures = 0;
    loop {
        let mut page = match due {
            Due::Report => deps.store.unreported(REPORT_AFTER, after, PAGE).await?,
            Due::SecondLook(within) => {
                let page = deps.store.unconfirmed(lease, within, after, PAGE);
                page.await?
            }
        };
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = last.number;
        // Some that fail for ever must not come first each time.
        page.sort_by_cached_key(|_| Uuid::new_v4());
        for task in page.iter().filter(|task| tracker.serves(&task.item)) {
            failures = match one(deps, due, tracker, task, lease).await {
                Answer::Given => 0,
                Answer::Failed => failures + 1,
            };
            if failures == AWAY_AFTER {
                return Ok(());
            }
        }
    }
}

async fn one(
    deps: &ConsumerDeps,
    due: Due,
    tracker: &Arc<dyn Tracker>,
    task: &Task,
    hold: Duration,
) -> Answer {
    let reporter = Reporter {
        store: Arc::clone(&deps.store),
        tracker: Arc::clone(tracker),
        labels: deps.config.labels.clone(),
        hold,
    };
    let reported = match due {
        Due::Report => reporter.report_end(task).await,
        Due::SecondLook(_) => reporter.confirm_end(task).await,
    };
    let Err(error) = reported else {
        return Answer::Given;
    };
    tracing::warn!(task.id = %task.id, %error, ?due, "the end of the task was not reported; a later sweep tries again");
    match error {
        // The permit lapses while a request is repeated in vain.
        EffectError::Tracker(
            TrackerError::Unavailable { .. }
            | TrackerError::RateLimited { .. }
            | TrackerError::NotPermitted { .. },
        ) => Answer::Failed,
        EffectError::Tracker(
            TrackerError::Unauthorized { .. }
            | TrackerError::Forbidden { .. }
            | TrackerError::Invalid { .. }
            | TrackerError::NotFound { .. }
            | TrackerError::Refused { .. }
            | TrackerError::Archived { .. }
            | TrackerError::Confidential { .. },
        )
        | EffectError::Store(_)
        | EffectError::Record { .. } => Answer::Given,
    }
}
