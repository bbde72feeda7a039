//! What runs beside the slots: the relay of the outbox, the sweep, the dead-letter queue.
//!
//! Each is a reconciler: it takes no input, looks at what is, and may run anywhere any number of
//! times.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Epoch, TaskId, WakeUp};
use agentmine_queue::Queue;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::Found;
use agentmine_store::{Publish, SandboxFate, SweepPolicy};
use async_trait::async_trait;
use chrono::Utc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Deps;
use crate::effects::Effects;
use crate::session::{tell_failed, tracker_of};

/// How often the outbox is looked at.
const RELAY_EVERY: Duration = Duration::from_millis(500);
/// An effect begun so long ago and not done is looked after.
const STALE_EFFECT: Duration = Duration::from_secs(60);

/// The running background work.
pub(crate) struct Background {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Background {
    /// Ends it, after one last relay: what the slots gave back is to be announced.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts it. It outlives the drain and ends with [`Background::stop`].
pub(crate) fn start(deps: &Arc<Deps>, _stop: &Shutdown) -> Background {
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let sweep_every = Duration::from_secs(deps.config.consumer.sweep_seconds);
    tasks.spawn(every(RELAY_EVERY, Arc::clone(deps), stop.clone(), relay));
    tasks.spawn(every(sweep_every, Arc::clone(deps), stop.clone(), sweep));
    tasks.spawn(every(sweep_every, Arc::clone(deps), stop.clone(), bury));
    Background { tasks, stop }
}

async fn every<F: Future<Output = ()>>(
    period: Duration,
    deps: Arc<Deps>,
    stop: CancellationToken,
    work: fn(Arc<Deps>) -> F,
) {
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = tick.tick() => work(Arc::clone(&deps)).await,
        }
    }
    if period == RELAY_EVERY {
        work(deps).await;
    }
}

struct ToQueue<'a>(&'a dyn Queue);

#[async_trait]
impl Publish for ToQueue<'_> {
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), String> {
        self.0.publish(wake_up).await.map_err(|e| e.to_string())
    }
}

async fn relay(deps: Arc<Deps>) {
    if let Err(error) = deps
        .store
        .relay_outbox(100, &ToQueue(deps.queue.as_ref()))
        .await
    {
        tracing::debug!(%error, "the outbox waits");
    }
}

async fn sweep(deps: Arc<Deps>) {
    let consumer = &deps.config.consumer;
    let policy = SweepPolicy {
        max_attempts: consumer.max_attempts,
        wakeup_after: Duration::from_secs(consumer.wakeup_after_seconds),
    };
    match deps.store.sweep(&policy).await {
        Ok(report) => {
            for task in &report.requeued {
                tracing::warn!(task.id = %task, "a lease ran out; the task is queued again");
            }
            metrics::counter!("agentmine_leases_expired_total")
                .increment((report.requeued.len() + report.failed.len()) as u64);
            for task in report.failed {
                tracing::error!(task.id = %task, "a lease ran out for the last time; the task failed");
                mourn(&deps, task).await;
            }
        }
        Err(error) => tracing::warn!(%error, "the sweep failed"),
    }
    finish_effects(&deps).await;
    clear_sandboxes(&deps).await;
}

/// Tells the tracker of a task that failed with no worker on it.
async fn mourn(deps: &Deps, id: TaskId) {
    let Ok(Some(task)) = deps.store.task(id).await else {
        return;
    };
    let Some(tracker) = tracker_of(deps, &task) else {
        return;
    };
    let reason = task
        .reason
        .clone()
        .unwrap_or_else(|| "every attempt was lost".into());
    let effects = Effects {
        store: Arc::clone(&deps.store),
        tracker,
        labels: deps.config.labels.clone(),
        task,
        lease: None,
    };
    if let Err(halt) = tell_failed(&effects, &reason, "none").await {
        tracing::warn!(task.id = %id, %halt, "the tracker was not told of the failure; the next sweep will");
    }
}

/// Ends what was begun on the tracker for tasks that are over: their last label.
async fn finish_effects(deps: &Deps) {
    let stale = match deps.store.stale_effects(STALE_EFFECT, 20).await {
        Ok(stale) => stale,
        Err(error) => {
            tracing::debug!(%error, "stale effects cannot be read");
            return;
        }
    };
    for effect in stale {
        let Some(tracker) = tracker_of(deps, &effect.task) else {
            continue;
        };
        let effects = Effects {
            store: Arc::clone(&deps.store),
            tracker,
            labels: deps.config.labels.clone(),
            task: effect.task,
            lease: None,
        };
        if let Err(halt) = effects.settle(&effect.key).await {
            tracing::warn!(task.id = %effects.task.id, effect = %effect.key, %halt, "an effect is still open");
        }
    }
}

/// Removes sandboxes by what the store says of them; by age only where no row knows them; never
/// while the store cannot be read.
async fn clear_sandboxes(deps: &Deps) {
    let found = match deps.backend.list().await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "sandboxes cannot be listed");
            return;
        }
    };
    let old =
        Duration::from_secs(deps.config.command_executor.cleanup.stale_threshold_hours * 3600);
    for sandbox in found {
        if !is_stale(deps, &sandbox, old).await {
            continue;
        }
        match deps.backend.remove(&sandbox).await {
            Ok(()) => tracing::warn!(sandbox.name, "a sandbox that was left behind is removed"),
            Err(error) => {
                tracing::warn!(sandbox.name, %error, "a sandbox that was left behind stays")
            }
        }
    }
}

async fn is_stale(deps: &Deps, sandbox: &Found, old: Duration) -> bool {
    let age = (Utc::now() - sandbox.created_at)
        .to_std()
        .unwrap_or_default();
    let Some(task) = sandbox.task else {
        return age >= old;
    };
    match deps
        .store
        .sandbox_fate(task, sandbox.epoch.unwrap_or(Epoch(0)))
        .await
    {
        Ok(SandboxFate::Alive) => false,
        Ok(SandboxFate::Dead) => true,
        Ok(SandboxFate::Unknown) => age >= old,
        Err(_) => false,
    }
}

/// The dead-letter queue marks the row.
async fn bury(deps: Arc<Deps>) {
    while let Ok(Some((delivery, reason))) = deps.queue.next_dead().await {
        if let Ok(wake_up) = delivery.wake_up() {
            let task = wake_up.task;
            match deps
                .store
                .fail_queued(task, &format!("its wake-ups were dead-lettered: {reason}"))
                .await
            {
                Ok(true) => mourn(&deps, task).await,
                Ok(false) => {}
                // It stays in the queue for the next round.
                Err(_) => return,
            }
        }
        if delivery.ack().await.is_err() {
            return;
        }
    }
}
