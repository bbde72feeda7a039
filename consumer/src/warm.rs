//! Sandboxes that this process starts ahead of its tasks (`consumer.warm_sandboxes`).

use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::{WarmPool, WarmSettings};
use tokio::task::JoinHandle;

use crate::mode::ConsumerMode;
use crate::session::deps::ConsumerDeps;

/// The running work of keeping them.
pub(crate) struct Warm(Option<JoinHandle<()>>);

impl Warm {
    /// Waits until none is left, at most until the process has to end.
    pub(crate) async fn end(self, stop: &Shutdown) {
        let Some(keeping) = self.0 else { return };
        stop.drain();
        if let Some(Err(error)) = stop.killed().run_until_cancelled(keeping).await {
            tracing::error!(%error, "the sandboxes that were started ahead are left for the sweep to remove");
        }
    }
}

/// Keeps as many as configured until the drain. The tasks of the returned dependencies take them. A consumer that
/// works once and ends has none: they would be started for nothing.
pub(crate) fn start(
    deps: Arc<ConsumerDeps>,
    mode: ConsumerMode,
    stop: &Shutdown,
) -> (Arc<ConsumerDeps>, Warm) {
    let size = deps.config.consumer.warm_sandboxes;
    if size == 0 || mode == ConsumerMode::Once {
        return (deps, Warm(None));
    }
    let executor = &deps.config.command_executor;
    // A sandbox of no task is stale at that age, no matter who sees it.
    let max_age = Duration::from_secs(executor.cleanup.stale_threshold_hours * 3600);
    let settings = WarmSettings {
        size,
        image: executor.docker.base_image.clone(),
        renew_after: max_age / 2,
    };
    let pool = WarmPool::new(Arc::clone(&deps.backend), settings);
    let draining = stop.draining();
    let kept = pool.clone();
    let keeping = tokio::spawn(async move { kept.keep(draining.cancelled()).await });
    let deps = Arc::new(ConsumerDeps {
        backend: Arc::new(pool),
        ..ConsumerDeps::clone(&deps)
    });
    (deps, Warm(Some(keeping)))
}
