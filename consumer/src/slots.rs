//! The slots of a process, and its work in the background.

use std::sync::Arc;

use agentmine_runtime::shutdown::Shutdown;

use crate::claim;
use crate::metrics;
use crate::mode::ConsumerMode;
use crate::presence::Presence;
use crate::record::secret::hide_operator_secrets;
use crate::session::deps::ConsumerDeps;
use crate::sweep;
use crate::warm;

/// Runs `config.consumer.concurrency` slots and the background work until `mode` or `stop` ends them.
/// Returns the number of sessions.
pub async fn run(deps: Arc<ConsumerDeps>, mode: ConsumerMode, stop: Shutdown) -> u64 {
    metrics::describe();
    ::metrics::gauge!("agentmine_slots").set(deps.config.consumer.concurrency as f64);
    hide_operator_secrets(&deps.config);
    let (deps, warm) = warm::start(deps, mode, &stop);
    let presence = Arc::new(Presence::announce(&deps.config));
    // Before the first claim: where there is nothing to claim, a program that works once ends at once.
    sweep::end_leases_of_the_dead(&deps, &presence).await;
    let sweep = sweep::start(&deps, &presence);
    let mut slots = tokio::task::JoinSet::new();
    for index in 0..deps.config.consumer.concurrency {
        slots.spawn(claim::slot::run(
            Arc::clone(&deps),
            presence.worker(index),
            mode,
            stop.clone(),
        ));
    }
    let (mut sessions, mut is_orderly) = (0, true);
    while let Some(ended) = slots.join_next().await {
        match ended {
            Ok(count) => sessions += count,
            Err(error) => {
                is_orderly = false;
                tracing::error!(%error, "a slot ended unexpectedly");
            }
        }
    }
    sweep.stop().await;
    warm.end(&stop).await;
    if is_orderly && !stop.killed().is_cancelled() {
        presence.withdraw();
    }
    sessions
}
