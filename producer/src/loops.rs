//! The loops of a producer: what it does at which interval.

use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::liveness::MainLoop;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_store::RelayError;
use agentmine_trackers::Tracker;
use futures::future::join_all;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;
use crate::scan::{self, Scan, scan};
use crate::{
    capacity, cleanup, commands, dashboards, figures, items, orphans, paused, retention, rounds,
    webhooks,
};

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
    let interval = Duration::from_secs(deps.config.producer.interval_seconds);
    scan::describe_metrics(&deps.trackers, interval);
    webhooks::describe_metrics();
    rounds::metrics::describe_metrics();
    cleanup::remove_stale_sandboxes(&deps).await;
    if mode == ProducerMode::Once {
        for tracker in &deps.trackers {
            paused::Paused::default().reconcile(&deps, tracker).await;
            items::Queued::default().look(&deps, tracker).await;
            commands::look(&deps, tracker, None).await;
        }
        retention::remove_some(&deps).await;
        let done = scan(&deps).await;
        for tracker in &deps.trackers {
            dashboards::look(&deps, tracker).await;
        }
        return done;
    }
    webhooks::serve(&deps, &stop).await?;
    let draining = stop.draining();
    tokio::spawn(cleanup::keep(Arc::clone(&deps), draining.clone()));
    tokio::spawn(figures::publish(Arc::clone(&deps), draining.clone()));
    tokio::spawn(retention::keep(Arc::clone(&deps), draining.clone()));
    // Each tracker has its own loops: one that does not answer delays no other one's.
    for tracker in &deps.trackers {
        let of = || (Arc::clone(&deps), Arc::clone(tracker));
        tokio::spawn(commands::watch(of(), draining.clone()));
        tokio::spawn(dashboards::watch(of(), draining.clone()));
        tokio::spawn(paused::watch(of(), draining.clone()));
        tokio::spawn(items::watch(of(), draining.clone()));
        tokio::spawn(keep_admitting(of(), draining.clone()));
    }
    let scans = deps.trackers.iter();
    let scans = scans.map(|tracker| Box::pin(keep_scanning(&deps, tracker, &draining)));
    let mut total = Scan::default();
    for of_tracker in join_all(scans).await {
        total += of_tracker;
    }
    Ok(total)
}

/// Scans a tracker again and again, until the process drains. Returns the totals.
async fn keep_scanning(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    draining: &CancellationToken,
) -> Scan {
    let mut total = Scan::default();
    let every = Duration::from_secs(deps.config.producer.interval_seconds);
    let mut scans = tokio::time::interval(every);
    scans.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut orphans = orphans::Orphans::new();
    let scanning = MainLoop::start("scan", STANDSTILL + every);
    while draining.run_until_cancelled(scans.tick()).await.is_some() {
        scanning.turned();
        // A scan is short and is not cancelled.
        match Box::pin(scan::of_tracker(deps, tracker)).await {
            Ok(found) => total += found,
            // The queue reported its outage when it began.
            Err(error) if is_queue_outage(&error) => {
                let error = format!("{error:#}");
                tracing::debug!(error, "the scan's tasks are announced later");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "the scan failed; the next scan tries again");
            }
        }
        orphans.reconcile(deps, tracker).await;
    }
    total
}

/// Admits waiting tasks of a tracker as soon as there is room, until the process drains.
async fn keep_admitting(
    (deps, tracker): (Arc<ProducerDeps>, Arc<dyn Tracker>),
    draining: CancellationToken,
) {
    let mut turns = capacity::Turns::of(&deps, &tracker);
    let mut passes = tokio::time::interval(capacity::EVERY);
    passes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while draining.run_until_cancelled(passes.tick()).await.is_some() {
        // A pass is short and is not cancelled.
        if let Err(error) = Box::pin(scan::admit(&deps, &mut turns)).await {
            let error = format!("{error:#}");
            tracing::debug!(error, "not all waiting tasks could be checked");
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
