//! Journals without doubled or missing steps.

use agentmine_agent::journal::{Entry, decode_all};
use agentmine_domain::{EndState, StepKind, Task, TaskState};

use super::{Broken, Finding};
use crate::chaos::fleet::Fleet;

pub(super) async fn judge(
    fleet: &Fleet,
    task: &Task,
    findings: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    let steps = fleet.store.steps(task.id).await?;
    let number = task.number;
    let mut find = |detail: String| {
        let detail = format!("journal of task {number}: {detail}");
        findings.push(Finding::new(Broken::Journal, detail));
    };
    for (at, step) in steps.iter().enumerate() {
        if step.seq.0 != at as i64 + 1 {
            find(format!(
                "step {} is in the place of step {}",
                step.seq,
                at + 1
            ));
            break;
        }
    }
    let is_message = |kind| matches!(kind, StepKind::ModelReply | StepKind::ToolResult);
    for pair in steps.windows(2) {
        let [one, next] = pair else { continue };
        let same = (one.kind, one.epoch) == (next.kind, next.epoch) && one.payload == next.payload;
        if same && is_message(one.kind) {
            find(format!("step {} repeats step {}", next.seq, one.seq));
        }
    }
    let entries = match decode_all(&steps) {
        Ok(entries) => entries,
        Err(error) => {
            find(error.to_string());
            return Ok(());
        }
    };
    if task.state != TaskState::Ended(EndState::Done) {
        return Ok(());
    }
    // The model gives each reply for the number of replies before it, so the newest request shows how many
    // there must be.
    let replies = entries
        .iter()
        .filter(|entry| matches!(entry, Entry::ModelReply { .. }))
        .count();
    let branch = task.branch();
    let requests = fleet.model.requests();
    let newest = requests
        .iter()
        .filter(|seen| seen.body["messages"].to_string().contains(&branch))
        .map(|seen| seen.turn + 1)
        .max();
    if newest.is_some_and(|newest| newest != replies) {
        find(format!(
            "{replies} replies are recorded, and {newest:?} were requested"
        ));
    }
    Ok(())
}
