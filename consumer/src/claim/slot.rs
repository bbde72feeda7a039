//! One slot: waits for a wake-up, claims the row, acknowledges the message, runs the session, repeats.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_domain::{Task, TaskHome, TaskId, TaskState, WorkerId};
use agentmine_queue::Delivery;
use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::failpoint::Guard;
use agentmine_runtime::permit::BootInstant;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_store::StoreError;
use chrono::Utc;
use uuid::Uuid;

use super::claimed::Claimed;
use crate::mode::ConsumerMode;
use crate::session;
use crate::session::deps::ConsumerDeps;

/// How long to wait for a message before polling the rows.
const WAIT: Duration = Duration::from_secs(5);
/// With `--once`, how long to wait for a message in an empty queue.
const LAST_WAIT: Duration = Duration::from_millis(300);
/// Rows that have waited this long are claimed without a message: the broker is down or lost it.
const OLD: Duration = Duration::from_secs(10);
/// How often a slot that takes no task looks whether the pause file is there.
const PAUSED: Duration = Duration::from_secs(1);
/// How long a task's message is returned to the queue by consumers without its tracker. After that the hourly wake-ups of the
/// sweep suffice; otherwise messages that no consumer serves would pile up.
const COMES_BACK: Duration = Duration::from_secs(24 * 3600);
/// How long a poll passes over rows that others keep locked.
const POLL: Duration = Duration::from_secs(20);
/// Rows that are read at once.
const PAGE: u32 = 200;

