//! Ends paused tasks whose item was closed, and continues those that wait for credentials, or whose item lost the pause
//! label. No session notices any of it, since none runs, and no scan does, since it lists open items.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{PublicStatus, Task, TaskId, TaskNumber, TaskState, TrackerKind};
use agentmine_runtime::permit::BootInstant;
use agentmine_store::TaskFilter;
use agentmine_trackers::{Item, Tracker, TrackerError, closed, for_task};
use anyhow::Result;
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;
use crate::items::{self, next};

/// How many items one pass looks at. A later pass continues with the next ones.
const MOST: usize = 200;
/// Items that are checked at once.
const AT_ONCE: usize = 8;
/// Anybody who removes a pause label does not wait longer for the next pass.
const LONGEST: Duration = Duration::from_secs(30);
/// A task whose item could be read all the time lacks a permission that only a write shows, or the git host refused it.
/// After so long it is tried again, and after twice as long with each try: each one may change labels and comments.
const TRY_AGAIN: Duration = Duration::from_secs(600);
const LONGEST_WAIT: Duration = Duration::from_secs(6 * 3600);
/// A task that does not wait for credentials for so long does what it could not do before.
const FORGET: Duration = Duration::from_secs(24 * 3600);

/// Which paused tasks of a tracker one producer has looked at.
#[derive(Default)]
pub(crate) struct Paused {
    /// There was a pass.
    is_known: bool,
    /// The next pass begins below this number.
    before: Option<TaskNumber>,
    /// The tasks that wait for credentials, or did within [`FORGET`], since this producer has known of it.
    waiting: HashMap<TaskId, Waiting>,
    /// Since when an item is not found, in a repository that is.
    missing: HashMap<TaskId, BootInstant>,
}

/// A task that waits for credentials, or did.
struct Waiting {
    stage: Stage,
    /// Whether the tracker refused them when it was last asked.
    refused: bool,
    /// How often it was queued again since they were last refused.
    tries: u32,
}

enum Stage {
    Waits { since: BootInstant },
    QueuedAgain { at: BootInstant },
}

/// A pass in each lease and in [`LONGEST`], until the process drains.
pub(crate) async fn watch(
    (deps, tracker): (Arc<ProducerDeps>, Arc<dyn Tracker>),
    draining: CancellationToken,
) {
    let mut passes = deps.passes(LONGEST);
    let mut paused = Paused::default();
    while draining.run_until_cancelled(passes.tick()).await.is_some() {
        // A pass is short and is not cancelled.
        paused.reconcile(&deps, &tracker).await;
    }
}

impl Paused {
    /// Stops the tasks whose item is closed; the sweep reports it. Queues those again whose credentials are accepted.
    /// Looks at [`MOST`] items. An error of the store ends the pass, and so does a tracker that does not answer.
    pub(crate) async fn reconcile(&mut self, deps: &ProducerDeps, tracker: &Arc<dyn Tracker>) {
        let is_first = !std::mem::replace(&mut self.is_known, true);
        let in_progress = TaskFilter {
            status: Some(PublicStatus::InProgress),
            ..TaskFilter::default()
        };
        let mut tasks = match deps.store.tasks(&in_progress).await {
            Ok(tasks) => tasks,
            Err(error) => {
                tracing::debug!(%error, "the paused tasks cannot be listed");
                return;
            }
        };
        tasks.retain(|task| task.state == TaskState::Paused && tracker.serves(&task.item));
        self.missing
            .retain(|id, _| tasks.iter().any(|task| task.id == *id));
        let waits = tasks.iter().filter(|task| task.waits_for_credentials());
        let waits = waits.map(|task| task.id).collect();
        self.forget_all_but(&waits, BootInstant::now());
        let looks = next(tasks, (self.before, MOST), |task| task.number);
        let looks = looks.into_iter().map(async |task| {
            let looked = look(tracker, &task).await;
            (task, looked)
        });
        let mut looks = futures::stream::iter(looks).buffered(AT_ONCE);
        while let Some((task, looked)) = looks.next().await {
            self.before = Some(task.number);
            // The next ones would not be answered either.
            let is_silent = matches!(
                looked,
                Err(TrackerError::Unavailable { .. } | TrackerError::RateLimited { .. })
            );
            if let Err(error) = self.judge(deps, &task, looked, is_first).await {
                let error = format!("{error:#}");
                tracing::debug!(task.id = %task.id, error, "a paused task cannot be checked");
                return;
            }
            if is_silent {
                return;
            }
        }
    }

