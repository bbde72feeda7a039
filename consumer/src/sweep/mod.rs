//! Background work beside the slots: the outbox relay, the sweep, reports, stale sandboxes, abandoned folders,
//! dead letters.
//!
//! Each job is an idempotent reconciler: it takes no input, acts on the current state, and may run in
//! any number of processes at once.

mod ends;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agentmine_effects::announce;
use agentmine_git::remove_abandoned_folders;
use agentmine_runtime::liveness::MainLoop;
use agentmine_sandbox::{remove_stale, show_stale};
use agentmine_store::SweepPolicy;
use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::SessionError;
use crate::metrics::count_lost_task;
use crate::presence::Presence;
use crate::session::deps::ConsumerDeps;

/// No relay and no sweep takes longer, whatever is away: each statement and each publish has a time limit.
const STANDSTILL: Duration = Duration::from_secs(600);
/// Time limit for the last relay.
const LAST_RELAY: Duration = Duration::from_secs(5);
/// The shortest time between two sweeps, while a lease that ran out is left to its holder.
const BETWEEN_SWEEPS: Duration = Duration::from_secs(1);
/// Time after which a lease has certainly run out by the database's clock, which counts milliseconds.
const AFTER_EXPIRY: Duration = Duration::from_millis(20);
/// How often the other processes of this machine are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Sweeps between two looks at all ends of the last day.
const SWEEPS_BETWEEN_LOOKS: u32 = 40;
/// Interval of the outbox relay.
const RELAY_EVERY: Duration = Duration::from_millis(500);

/// The running background work.
pub(crate) struct Background {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Background {
    /// Stops it after one last relay, which announces the tasks that the slots gave back.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts the background work. It continues during the drain and ends with [`Background::stop`].
pub(crate) fn start(deps: &Arc<ConsumerDeps>, presence: &Arc<Presence>) -> Background {
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let sweep_every = Duration::from_secs(deps.config.consumer.sweep_seconds);
    tasks.spawn(every(
        "relay",
        RELAY_EVERY,
        Arc::clone(deps),
        stop.clone(),
        relay,
    ));
    tasks.spawn(sweep_in_time(sweep_every, Arc::clone(deps), stop.clone()));
    tasks.spawn(look_for_the_dead(
        Arc::clone(presence),
        Arc::clone(deps),
        stop.clone(),
    ));
    tasks.spawn(every(
        "reports of ends",
        sweep_every,
        Arc::clone(deps),
        stop.clone(),
        ends::report_ends,
    ));
    tasks.spawn(every(
        "second look at ends",
        sweep_every,
        Arc::clone(deps),
        stop.clone(),
        ends::confirm_ends,
    ));
    tasks.spawn(every(
        "second look at older ends",
        sweep_every.saturating_mul(SWEEPS_BETWEEN_LOOKS),
        Arc::clone(deps),
        stop.clone(),
        ends::confirm_older_ends,
    ));
    tasks.spawn(every(
        "stale sandboxes",
        sweep_every,
        Arc::clone(deps),
        stop.clone(),
        remove_stale_sandboxes,
    ));
    tasks.spawn(every(
        "git folders",
        sweep_every,
        Arc::clone(deps),
        stop.clone(),
        remove_git_folders,
    ));
    tasks.spawn(every(
        "dead letters",
        sweep_every,
        Arc::clone(deps),
        stop.clone(),
        handle_dead_letters,
    ));
    Background { tasks, stop }
}

async fn every<D, F: Future<Output = ()>>(
    job: &'static str,
    period: Duration,
    deps: Arc<D>,
    stop: CancellationToken,
    work: fn(Arc<D>) -> F,
) {
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The relay is the pulse of the background work.
    let relaying = (period == RELAY_EVERY).then(|| MainLoop::start("relay", STANDSTILL));
    let forever = async {
        loop {
            tick.tick().await;
            if turn(job, work(Arc::clone(&deps))).await.is_some() {
                relaying.iter().for_each(MainLoop::turned);
            }
        }
    };
    // A reconciler may be cancelled anywhere: the next run continues from the current state.
    stop.run_until_cancelled(forever).await;
    if period == RELAY_EVERY {
        // Announces the tasks that the slots gave back during the drain.
        let _ = tokio::time::timeout(LAST_RELAY, work(deps)).await;
    }
}

/// One turn of a job. A panic ends this turn alone: the next one continues from the current state. It counts as no turn, so
/// that a loop that only panics is seen to make no progress.
async fn turn<T>(job: &'static str, work: impl Future<Output = T>) -> Option<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => Some(done),
        Err(panic) => {
            let error = SessionError::panicked(&*panic);
            tracing::error!(job, %error, "a background job panicked; it runs again");
            None
        }
    }
}

/// Sweeps every `period`, and at the moment at which a lease runs out.
async fn sweep_in_time(period: Duration, deps: Arc<ConsumerDeps>, stop: CancellationToken) {
    let sweeping = MainLoop::start("sweep", STANDSTILL + period);
    let forever = async {
        loop {
            let next_expiry = match turn("sweep", sweep(Arc::clone(&deps))).await {
                Some(next_expiry) => {
                    sweeping.turned();
                    next_expiry
                }
                None => None,
            };
            let at_expiry = next_expiry.map_or(period, |left| left + AFTER_EXPIRY);
            tokio::time::sleep(at_expiry.clamp(BETWEEN_SWEEPS.min(period), period)).await;
        }
    };
    stop.run_until_cancelled(forever).await;
}

async fn look_for_the_dead(
    presence: Arc<Presence>,
    deps: Arc<ConsumerDeps>,
    stop: CancellationToken,
) {
    let forever = async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            turn("dead workers", end_leases_of_the_dead(&deps, &presence)).await;
        }
    };
    stop.run_until_cancelled(forever).await;
}