/// Runs until `stop`, or in [`ConsumerMode::Once`] until no task is waiting. Returns the number of
/// sessions.
pub(crate) async fn run(
    deps: Arc<ConsumerDeps>,
    worker: WorkerId,
    mode: ConsumerMode,
    stop: Shutdown,
) -> u64 {
    let draining = stop.draining();
    let mut sessions = 0;
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
    while !stop.is_draining() {
        match next(&deps, &worker, mode, &stop).await {
            Next::Claimed(claim) => {
                backoff.reset();
                Box::pin(session::run(Arc::clone(&deps), *claim, stop.clone())).await;
                sessions += 1;
            }
            Next::Skipped | Next::Stuck => backoff.reset(),
            Next::Nothing | Next::Paused if mode == ConsumerMode::Once => break,
            Next::Nothing => {}
            Next::Paused => wait_for_removal(&deps, &worker, &stop).await,
            Next::Unavailable => {
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
    /// A row was claimed.
    Claimed(Box<Claimed>),
    /// There was a message, but no row to claim: another worker has it, or the task has ended.
    Skipped,
    /// There was a message for others, and the broker did not take it back for later.
    Stuck,
    /// No task is waiting.
    Nothing,
    /// The pause file exists.
    Paused,
    /// The broker or the store is unavailable.
    Unavailable,
}

async fn next(deps: &ConsumerDeps, worker: &WorkerId, mode: ConsumerMode, stop: &Shutdown) -> Next {
    let wait = match mode {
        ConsumerMode::Once => LAST_WAIT,
        ConsumerMode::Continuous => WAIT,
    };
    if deps.config.consumer.paused_by().is_some() {
        return Next::Paused;
    }
    let draining = stop.draining();
    // Dropping `next` mid-wait loses no message; nothing after it is dropped.
    let message = tokio::select! {
        biased;
        () = draining.clone().cancelled_owned() => return Next::Nothing,
        message = deps.queue.next(wait) => message,
    };
    let message = match message {
        // The file may have come while this slot waited.
        Ok(message) if deps.config.consumer.paused_by().is_some() => {
            if let Some(delivery) = message {
                put_back(delivery).await;
            }
            return Next::Paused;
        }
        message => message,
    };
    match message {
        Ok(Some(delivery)) => match on_message(deps, worker, delivery, stop).await {
            // The broker would deliver it again at once, and nothing else.
            Next::Stuck => without_messages(deps, worker, mode, stop).await,
            next => next,
        },
        Ok(None) => poll(deps, worker, mode, stop).await,
        Err(error) => {
            tracing::debug!(%error, "no message from the queue; polling the database");
            without_messages(deps, worker, mode, stop).await
        }
    }
}

/// Polls the database while the broker gives no messages that could be worked on.
async fn without_messages(
    deps: &ConsumerDeps,
    worker: &WorkerId,
    mode: ConsumerMode,
    stop: &Shutdown,
) -> Next {
    match poll(deps, worker, mode, stop).await {
        Next::Nothing if mode == ConsumerMode::Continuous => Next::Unavailable,
        other => other,
    }
}

/// Waits until the pause file was removed, or the process drains.
async fn wait_for_removal(deps: &ConsumerDeps, worker: &WorkerId, stop: &Shutdown) {
    let Some(file) = deps.config.consumer.paused_by() else {
        return;
    };
    tracing::info!(worker = %worker.0, file = %file.display(), "the pause file exists: no tasks are taken until it is removed");
    let draining = stop.draining();
    while deps.config.consumer.paused_by().is_some() {
        tokio::select! {
            () = draining.clone().cancelled_owned() => return,
            () = tokio::time::sleep(PAUSED) => {}
        }
    }
    tracing::info!(worker = %worker.0, "the pause file was removed: tasks are taken again");
}

/// Leaves a message to other consumers, or to this one later.
async fn put_back(delivery: Box<dyn Delivery>) {
    if let Err(error) = delivery.retry_later(0).await {
        tracing::debug!(%error, "a message could not be put back; the broker will redeliver it");
    }
}

/// Claims the row that a message names, then acknowledges the message whether or not it was claimed.
async fn on_message(
    deps: &ConsumerDeps,
    worker: &WorkerId,
    delivery: Box<dyn Delivery>,
    stop: &Shutdown,
) -> Next {
    let task = match delivery.wake_up() {
        Ok(wake_up) => wake_up.task,
        Err(reason) => {
            tracing::warn!(
                reason,
                "a message is not a wake-up; it goes to the dead-letter queue"
            );
            if let Err(error) = delivery.dead_letter(&reason).await {
                tracing::warn!(%error, "the message could not be dead-lettered and will be redelivered");
                return Next::Stuck;
            }
            return Next::Skipped;
        }
    };
    match deps.store.task(task).await {
        Ok(Some(row)) if deps.tracker_of(&row).is_none() => {
            return match leave(delivery, &row).await {
                true => Next::Skipped,
                false => Next::Stuck,
            };
        }
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(task.id = %task, %error, "the row cannot be read; the message goes to the retry ladder");
            let _ = delivery.retry_later(0).await;
            return Next::Unavailable;
        }
    }
    let claiming = Claiming::new(deps, task, worker);
    let claim = match claiming.once().await {
        Err(error @ StoreError::Unavailable(_)) => {
            // The store may be away for longer than the broker waits for an acknowledgement, and another consumer
            // may reach it.
            put_off(delivery, task, &error).await;
            // The first try may have been made, and may still hold the lock.
            return match claiming.until_free(stop).await {
                Ok(claim) => claim.map_or(Next::Skipped, |claim| Next::Claimed(Box::new(claim))),
                Err(_) => Next::Unavailable,
            };
        }
        answer => answer,
    };
    match claim {
        Err(error @ StoreError::Busy(_)) => {
            put_off(delivery, task, &error).await;
            Next::Skipped
        }
        Ok(claim) => {
            // After a failed ack the message is redelivered; the row is then already claimed.
            if let Err(error) = delivery.ack().await {
                tracing::debug!(task.id = %task, %error, "ack failed");
            }
            claim.map_or(Next::Skipped, |claim| Next::Claimed(Box::new(claim)))
        }
        Err(error) => {
            put_off(delivery, task, &error).await;
            Next::Unavailable
        }
    }
}

async fn put_off(delivery: Box<dyn Delivery>, task: TaskId, error: &StoreError) {
    tracing::warn!(task.id = %task, %error, "claim failed; the message goes to the retry ladder");
    if let Err(error) = delivery.retry_later(0).await {
        tracing::debug!(task.id = %task, %error, "the message was not sent to the retry ladder; the broker will redeliver it");
    }
}

/// Claims a waiting row without a message.
async fn poll(deps: &ConsumerDeps, worker: &WorkerId, mode: ConsumerMode, stop: &Shutdown) -> Next {
    if Guard::SecondNet.is_off() {
        return Next::Nothing;
    }
    let older_than = match mode {
        ConsumerMode::Once => Duration::ZERO,
        ConsumerMode::Continuous => OLD,
    };
    let mut skip = 0;
    let begun = Instant::now();
    // Page by page: rows that only other consumers serve may come first for as long as those are away.
    loop {
        let rows = match deps.store.claimable(older_than, skip, PAGE).await {
            Ok(rows) if rows.is_empty() => return Next::Nothing,
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "the rows cannot be read");
                return Next::Unavailable;
            }
        };
        let served = rows.iter().filter(|task| deps.tracker_of(task).is_some());
        for task in served {
            let claiming = Claiming::new(deps, task.id, worker);
            match claiming.until_answered(stop).await {
                Ok(Some(claim)) => return Next::Claimed(Box::new(claim)),
                Ok(None) => {}
                Err(error @ StoreError::Busy(_)) if begun.elapsed() < POLL => {
                    tracing::warn!(task.id = %task.id, %error, "the row is locked; the next one is tried");
                }
                Err(error) => {
                    tracing::warn!(task.id = %task.id, %error, "claim failed");
                    return Next::Unavailable;
                }
            }
        }
        if stop.is_draining() {
            return Next::Nothing;
        }
        skip += PAGE;
    }
}

