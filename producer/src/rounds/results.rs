//! The results that tasks left on the branch of a pull request.

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_effects::{Effects, ReportedCommit};
use anyhow::Result;

/// The newest commit that one of these tasks (newest first) reported as its result, and whether a later task ended without
/// one. `None` if no task reported one, or a task that is done has no record.
pub(super) async fn newest_result<'t>(
    tasks: impl Iterator<Item = &'t Task>,
    effects: impl Fn(&Task) -> Effects,
) -> Result<Option<(ReportedCommit, bool)>> {
    let mut left_none = false;
    for task in tasks {
        if let Some(commit) = effects(task).reported_commit().await? {
            return Ok(Some((commit, left_none)));
        }
        if task.state == TaskState::Ended(EndState::Done) {
            break;
        }
        left_none = true;
    }
    Ok(None)
}
