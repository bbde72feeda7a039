//! Marks of checks: by them a tracker shows at once which of many pull requests need no look.

use std::sync::Arc;

use agentmine_domain::Task;
use agentmine_trackers::{CheckMarks, OpenPull, OpenPulls, Tracker};

use crate::deps::ProducerDeps;

/// Of how many pull requests a tracker shows the marks in one request.
const PULLS_A_PAGE: usize = 100;

/// The tracker's marks of checks, if more pull requests are to be looked at than the marks would take requests.
pub(super) async fn read(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    tasks: &[Task],
    open: &OpenPulls,
) -> CheckMarks {
    if !deps.config.rounds.enabled {
        return CheckMarks::default();
    }
    let due = tasks.iter().filter(|task| {
        let seen = deps.pulls.get(task.id);
        let is_due = |pull| seen.is_none_or(|seen| seen.is_as(pull) && seen.is_due());
        pull_of(task, open).is_some_and(is_due)
    });
    if due.count() * PULLS_A_PAGE <= open.pulls.len() {
        return CheckMarks::default();
    }
    tracker.check_marks().await.unwrap_or_else(|error| {
        tracing::debug!(%error, "the checks of all pull requests cannot be read at once");
        CheckMarks::default()
    })
}

/// The open pull request of a task.
pub(super) fn pull_of<'p>(task: &Task, open: &'p OpenPulls) -> Option<&'p OpenPull> {
    let head = task.branch();
    let repo_id = &task.item.repo_id;
    let is_it = |pull: &&OpenPull| pull.repo_id == *repo_id && pull.head == head;
    open.pulls.iter().find(is_it)
}
