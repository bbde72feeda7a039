//! Ends paused tasks whose item was closed, and continues those that wait for credentials, or whose item lost the pause
//! label. No session notices any of it, since none runs, and no scan does, since it lists open items.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{PublicStatus, Task, TaskId, TaskNumber, TaskState};
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
/// After so long it is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(600);

/// Which paused tasks of a tracker one producer has looked at.
#[derive(Default)]
pub(crate) struct Paused {
    /// There was a pass.
    is_known: bool,
    /// The next pass begins below this number.
    before: Option<TaskNumber>,
    /// The tasks that wait for credentials, since this producer has known of it.
    waiting: HashMap<TaskId, Waiting>,
}

/// A task that waits for credentials.
struct Waiting {
    since: BootInstant,
    /// Whether the tracker refused them when it was last asked.
    refused: bool,
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
        self.waiting.retain(|id, _| {
            let mut still = tasks.iter().filter(|task| task.waits_for_credentials());
            still.any(|task| task.id == *id)
        });
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
        match looked {
            Ok(_) if task.waits_for_credentials() && self.is_due(task.id, is_first) => {
                if deps.store.resume(task.id).await? {
                    tracing::info!(task.id = %task.id, item = %task.item, "the credentials may be accepted now; the task is queued");
                }
            }
            Ok(item) => items::resume_unlabelled(deps, task, &item).await?,
            Err(error) => {
                let refused = matches!(
                    error,
                    TrackerError::Unauthorized { .. }
                        | TrackerError::Forbidden { .. }
                        | TrackerError::Archived { .. }
                );
                if task.waits_for_credentials() {
                    self.waiting(task.id).refused |= refused;
                }
                tracing::debug!(task.id = %task.id, %error, "the item of a paused task cannot be checked");
            }
        }
        Ok(())
    }

    /// Whether a task whose item can be read is to be tried: the credentials were replaced, perhaps by the restart of
    /// this process, or long enough ago they were refused.
    fn is_due(&mut self, task: TaskId, is_first: bool) -> bool {
        let waiting = self.waiting(task);
        let due = is_first || waiting.refused || waiting.since.elapsed() >= TRY_AGAIN;
        if due {
            self.waiting.remove(&task);
        }
        due
    }

    fn waiting(&mut self, task: TaskId) -> &mut Waiting {
        self.waiting.entry(task).or_insert_with(|| Waiting {
            since: BootInstant::now(),
            refused: false,
        })
    }
}

/// The item of a paused task, or why nothing can be written there.
async fn look(tracker: &Arc<dyn Tracker>, task: &Task) -> Result<Item, TrackerError> {
    let tracker = for_task(Arc::clone(tracker), task);
    let item = tracker.item(&task.item).await?;
    // An archived repository can be read, and accepts nothing.
    if item.closed().is_none()
        && task.waits_for_credentials()
        && let Err(archived @ TrackerError::Archived { .. }) = tracker.repository(&task.item).await
    {
        return Err(archived);
    }
    Ok(item)
}
