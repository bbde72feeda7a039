//! The files of an edit are where its record says: on the branch, once a push after it is recorded.
//!
//! A worker that dies after the record must leave the edit's files to the next one, however it died.

use agentmine_agent::journal::{CallResult, Entry, decode_all};
use agentmine_domain::{EndState, Task, TaskState};

use super::{Broken, Finding};
use crate::chaos::fault::Act;
use crate::chaos::fleet::{EDITS, Fleet};
use crate::forge::DEMO;

pub(super) async fn judge(
    fleet: &Fleet,
    task: &Task,
    acts: &[Act],
    findings: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    let is_contested = acts.iter().any(|act| matches!(act, Act::PushToBranch));
    if is_contested || task.state != TaskState::Ended(EndState::Done) {
        return Ok(());
    }
    // A journal that cannot be decoded is a finding of its own.
    let Ok(entries) = decode_all(&fleet.store.steps(task.id).await?) else {
        return Ok(());
    };
    let branch = task.branch();
    for (path, text) in pushed(&entries) {
        let file = fleet.forge.file_at(DEMO, &branch, path);
        if !file.is_some_and(|file| file.contains(text)) {
            let number = task.number;
            let lost = format!(
                "task {number}: the edit of {path} and a push after it are recorded, and {branch} does not have it"
            );
            findings.push(Finding::new(Broken::Lost, lost));
        }
    }
    Ok(())
}

/// The edits that are recorded as done before a push that is.
fn pushed(entries: &[Entry]) -> Vec<(&'static str, &'static str)> {
    let mut calls = &[][..];
    let mut edited = Vec::new();
    let mut pushed = Vec::new();
    for entry in entries {
        match entry {
            Entry::ModelReply { reply, .. } => calls = &reply.calls[..],
            Entry::ToolResult { result } if is_done(result) => {
                let Some(call) = calls.iter().find(|call| call.id == result.call_id) else {
                    continue;
                };
                if call.arguments.contains("git push") {
                    pushed.clone_from(&edited);
                }
                let is_edit = |edit: &&(&str, &str)| call.arguments.contains(edit.1);
                edited.extend(EDITS.iter().filter(is_edit));
            }
            _ => {}
        }
    }
    pushed
}

fn is_done(result: &CallResult) -> bool {
    let failed = result.text.contains("exit_code") && !result.text.contains("\"exit_code\":0");
    !result.is_error && !failed
}

#[cfg(test)]
mod tests {
    use agentmine_domain::Usage;
    use agentmine_llm::{ModelReply, ToolCall};

    use super::*;

    fn call(arguments: &str, text: &str) -> [Entry; 2] {
        let call = ToolCall {
            id: "1".into(),
            name: "tool".into(),
            arguments: arguments.into(),
            ..ToolCall::default()
        };
        let reply = ModelReply {
            calls: vec![call],
            ..ModelReply::default()
        };
        let result = CallResult {
            call_id: "1".into(),
            name: "tool".into(),
            text: text.into(),
            is_error: text.contains("interrupted"),
        };
        let usage = Usage::default();
        [
            Entry::ModelReply { reply, usage },
            Entry::ToolResult { result },
        ]
    }

    #[test]
    fn only_edits_that_are_recorded_before_a_recorded_push_are_expected() {
        let [(_, first), (_, second)] = EDITS;
        let all = [
            call(first, "done"),
            call("git push", r#"{"exit_code":0}"#),
            call(second, "done"),
            call("git push", r#"{"exit_code":1}"#),
        ];
        assert_eq!(pushed(all.as_flattened()), EDITS[..1]);
        let interrupted = [
            call(first, "interrupted, outcome unknown"),
            call(second, "done"),
            call("git push", r#"{"exit_code":0}"#),
        ];
        assert_eq!(pushed(interrupted.as_flattened()), EDITS[1..]);
    }
}
