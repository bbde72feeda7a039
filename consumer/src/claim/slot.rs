//! One slot: wait for a wake-up, claim the row, acknowledge, run the session; again.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{TaskId, WorkerId};
use agentmine_queue::Delivery;
use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_store::{Claim, StoreError};
use uuid::Uuid;

use crate::session::deps::ConsumerDeps;
use crate::{ConsumerMode, session};

/// How long one wait for a message may last before the rows are looked at.
const WAIT: Duration = Duration::from_secs(5);
/// In `--once`, how long an empty queue is waited for.
const LAST_WAIT: Duration = Duration::from_millis(300);
/// Rows that waited so long are taken without a message: the broker is down or was wiped.
const OLD: Duration = Duration::from_secs(10);

/// Runs until told to stop, or in [`ConsumerMode::Once`] until nothing waits. Returns the number of sessions.
pub(crate) async fn run(
    deps: Arc<ConsumerDeps>,
    index: usize,
    mode: ConsumerMode,
    stop: Shutdown,
) -> u64 {
    let worker = worker_id(index);
    let draining = stop.draining();
    let mut sessions = 0;
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    while !stop.is_draining() {
        match next(&deps, &worker, mode, &stop).await {
            Next::Claimed(claim) => {
                backoff.reset();
                session::run(Arc::clone(&deps), *claim, stop.clone()).await;
                sessions += 1;
            }
            Next::Taken => backoff.reset(),
            Next::Nothing if mode == ConsumerMode::Once => break,
            Next::Nothing => {}
            Next::Trouble => {
                tokio::select! {
                    () = draining.clone().cancelled_owned() => {}
                    () = tokio::time::sleep(backoff.delay()) => {}
                }
            }
        }
    }
    sessions
}

enum Next {
    /// A row is ours.
    Claimed(Box<Claim>),
    /// There was a message, but its row was somebody else's or over.
    Taken,
    /// Nothing waits.
    Nothing,
    /// Broker and store are both no help now.
    Trouble,
}

async fn next(deps: &ConsumerDeps, worker: &WorkerId, mode: ConsumerMode, stop: &Shutdown) -> Next {
    let wait = match mode {
        ConsumerMode::Once => LAST_WAIT,
        ConsumerMode::Continuous => WAIT,
    };
    let draining = stop.draining();
    // Dropping `next` mid-wait loses no message; nothing after it is dropped.
    let message = tokio::select! {
        biased;
        () = draining.clone().cancelled_owned() => return Next::Nothing,
        message = deps.queue.next(wait) => message,
    };
    match message {
        Ok(Some(delivery)) => on_message(deps, worker, delivery).await,
        Ok(None) => poll(deps, worker, mode).await,
        Err(error) => {
            tracing::debug!(%error, "no message; looking at the rows");
            match poll(deps, worker, mode).await {
                Next::Nothing if mode == ConsumerMode::Continuous => Next::Trouble,
                other => other,
            }
        }
    }
}

/// Claims the row a message names, then acknowledges it, whatever the row said.
async fn on_message(deps: &ConsumerDeps, worker: &WorkerId, delivery: Box<dyn Delivery>) -> Next {
    let task = match delivery.wake_up() {
        Ok(wake_up) => wake_up.task,
        Err(reason) => {
            tracing::warn!(
                reason,
                "a message that is no wake-up goes to the dead-letter queue"
            );
            if let Err(error) = delivery.dead_letter(&reason).await {
                tracing::warn!(%error, "it could not be dead-lettered and will come again");
            }
            return Next::Taken;
        }
    };
    match ours(deps, task).await {
        Ok(true) => {}
        Ok(false) => {
            // Left to a consumer that has the tracker: the sweep wakes the row again.
            let _ = delivery.ack().await;
            return Next::Taken;
        }
        Err(error) => {
            tracing::warn!(task.id = %task, %error, "the row cannot be read; the message goes to the retry ladder");
            let _ = delivery.retry_later(0).await;
            return Next::Trouble;
        }
    }
    match claim(deps, task, worker).await {
        Ok(claim) => {
            // A failed ack brings the message again; the row then says that it is taken.
            if let Err(error) = delivery.ack().await {
                tracing::debug!(task.id = %task, %error, "ack failed");
            }
            claim.map_or(Next::Taken, |claim| Next::Claimed(Box::new(claim)))
        }
        Err(error) => {
            tracing::warn!(task.id = %task, %error, "claim failed; the message goes to the retry ladder");
            if let Err(error) = delivery.retry_later(0).await {
                tracing::debug!(task.id = %task, %error, "the broker will deliver it again");
            }
            Next::Trouble
        }
    }
}

/// Looks at the rows themselves.
async fn poll(deps: &ConsumerDeps, worker: &WorkerId, mode: ConsumerMode) -> Next {
    let older_than = match mode {
        ConsumerMode::Once => Duration::ZERO,
        ConsumerMode::Continuous => OLD,
    };
    let rows = match deps.store.claimable(older_than, 50).await {
        Ok(rows) => rows,
        Err(error) => {
            tracing::warn!(%error, "the rows cannot be read");
            return Next::Trouble;
        }
    };
    for task in rows {
        if !matches!(ours(deps, task).await, Ok(true)) {
            continue;
        }
        match claim(deps, task, worker).await {
            Ok(Some(claim)) => return Next::Claimed(Box::new(claim)),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(task.id = %task, %error, "claim failed");
                return Next::Trouble;
            }
        }
    }
    Next::Nothing
}

/// Whether this consumer has the tracker of the task; one of another tracker is left to others.
async fn ours(deps: &ConsumerDeps, task: TaskId) -> Result<bool, StoreError> {
    let task = deps.store.task(task).await?;
    Ok(task.is_none_or(|task| deps.tracker_of(&task).is_some()))
}

/// One claim. The store repeats it where the outcome of the commit is unknown; the nonce makes the
/// second try find the claim of the first.
async fn claim(
    deps: &ConsumerDeps,
    task: TaskId,
    worker: &WorkerId,
) -> Result<Option<Claim>, StoreError> {
    let config = &deps.config.consumer;
    let lease = Duration::from_secs(config.lease_seconds);
    let nonce = Uuid::new_v4();
    deps.store
        .claim(task, worker, nonce, lease, config.max_attempts)
        .await
}

/// `host/pid/slot`, with a random part: a restarted container has the same host name and pid.
fn worker_id(index: usize) -> WorkerId {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let salt = &Uuid::new_v4().simple().to_string()[..6];
    WorkerId(format!(
        "{}/{}-{salt}/{index}",
        host.trim(),
        std::process::id()
    ))
}
