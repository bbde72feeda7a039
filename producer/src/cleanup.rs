//! Removes stale sandboxes (spec 001 §7.4).

use std::sync::Arc;
use std::time::Duration;

use agentmine_sandbox::remove_stale;
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;

/// A pass at each interval, until the process drains. The first was made at its start.
pub(crate) async fn keep(deps: Arc<ProducerDeps>, draining: CancellationToken) {
    let hours = deps.config.command_executor.cleanup.interval_hours.max(1);
    let every = Duration::from_secs(hours * 3600);
    let pause = || draining.run_until_cancelled(tokio::time::sleep(every));
    while pause().await.is_some() {
        remove_stale_sandboxes(&deps).await;
    }
}

/// One pass. Failures are logged and left to the next pass.
pub(crate) async fn remove_stale_sandboxes(deps: &ProducerDeps) {
    let Some(backend) = &deps.backend else { return };
    let hours = deps.config.command_executor.cleanup.stale_threshold_hours;
    let max_age = Duration::from_secs(hours * 3600);
    let fate = |task, epoch| deps.store.sandbox_fate(task, epoch);
    if let Err(error) = remove_stale(backend.as_ref(), max_age, fate).await {
        tracing::warn!(%error, "sandboxes cannot be listed; hint: set producer.cleanup to false if there is no container engine here");
    }
}
