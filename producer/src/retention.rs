//! Removes from the store what it keeps no longer (`store.retention`).
//!
//! In small batches with a rest after each, so that what waits for the same rows and the same disk is hardly slowed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;

/// Time between two looks while there is nothing to remove.
const EVERY: Duration = Duration::from_secs(60);
/// A rest lasts so many times as long as the batch before it.
const REST: u32 = 4;
const SHORTEST_REST: Duration = Duration::from_millis(20);
/// Batches of a producer that scans once.
const SOME: u32 = 20;

/// Removes until the process drains.
pub(crate) async fn keep(deps: Arc<ProducerDeps>, draining: CancellationToken) {
    if !deps.config.store.retention.enabled {
        return;
    }
    let forever = async {
        loop {
            let begun = Instant::now();
            match batch(&deps).await {
                true => tokio::time::sleep((begun.elapsed() * REST).max(SHORTEST_REST)).await,
                false => tokio::time::sleep(EVERY).await,
            }
        }
    };
    draining.run_until_cancelled(forever).await;
}

/// Removes a part, which a producer that scans once has time for.
pub(crate) async fn remove_some(deps: &ProducerDeps) {
    if !deps.config.store.retention.enabled {
        return;
    }
    for _ in 0..SOME {
        if !batch(deps).await {
            return;
        }
    }
}

/// Whether there may be more to remove.
async fn batch(deps: &ProducerDeps) -> bool {
    match deps.store.prune(&deps.config.store.retention).await {
        Ok(pruned) => pruned.found_any(),
        Err(error) => {
            tracing::warn!(%error, "data past its retention could not be removed; a later pass tries again");
            false
        }
    }
}
