//! The producer: scans trackers, records a task for each item that asks for work, announces it on
//! the queue, and clears what was left behind.
//!
//! Any number may run. The row and its outbox entry are made in one transaction; the announcement
//! is confirmed before the item's label moves, so a producer killed anywhere leaves either nothing
//! or a task that will be announced by another.

mod cleanup;
mod scan;
mod wiring;

use std::sync::Arc;
use std::time::Duration;

use agentmine_queue::Queue;
use agentmine_runtime::config::Config;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::Backend;
use agentmine_store::Store;
use agentmine_trackers::Tracker;

pub use scan::{Scan, scan};
pub use wiring::{ProducerArgs, connect, main};

/// What a producer works with.
pub struct ProducerDeps {
    /// Configuration, already validated.
    pub config: Config,
    /// The database.
    pub store: Arc<dyn Store>,
    /// The wake-up queue.
    pub queue: Arc<dyn Queue>,
    /// The trackers to scan.
    pub trackers: Vec<Arc<dyn Tracker>>,
    /// The engine whose left-over sandboxes are cleared; `None` where `producer.cleanup` is off.
    pub backend: Option<Arc<dyn Backend>>,
}

/// How long to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerMode {
    /// One scan.
    Once,
    /// A scan every `producer.interval_seconds` until told to stop.
    Continuous,
}

/// Clears stale sandboxes, scans, and in [`ProducerMode::Continuous`] goes on at both intervals. Returns
/// what the scans found; an error only where the one scan of [`ProducerMode::Once`] failed.
///
/// # Errors
/// The first tracker, store or queue that failed in [`ProducerMode::Once`].
pub async fn run(
    deps: Arc<ProducerDeps>,
    mode: ProducerMode,
    stop: Shutdown,
) -> anyhow::Result<Scan> {
    cleanup::clear(&deps).await;
    if mode == ProducerMode::Once {
        return scan(&deps).await;
    }
    let mut total = Scan::default();
    let mut scans =
        tokio::time::interval(Duration::from_secs(deps.config.producer.interval_seconds));
    scans.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let hours = deps.config.command_executor.cleanup.interval_hours.max(1);
    let mut cleanups = tokio::time::interval(Duration::from_secs(hours * 3600));
    cleanups.tick().await;
    let draining = stop.draining();
    loop {
        tokio::select! {
            () = draining.cancelled() => return Ok(total),
            _ = cleanups.tick() => cleanup::clear(&deps).await,
            // A scan is not cut off in the middle: it is short, and each of its parts is safe to
            // repeat.
            _ = scans.tick() => match scan(&deps).await {
                Ok(found) => total += found,
                Err(error) => tracing::error!(error = format!("{error:#}"), "the scan failed; the next one tries again"),
            },
        }
    }
}