/// Leaves a task to a consumer with its tracker: the message comes back later, and may reach that one. `false`: the broker
/// did not take it, as while it is short of memory or disk, and delivers it again at once.
async fn leave(delivery: Box<dyn Delivery>, task: &Task) -> bool {
    let waited = (Utc::now() - task.updated_at).to_std();
    let left = match comes_back(&task.state, waited.unwrap_or_default()) {
        true => delivery.retry_later(usize::MAX).await,
        false => delivery.ack().await,
    };
    if let Err(error) = &left {
        tracing::debug!(task.id = %task.id, %error, "the message of another consumer's task could not be put back; the broker will redeliver it");
    }
    left.is_ok()
}

/// Whether the message of another consumer's task that has waited for so long is needed.
fn comes_back(state: &TaskState, waited: Duration) -> bool {
    match state {
        TaskState::Queued => waited < COMES_BACK,
        // Whatever queues it again also sends a wake-up.
        TaskState::Leased(_) | TaskState::Paused | TaskState::Ended(_) => false,
    }
}

/// One claim of a row, which may have to be repeated.
pub(crate) struct Claiming<'a> {
    deps: &'a ConsumerDeps,
    task: TaskId,
    home: TaskHome,
    worker: &'a WorkerId,
    nonce: Uuid,
    /// The moment before the first try, from which on its lease certainly lasts.
    since: BootInstant,
}

impl<'a> Claiming<'a> {
    fn new(deps: &'a ConsumerDeps, task: TaskId, worker: &'a WorkerId) -> Self {
        Self {
            deps,
            task,
            home: TaskHome::Item,
            worker,
            nonce: Uuid::new_v4(),
            since: BootInstant::now(),
        }
    }

    /// The claim of a task that a person asked this process for.
    pub(crate) fn asked_for(deps: &'a ConsumerDeps, task: &Task, worker: &'a WorkerId) -> Self {
        Self {
            home: task.home(),
            ..Self::new(deps, task.id, worker)
        }
    }

