//! Ends paused tasks whose item was closed. No session notices that, since none runs, and no scan does, since it
//! lists open items.

use std::time::Duration;

use agentmine_domain::{PublicStatus, Task, TaskNumber, TaskState};
use agentmine_runtime::permit::BootInstant;
use agentmine_store::TaskFilter;

use crate::deps::ProducerDeps;

/// How many items one pass looks at. A later pass goes on with the next ones.
const AT_ONCE: usize = 20;

/// Which paused tasks one producer has looked at.
#[derive(Default)]
pub(crate) struct Paused {
    last_look: Option<BootInstant>,
    /// The next pass begins below this number.
    before: Option<TaskNumber>,
}

impl Paused {
    /// Stops the tasks whose item is closed; the sweep reports it. Looks at most once in each lease, at [`AT_ONCE`]
    /// items. A tracker's or the store's error ends the pass; the next one begins after the item that failed.
    pub(crate) async fn end_closed(&mut self, deps: &ProducerDeps) {
        let lease = Duration::from_secs(deps.config.consumer.lease_seconds);
        if self.last_look.is_some_and(|last| last.elapsed() < lease) {
            return;
        }
        self.last_look = Some(BootInstant::now());
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
        tasks.retain(|task| task.state == TaskState::Paused);
        for task in next(tasks, self.before, |task| task.number) {
            self.before = Some(task.number);
            if let Err(error) = end_if_closed(deps, &task).await {
                tracing::debug!(task.id = %task.id, error = format!("{error:#}"), "the item of a paused task cannot be looked at");
                return;
            }
        }
    }
}

/// What a pass looks at, out of `all`, newest first: what is below `before`, then the rest again from the top.
fn next<T>(all: Vec<T>, before: Option<TaskNumber>, number: impl Fn(&T) -> TaskNumber) -> Vec<T> {
    let is_seen = |one: &T| before.is_some_and(|before| number(one) >= before);
    let (seen, rest): (Vec<T>, Vec<T>) = all.into_iter().partition(is_seen);
    rest.into_iter().chain(seen).take(AT_ONCE).collect()
}

async fn end_if_closed(deps: &ProducerDeps, task: &Task) -> anyhow::Result<()> {
    let mut trackers = deps.trackers.iter();
    let Some(tracker) = trackers.find(|tracker| tracker.serves(&task.item)) else {
        return Ok(());
    };
    if !tracker.item(&task.item).await?.open {
        let stopped = deps.store.request_stop(task.id, "the item was closed");
        if stopped.await? {
            tracing::info!(task.id = %task.id, item = %task.item, "the item was closed; the paused task ends");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_paused_task_has_its_turn() {
        let all: Vec<i64> = (1..=50).rev().collect();
        let mut before = None;
        let mut pass = || {
            let numbers = next(all.clone(), before, |number| TaskNumber(*number));
            before = numbers.last().map(|number| TaskNumber(*number));
            (numbers[0], numbers[numbers.len() - 1])
        };
        assert_eq!(pass(), (50, 31));
        assert_eq!(pass(), (30, 11));
        assert_eq!(pass(), (10, 41));
        assert_eq!(pass(), (40, 21));
    }
}
