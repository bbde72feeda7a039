//! Reports the ends of tasks whose worker could not: it died, or the tracker was unavailable.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::TaskNumber;
use agentmine_effects::report_end;

use crate::session::deps::ConsumerDeps;

/// Normally the worker reports the end of its task; after this time the sweep does.
const REPORT_AFTER: Duration = Duration::from_secs(2);
/// How many rows are read at once.
const PAGE: u32 = 50;

/// Reports ended tasks that are not yet reported. Ends that cannot be reported now hold up no others.
pub(super) async fn report_ends(deps: Arc<ConsumerDeps>) {
    let mut after = TaskNumber(0);
    loop {
        let page = match deps.store.unreported(REPORT_AFTER, after, PAGE).await {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!(%error, "tasks that are not yet reported cannot be read");
                return;
            }
        };
        let Some(last) = page.last() else { return };
        after = last.number;
        for task in page {
            let Some(tracker) = deps.tracker_of(&task) else {
                continue;
            };
            let labels = deps.config.labels.clone();
            let hold = Duration::from_secs(deps.config.consumer.lease_seconds);
            let store = Arc::clone(&deps.store);
            if let Err(error) = report_end(store, tracker, labels, &task, hold).await {
                tracing::warn!(task.id = %task.id, %error, "the end of the task was not reported; a later sweep tries again");
            }
        }
    }
}