    async fn judge(
        &mut self,
        deps: &ProducerDeps,
        task: &Task,
        looked: Result<Item, TrackerError>,
        is_first: bool,
    ) -> Result<()> {
        if let Some(reason) = closed(&looked) {
            if deps.store.request_stop(task.id, reason).await? {
                tracing::info!(task.id = %task.id, item = %task.item, reason, "the paused task ends");
            }
            return Ok(());
        }
        if !matches!(looked, Err(TrackerError::NotFound { .. })) {
            self.missing.remove(&task.id);
        }
        match looked {
            Ok(_)
                if task.waits_for_credentials()
                    && self.is_due(task.id, is_first, BootInstant::now()) =>
            {
                if deps.store.resume(task.id).await? {
                    let now = BootInstant::now();
                    self.waiting(task.id, now).queued_again(now);
                    tracing::info!(task.id = %task.id, item = %task.item, "the credentials may be accepted now; the task is queued");
                }
            }
            Ok(item) => items::resume_unlabelled(deps, task, &item).await?,
            // Issues in files may only be out of sight, on a branch that is not checked out.
            Err(TrackerError::NotFound { what, .. })
                if task.item.tracker != TrackerKind::Local
                    && self.is_gone(deps, task.id, BootInstant::now()) =>
            {
                let reason = format!("{what} no longer exists");
                if deps.store.request_stop(task.id, &reason).await? {
                    tracing::info!(task.id = %task.id, item = %task.item, reason, "the paused task ends");
                }
            }
            Err(error) => {
                let refused = matches!(
                    error,
                    TrackerError::Unauthorized { .. }
                        | TrackerError::Forbidden { .. }
                        | TrackerError::Archived { .. }
                );
                if task.waits_for_credentials() {
                    self.waiting(task.id, BootInstant::now()).refused |= refused;
                }
                tracing::debug!(task.id = %task.id, %error, "the item of a paused task cannot be checked");
            }
        }
        Ok(())
    }

    /// Whether an item that is not found at `now` has not been found for so long that it counts as gone.
    fn is_gone(&mut self, deps: &ProducerDeps, task: TaskId, now: BootInstant) -> bool {
        let after = Duration::from_secs(deps.config.consumer.item_gone_seconds);
        now >= *self.missing.entry(task).or_insert(now) + after
    }

    /// Whether a task whose item can be read is to be tried: the credentials were replaced, perhaps by the restart of
    /// this process, or long enough ago they were refused.
    fn is_due(&mut self, task: TaskId, is_first: bool, now: BootInstant) -> bool {
        let waiting = self.waiting(task, now);
        waiting.refused |= is_first;
        match waiting.stage {
            _ if waiting.refused => true,
            Stage::Waits { since } => now >= since + waiting.wait(),
            Stage::QueuedAgain { .. } => false,
        }
    }

    /// The state of a task that waits now.
    fn waiting(&mut self, task: TaskId, now: BootInstant) -> &mut Waiting {
        let waits = Stage::Waits { since: now };
        match self.waiting.entry(task) {
            Entry::Occupied(entry) => {
                let waiting = entry.into_mut();
                if let Stage::QueuedAgain { .. } = waiting.stage {
                    waiting.stage = waits;
                }
                waiting
            }
            Entry::Vacant(entry) => entry.insert(Waiting {
                stage: waits,
                refused: false,
                tries: 0,
            }),
        }
    }

    /// Only these tasks wait now. Another one may have been queued again by another producer or a person, and may wait
    /// again soon.
    fn forget_all_but(&mut self, waits: &HashSet<TaskId>, now: BootInstant) {
        self.waiting.retain(|id, waiting| match waiting.stage {
            _ if waits.contains(id) => true,
            Stage::Waits { .. } => {
                waiting.queued_again(now);
                true
            }
            Stage::QueuedAgain { at } => now < at + FORGET,
        });
    }
}

