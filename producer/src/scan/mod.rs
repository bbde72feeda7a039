//! One scan: finds items, records tasks, announces them, sets labels.

mod record;
mod totals;
mod waiting;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentmine_domain::Task;
use agentmine_effects::announce;
use agentmine_trackers::Tracker;
use anyhow::{Context as _, Result};

use crate::capacity::{self, Turns};
use crate::commands;
use crate::dashboards;
use crate::deps::ProducerDeps;
use crate::items;
use crate::rounds;
use record::{Requested, label, record};
pub use totals::Scan;
use waiting::Waiting;

/// Describes the metrics of scans and sets them to what they are before the first one. The last success counts from
/// the start of the process, so that a tracker that can never be scanned is noticed too.
pub(crate) fn describe_metrics(trackers: &[Arc<dyn Tracker>], interval: Duration) {
    metrics::describe_counter!("agentmine_scans_total", "Scans of a tracker, by result.");
    for result in ["ok", "error"] {
        metrics::counter!("agentmine_scans_total", "result" => result).increment(0);
    }
    metrics::describe_gauge!(
        "agentmine_scan_last_success_timestamp_seconds",
        "When a tracker was last scanned successfully, in seconds since the Unix epoch."
    );
    metrics::describe_gauge!(
        "agentmine_scan_interval_seconds",
        metrics::Unit::Seconds,
        "How long a producer waits between the starts of two scans of a tracker."
    );
    metrics::gauge!("agentmine_scan_interval_seconds").set(interval.as_secs_f64());
    metrics::describe_gauge!(
        "agentmine_scan_skipped",
        "Repositories, groups and searches of a tracker that its latest scan could not read."
    );
    for tracker in trackers {
        note_success(tracker.as_ref());
        note_skipped(tracker.as_ref());
    }
}

fn note_skipped(tracker: &dyn Tracker) {
    let count = u32::try_from(tracker.skipped().len()).unwrap_or(u32::MAX);
    metrics::gauge!("agentmine_scan_skipped", "host" => tracker.host().to_owned())
        .set(f64::from(count));
}

fn note_success(tracker: &dyn Tracker) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    metrics::gauge!("agentmine_scan_last_success_timestamp_seconds", "host" => tracker.host().to_owned())
        .set(now.unwrap_or_default().as_secs_f64());
}

/// Scans every tracker once, and admits waiting tasks. If one fails, the others are still scanned.
///
/// # Errors
/// Returns the first error, after everything else was done.
pub async fn scan(deps: &ProducerDeps) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut first_error = None;
    for tracker in &deps.trackers {
        match Box::pin(of_tracker(deps, tracker)).await {
            Ok(of_tracker) => scan += of_tracker,
            Err(error) => keep_first(&mut first_error, error),
        }
        if let Err(error) = Box::pin(admit(deps, &mut Turns::of(deps, tracker))).await {
            keep_first(&mut first_error, error);
        }
    }
    first_error.map_or(Ok(scan), Err)
}

/// Scans a tracker once, and announces what it asks for.
///
/// # Errors
/// Returns the first error, after everything else was done.
pub(crate) async fn of_tracker(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut first_error = None;
    let mut known = Vec::new();
    let waiting = Waiting::read(deps).await?;
    match scan_tracker(deps, tracker, &waiting, &mut scan).await {
        Ok(tasks) => {
            note_success(tracker.as_ref());
            known = tasks;
        }
        Err(error) => keep_first(&mut first_error, error),
    }
    let announced = announce(deps.store.as_ref(), deps.queue.as_ref()).await;
    match announced.context(
        "the tasks are recorded but could not be announced; the next scan or a consumer will announce them",
    ) {
        Ok(count) => scan.announced = count,
        Err(error) => keep_first(&mut first_error, error),
    }
    for requested in known {
        if let Err(error) = label(deps, Arc::clone(tracker), requested).await {
            keep_first(&mut first_error, error);
        }
    }
    metrics::counter!("agentmine_scans_total", "result" => if first_error.is_none() { "ok" } else { "error" }).increment(1);
    tracing::info!(
        host = tracker.host(),
        found = scan.found,
        enqueued = scan.enqueued,
        announced = scan.announced,
        "scanned"
    );
    first_error.map_or(Ok(scan), Err)
}