/// Shortens the leases of processes of this machine that died. What they sent last has as long to arrive as what a
/// worker sends just before it is stalled, which is the rest of the lease then.
pub(crate) async fn end_leases_of_the_dead(deps: &ConsumerDeps, presence: &Presence) {
    let consumer = &deps.config.consumer;
    let rest = consumer
        .lease_seconds
        .saturating_sub(consumer.heartbeat_loss_seconds);
    for gone in presence.gone() {
        let ended = deps
            .store
            .worker_died(&gone.process, Duration::from_secs(rest));
        match ended.await {
            Ok(leases) => {
                tracing::warn!(
                    worker.process = gone.process,
                    leases,
                    "a worker of this machine died"
                );
                gone.forget();
            }
            Err(error) => {
                tracing::debug!(%error, "the leases of a dead worker cannot be shortened yet")
            }
        }
    }
}

async fn relay(deps: Arc<ConsumerDeps>) {
    if let Err(error) = announce(deps.store.as_ref(), deps.queue.as_ref()).await {
        tracing::debug!(%error, "the outbox could not be relayed");
    }
}

/// Returns the time until the next lease runs out.
async fn sweep(deps: Arc<ConsumerDeps>) -> Option<Duration> {
    let consumer = &deps.config.consumer;
    let policy = SweepPolicy {
        max_attempts: consumer.max_attempts,
        wakeup_after: Duration::from_secs(consumer.wakeup_after_seconds),
        lease: Duration::from_secs(consumer.lease_seconds),
    };
    match deps.store.sweep(&policy).await {
        Ok(report) => {
            for task in &report.requeued {
                tracing::warn!(task.id = %task, "a lease expired; the task is queued again");
            }
            for task in report.failed {
                count_lost_task();
                tracing::error!(task.id = %task, "a lease expired and the task ran out of attempts; it failed");
            }
            report.next_expiry
        }
        Err(error) => {
            tracing::warn!(%error, "the sweep failed");
            None
        }
    }
}

/// Removes sandboxes whose worker died or lost its lease.
pub(crate) async fn remove_stale_sandboxes(deps: Arc<ConsumerDeps>) {
    let hours = deps.config.command_executor.cleanup.stale_threshold_hours;
    let max_age = Duration::from_secs(hours * 3600);
    let fate = |task, epoch| deps.store.sandbox_fate(task, epoch);
    match remove_stale(deps.backend.as_ref(), max_age, fate).await {
        Ok(left) => show_stale(deps.config.command_executor.backend, left),
        Err(error) => tracing::debug!(%error, "sandboxes cannot be listed"),
    }
}

/// Removes the temporary git folders of workers of this machine that have died.
async fn remove_git_folders(_deps: Arc<ConsumerDeps>) {
    // A failure is a panic, which the runtime reports.
    let _ = tokio::task::spawn_blocking(remove_abandoned_folders).await;
}

/// Handles dead letters: fails the task if it ran out of attempts; otherwise the sweep sends another
/// wake-up.
async fn handle_dead_letters(deps: Arc<ConsumerDeps>) {
    while let Ok(Some((delivery, reason))) = deps.queue.next_dead().await {
        if let Ok(wake_up) = delivery.wake_up() {
            let id = wake_up.task;
            let out_of_attempts = match deps.store.task(id).await {
                Ok(task) => task.is_some_and(|t| t.attempt >= deps.config.consumer.max_attempts),
                // The message stays in the queue for the next run.
                Err(_) => return,
            };
            let reason = format!("its wake-ups were dead-lettered: {reason}");
            if out_of_attempts {
                match deps.store.fail_queued(id, &reason).await {
                    Ok(true) => count_lost_task(),
                    Ok(false) => {}
                    Err(_) => return,
                }
            }
        }
        if delivery.ack().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Job {
        turns: AtomicU32,
        stop: CancellationToken,
    }

    async fn panic_at_first(job: Arc<Job>) {
        match job.turns.fetch_add(1, Ordering::SeqCst) {
            0 => panic!("the first turn"),
            _ => job.stop.cancel(),
        }
    }

    #[tokio::test]
    async fn a_job_that_panics_runs_again_at_its_next_turn() {
        let stop = CancellationToken::new();
        let job = Arc::new(Job {
            turns: AtomicU32::new(0),
            stop: stop.clone(),
        });
        let period = Duration::from_millis(1);
        let runs = every("a job", period, Arc::clone(&job), stop, panic_at_first);
        let ended = tokio::time::timeout(Duration::from_secs(60), runs).await;
        assert!(ended.is_ok(), "it did not run again");
        let panicked = turn::<()>("a job", async { panic!("now") }).await;
        assert_eq!(panicked, None);
        assert_eq!(turn("a job", async { 7 }).await, Some(7));
    }
}