impl Waiting {
    /// How long it waits until the next try.
    fn wait(&self) -> Duration {
        let factor = 2u32.saturating_pow(self.tries);
        TRY_AGAIN.saturating_mul(factor).min(LONGEST_WAIT)
    }

    /// Credentials that were refused until now are other ones: earlier tries say nothing of them.
    fn queued_again(&mut self, at: BootInstant) {
        self.tries = match self.refused {
            true => 0,
            false => self.tries.saturating_add(1),
        };
        self.refused = false;
        self.stage = Stage::QueuedAgain { at };
    }
}

/// The item of a paused task, or why nothing can be written there.
async fn look(tracker: &Arc<dyn Tracker>, task: &Task) -> Result<Item, TrackerError> {
    let tracker = for_task(Arc::clone(tracker), task);
    let item = match tracker.item(&task.item).await {
        // A repository that is not found may only be hidden.
        Err(missing @ TrackerError::NotFound { .. }) => {
            return match tracker.repository(&task.item).await {
                Ok(_) => Err(missing),
                Err(TrackerError::NotFound { tracker, what }) => Err(TrackerError::Forbidden {
                    tracker,
                    detail: format!("{what} is not found"),
                    hint: "it was hidden or deleted, or the credentials have no access to it"
                        .into(),
                }),
                Err(error) => Err(error),
            };
        }
        item => item?,
    };
    // An archived repository can be read, and accepts nothing.
    if item.closed().is_none()
        && task.waits_for_credentials()
        && let Err(archived @ TrackerError::Archived { .. }) = tracker.repository(&task.item).await
    {
        return Err(archived);
    }
    Ok(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// The task is queued again, and paused again at once.
    fn queue_again(paused: &mut Paused, task: TaskId, now: BootInstant) {
        paused.waiting(task, now).queued_again(now);
        paused.forget_all_but(&HashSet::new(), now);
        assert!(!paused.is_due(task, false, now), "at once");
    }

    #[test]
    fn a_task_that_is_paused_again_after_each_try_is_tried_later_each_time() {
        let mut paused = Paused::default();
        let (task, mut now) = (TaskId::new(), BootInstant::now());
        assert!(!paused.is_due(task, false, now));
        for minutes in [10, 20, 40, 80, 160, 320, 360, 360] {
            let due = now + MINUTE * minutes;
            let before = now + (MINUTE * minutes - Duration::from_secs(1));
            assert!(!paused.is_due(task, false, before), "{minutes}");
            assert!(paused.is_due(task, false, due), "{minutes}");
            queue_again(&mut paused, task, due);
            now = due;
        }
    }

    #[test]
    fn credentials_that_were_refused_are_tried_at_once_when_they_are_accepted_and_then_from_the_start()
     {
        let mut paused = Paused::default();
        let (task, now) = (TaskId::new(), BootInstant::now());
        for _ in 0..5 {
            queue_again(&mut paused, task, now);
        }
        assert!(!paused.is_due(task, false, now + MINUTE * 30));
        paused.waiting(task, now).refused = true;
        assert!(paused.is_due(task, false, now));
        queue_again(&mut paused, task, now);
        assert!(paused.is_due(task, false, now + MINUTE * 10));
        // A restart of this process may have replaced them.
        let mut paused = Paused::default();
        assert!(paused.is_due(task, true, now));
        queue_again(&mut paused, task, now);
        assert!(paused.is_due(task, false, now + MINUTE * 10));
    }

    #[test]
    fn a_task_that_another_process_queued_again_is_remembered_for_a_day() {
        let mut paused = Paused::default();
        let (task, now) = (TaskId::new(), BootInstant::now());
        assert!(!paused.is_due(task, false, now));
        paused.forget_all_but(&HashSet::new(), now);
        paused.forget_all_but(&HashSet::new(), now + MINUTE * (23 * 60));
        let again = now + MINUTE * (23 * 60);
        assert!(!paused.is_due(task, false, again));
        assert!(!paused.is_due(task, false, again + MINUTE * 19));
        assert!(paused.is_due(task, false, again + MINUTE * 20));
        paused.forget_all_but(&HashSet::new(), again);
        paused.forget_all_but(&HashSet::new(), again + MINUTE * (24 * 60));
        assert!(paused.waiting.is_empty());
    }
}
