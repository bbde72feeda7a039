//! The producer: scans trackers, records a task for each item that requests work, announces it on the
//! queue when its repository has room for it, puts items right that say that they are worked on although no task is, ends paused tasks whose
//! item was closed, continues those whose credentials are accepted again, obeys commands in comments, keeps dashboards, and removes stale sandboxes
//! and what the store keeps no longer.
//!
//! Any number of producers may run. The row and its outbox entry are written in one transaction, and
//! the announcement is confirmed before the item's label changes. A producer that is killed anywhere
//! leaves either nothing or a task that another process will announce.

mod capacity;
mod cleanup;
mod commands;
mod dashboards;
mod deps;
mod figures;
mod items;
mod orphans;
mod paused;
mod retention;
mod rounds;
mod scan;
mod waits;
mod webhooks;
mod wiring;

use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::liveness::MainLoop;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_store::RelayError;

pub use commands::SeenCommands;
pub use dashboards::SeenDashboards;
pub use deps::ProducerDeps;
pub use rounds::SeenPulls;
pub use scan::{Scan, scan};
pub use wiring::{ProducerArgs, ProducerCommand, connect, main};

/// No scan takes longer: each request to a tracker has a time limit, and a rate limit ends the scan.
const STANDSTILL: Duration = Duration::from_secs(1800);

/// When a producer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerMode {
    /// After one scan.
    Once,
    /// On shutdown; it scans every `producer.interval_seconds`.
    Continuous,
}

/// Removes stale sandboxes, looks at paused tasks, and scans; in
/// [`ProducerMode::Continuous`] repeats all of it at its intervals. Returns the totals of the scans.
///
/// # Errors
/// In [`ProducerMode::Once`], returns the first error of a tracker, the store or the queue.
pub async fn run(
    deps: Arc<ProducerDeps>,
    mode: ProducerMode,
    stop: Shutdown,
) -> anyhow::Result<Scan> {
    scan::describe_metrics(&deps.trackers);
    webhooks::describe_metrics();
    rounds::metrics::describe_metrics();
    cleanup::remove_stale_sandboxes(&deps).await;
    let mut paused = paused::Paused::default();
    if mode == ProducerMode::Once {
        paused.reconcile(&deps).await;
        commands::look(&deps, None).await;
        retention::remove_some(&deps).await;
        let done = scan(&deps).await;
        dashboards::look(&deps).await;
        return done;
    }
    let mut turns = capacity::Turns::default();
    let mut admissions = tokio::time::interval(capacity::EVERY);
    admissions.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    webhooks::serve(&deps, &stop).await?;
    let mut total = Scan::default();
    let mut scans =
        tokio::time::interval(Duration::from_secs(deps.config.producer.interval_seconds));
    scans.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let hours = deps.config.command_executor.cleanup.interval_hours.max(1);
    let mut cleanups = tokio::time::interval(Duration::from_secs(hours * 3600));
    cleanups.tick().await;
    let mut orphans = orphans::Orphans::new();
    let draining = stop.draining();
    tokio::spawn(figures::publish(Arc::clone(&deps), draining.clone()));
    tokio::spawn(retention::keep(Arc::clone(&deps), draining.clone()));
    tokio::spawn(commands::watch(Arc::clone(&deps), draining.clone()));
    tokio::spawn(dashboards::watch(Arc::clone(&deps), draining.clone()));
    let scanning = MainLoop::start("scan", STANDSTILL + scans.period());
    loop {
        scanning.turned();
        tokio::select! {
            () = draining.cancelled() => return Ok(total),
            _ = cleanups.tick() => cleanup::remove_stale_sandboxes(&deps).await,
            _ = admissions.tick() => {
                if let Err(error) = Box::pin(scan::admit(&deps, &mut turns)).await {
                    tracing::debug!(error = format!("{error:#}"), "not all waiting tasks could be looked at");
                }
            }
            // A scan is short and is not cancelled.
            _ = scans.tick() => {
                match Box::pin(scan::scan_with(&deps, &mut turns)).await {
                Ok(found) => total += found,
                // The queue reported its outage when it began.
                Err(error) if is_queue_outage(&error) => tracing::debug!(error = format!("{error:#}"), "the scan's tasks are announced later"),
                Err(error) => tracing::error!(error = format!("{error:#}"), "the scan failed; the next scan tries again"),
                }
                orphans.reconcile(&deps).await;
                paused.reconcile(&deps).await;
            },
        }
    }
}

/// Whether all that failed in a scan is the announcement, which is made up for.
fn is_queue_outage(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<RelayError>(),
        Some(RelayError::Publish(_))
    )
}
