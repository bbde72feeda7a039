//! Reports the ends of tasks whose worker could not: it died, or the tracker was unavailable. Each end is looked
//! at once more a lease later.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Task, TaskNumber};
use agentmine_effects::{confirm_end, report_end};
use agentmine_store::StoreError;

use crate::session::deps::ConsumerDeps;

/// Normally the worker reports the end of its task; after this time the sweep does.
const REPORT_AFTER: Duration = Duration::from_secs(2);
/// How many rows are read at once.
const PAGE: u32 = 50;

/// Which ends are due.
#[derive(Debug, Clone, Copy)]
enum Due {
    Report,
    SecondLook,
}

/// Reports ended tasks that are not yet reported. Ends that cannot be reported now hold up no others.
pub(super) async fn report_ends(deps: Arc<ConsumerDeps>) {
    for due in [Due::Report, Due::SecondLook] {
        if let Err(error) = all(&deps, due).await {
            tracing::debug!(%error, ?due, "the ended tasks cannot be read");
        }
    }
}

async fn all(deps: &ConsumerDeps, due: Due) -> Result<(), StoreError> {
    let lease = Duration::from_secs(deps.config.consumer.lease_seconds);
    let mut after = TaskNumber(0);
    loop {
        let page = match due {
            Due::Report => deps.store.unreported(REPORT_AFTER, after, PAGE).await?,
            Due::SecondLook => deps.store.unconfirmed(lease, after, PAGE).await?,
        };
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = last.number;
        for task in page {
            one(deps, due, &task, lease).await;
        }
    }
}

async fn one(deps: &ConsumerDeps, due: Due, task: &Task, hold: Duration) {
    let Some(tracker) = deps.tracker_of(task) else {
        return;
    };
    let (store, labels) = (Arc::clone(&deps.store), deps.config.labels.clone());
    let reported = match due {
        Due::Report => report_end(store, tracker, labels, task, hold).await,
        Due::SecondLook => confirm_end(store, tracker, labels, task, hold).await,
    };
    if let Err(error) = reported {
        tracing::warn!(task.id = %task.id, %error, ?due, "the end of the task was not reported; a later sweep tries again");
    }
}