    async fn once(&self) -> Result<Option<Claimed>, StoreError> {
        let config = &self.deps.config.consumer;
        let lease = Duration::from_secs(config.lease_seconds);
        let store = &self.deps.store;
        let Self {
            task,
            worker,
            nonce,
            ..
        } = *self;
        let claim = match self.home {
            TaskHome::Item | TaskHome::Repository => {
                store.claim(task, worker, nonce, lease, config.max_attempts)
            }
            TaskHome::People => store.claim_of_person(task, worker, nonce, lease),
        };
        let claim = claim.await?;
        Ok(claim.map(|claim| Claimed {
            claim,
            since: self.since,
        }))
    }

    /// Repeats the claim until the store answers. [`StoreError::Busy`] is an answer, as long as every try had one: the row stays
    /// as it was.
    async fn until_answered(&self, stop: &Shutdown) -> Result<Option<Claimed>, StoreError> {
        answered(stop, Busy::IsAnAnswer, || self.once()).await
    }

    /// The same, also while others keep the row locked.
    pub(crate) async fn until_free(&self, stop: &Shutdown) -> Result<Option<Claimed>, StoreError> {
        answered(stop, Busy::IsWaitedFor, || self.once()).await
    }
}

/// What it means that others keep a row locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    IsAnAnswer,
    IsWaitedFor,
}

/// Repeats a claim until the store answers, or the worker is at its deadline. A claim without an answer may have
/// been made: only the same nonce finds it again, and dropping it would charge an attempt in which nobody works.
async fn answered<T, F>(
    stop: &Shutdown,
    mut busy: Busy,
    mut claim: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match claim().await {
            Err(StoreError::Busy(why)) if busy == Busy::IsAnAnswer => {
                return Err(StoreError::Busy(why));
            }
            Err(error @ (StoreError::Unavailable(_) | StoreError::Busy(_))) => {
                // An earlier try may still hold the lock.
                busy = Busy::IsWaitedFor;
                tracing::debug!(%error, "no answer to a claim; it is repeated");
                tokio::select! {
                    biased;
                    () = stop.killed().cancelled_owned() => return Err(error),
                    () = backoff.wait() => {}
                }
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn messages_of_a_task_that_no_consumer_serves_end() {
        let day = Duration::from_secs(24 * 3600);
        assert!(comes_back(&TaskState::Queued, day / 2));
        assert!(!comes_back(&TaskState::Queued, day));
        assert!(!comes_back(&TaskState::Paused, Duration::ZERO));
    }

    #[tokio::test]
    async fn a_claim_without_an_answer_is_repeated_until_it_has_one() {
        let stop = Shutdown::new(Duration::from_secs(60));
        let asked = Cell::new(0);
        let unavailable = || StoreError::Unavailable("no answer within the time limit".into());
        let claim = || {
            asked.set(asked.get() + 1);
            std::future::ready(if asked.get() < 4 {
                Err(unavailable())
            } else {
                Ok(7)
            })
        };
        assert!(matches!(
            answered(&stop, Busy::IsAnAnswer, claim).await,
            Ok(7)
        ));
        assert_eq!(asked.get(), 4);
        // A worker that drains waits until its deadline.
        stop.drain();
        asked.set(0);
        assert!(matches!(
            answered(&stop, Busy::IsAnAnswer, claim).await,
            Ok(7)
        ));
        let locked = || StoreError::Busy("locked".into());
        let busy = || std::future::ready(Err::<(), _>(locked()));
        let refused = answered(&stop, Busy::IsAnAnswer, busy).await;
        assert!(matches!(refused, Err(StoreError::Busy(_))));
        // The lock is that of an earlier try of its own.
        asked.set(0);
        let own = || {
            asked.set(asked.get() + 1);
            std::future::ready(match asked.get() {
                1 => Err(unavailable()),
                2 => Err(locked()),
                _ => Ok(7),
            })
        };
        assert!(matches!(
            answered(&stop, Busy::IsAnAnswer, own).await,
            Ok(7)
        ));
        stop.kill();
        let never = || std::future::ready(Err::<(), _>(unavailable()));
        assert!(answered(&stop, Busy::IsAnAnswer, never).await.is_err());
    }
}