fn keep_first(slot: &mut Option<anyhow::Error>, error: anyhow::Error) {
    match slot {
        None => *slot = Some(error),
        Some(_) => tracing::warn!(
            error = format!("{error:#}"),
            "another error in the same scan"
        ),
    }
}

/// Admits waiting tasks, and announces them.
///
/// # Errors
/// Of the store, the queue or a tracker; the next pass or scan makes up for it.
pub(crate) async fn admit(deps: &ProducerDeps, turns: &mut Turns) -> Result<()> {
    let admitted = turns.pass(deps).await?;
    announce_admitted(deps, admitted).await
}

/// The admitted tasks, which are to be labelled.
fn requested(
    admitted: Vec<(Arc<dyn Tracker>, Task)>,
) -> impl Iterator<Item = (Arc<dyn Tracker>, Requested)> {
    let admitted = admitted.into_iter();
    admitted.map(|(tracker, task)| (tracker, Requested::known(task)))
}

async fn announce_admitted(
    deps: &ProducerDeps,
    admitted: Vec<(Arc<dyn Tracker>, Task)>,
) -> Result<()> {
    if admitted.is_empty() {
        return Ok(());
    }
    let announced = announce(deps.store.as_ref(), deps.queue.as_ref()).await;
    for (tracker, requested) in requested(admitted) {
        label(deps, tracker, requested).await?;
    }
    announced?;
    Ok(())
}

/// Scans one repository that a webhook names.
///
/// # Errors
/// Of the tracker, the store or the queue; the next scan makes up for it.
pub(crate) async fn look(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    path: &str,
) -> Result<Scan> {
    let mut scan = Scan::default();
    commands::look(deps, tracker, Some(path)).await;
    items::look(deps, tracker, path).await;
    dashboards::look_at_hint(deps, tracker, path).await;
    let began = deps.store.scan_time().await?;
    let label_name = &deps.config.labels.request;
    let candidates = tracker.candidates_in(path, label_name).await?;
    let waiting = Waiting::read(deps).await?;
    let mut requested = record(deps, tracker, candidates, (began, &waiting), &mut scan).await?;
    let watched = rounds::read(deps, tracker, Some(path)).await?;
    watched.look_again(deps);
    let begun = Box::pin(rounds::begin(deps, tracker, watched)).await?;
    requested.extend(
        begun
            .into_iter()
            .map(|begun| Requested::of_round(begun, &mut scan)),
    );
    let admitted = capacity::admit_in(deps, tracker.as_ref(), path).await?;
    announce_admitted(deps, admitted).await?;
    let announced = announce(deps.store.as_ref(), deps.queue.as_ref()).await;
    for requested in requested {
        label(deps, Arc::clone(tracker), requested).await?;
    }
    scan.announced = announced?;
    Ok(scan)
}

async fn scan_tracker(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    waiting: &Waiting,
    scan: &mut Scan,
) -> Result<Vec<Requested>> {
    let watched = rounds::read(deps, tracker, None).await;
    let began = deps.store.scan_time().await?;
    let candidates = tracker.candidates(&deps.config.labels.request).await;
    note_skipped(tracker.as_ref());
    let candidates =
        candidates.with_context(|| format!("{} could not be scanned", tracker.host()))?;
    let found: HashSet<String> = candidates
        .iter()
        .map(|candidate| candidate.item.key())
        .collect();
    waiting.end_withdrawn(deps, tracker, &found).await?;
    let mut requested = record(deps, tracker, candidates, (began, waiting), scan).await?;
    let begun = match watched {
        Ok(watched) => Box::pin(rounds::begin(deps, tracker, watched)).await,
        Err(error) => Err(error),
    };
    match begun {
        Ok(begun) => requested.extend(
            begun
                .into_iter()
                .map(|begun| Requested::of_round(begun, scan)),
        ),
        // The tasks that were recorded are announced all the same.
        Err(error) => {
            let (host, error) = (tracker.host(), format!("{error:#}"));
            tracing::warn!(
                host,
                error,
                "the pull requests cannot be checked; the next scan tries again"
            );
        }
    }
    Ok(requested)
}
