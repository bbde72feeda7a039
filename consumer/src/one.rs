//! One task that a person asked this process for: claimed and worked on like any other, without a queue. Stale
//! sandboxes are removed meanwhile, once.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::Task;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_store::StoreError;
use tokio::task::JoinSet;

use crate::claim::slot::Claiming;
use crate::presence::Presence;
use crate::record::secret::hide_operator_secrets;
use crate::session;
use crate::session::deps::ConsumerDeps;
use crate::sweep::{end_leases_of_the_dead, remove_stale_sandboxes};

/// How long to wait for the removal after the session.
const REMOVAL: Duration = Duration::from_secs(5);

/// Whether the task was worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOne {
    /// Its session ran, and ended as the row says.
    Ran,
    /// It cannot be claimed: another worker has it, it is over, or it waits for others.
    Refused,
}

/// Claims this task and runs its session.
///
/// # Errors
/// The store's, if the task could not be claimed.
pub async fn run_one(
    deps: Arc<ConsumerDeps>,
    task: &Task,
    stop: Shutdown,
) -> Result<RunOne, StoreError> {
    crate::metrics::describe();
    hide_operator_secrets(&deps.config);
    let presence = Presence::announce(&deps.config);
    end_leases_of_the_dead(&deps, &presence).await;
    // What is not removed by the end is left to the next process.
    let mut removal = JoinSet::new();
    removal.spawn(remove_stale_sandboxes(Arc::clone(&deps)));
    let worker = presence.worker(0);
    let claiming = Claiming::asked_for(&deps, task, &worker);
    let Some(claimed) = claiming.until_free(&stop).await? else {
        presence.withdraw();
        return Ok(RunOne::Refused);
    };
    Box::pin(session::run(Arc::clone(&deps), claimed, stop.clone())).await;
    if !stop.killed().is_cancelled() {
        let removed = tokio::time::timeout(REMOVAL, removal.join_next());
        stop.killed().run_until_cancelled(removed).await;
        presence.withdraw();
    }
    Ok(RunOne::Ran)
}
