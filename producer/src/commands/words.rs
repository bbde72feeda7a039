//! Answers to commands, Markdown of AgentMine.

use agentmine_domain::markdown::{cap, line, neutralized};
use agentmine_domain::{Addressed, CommentCommand, EndState, Session, Task, TaskState};
use agentmine_effects::used;
use chrono::Utc;

/// Characters of a reason.
const MAX_REASON: usize = 300;

/// To a command that cannot be acknowledged by a reaction.
pub(super) const ACCEPTED: &str = "accepted.";

/// To a word that is no command.
pub(super) fn unknown(addressed: &Addressed) -> String {
    let known: Vec<String> = CommentCommand::ALL
        .iter()
        .map(|command| format!("`{}`", Addressed::Known(*command)))
        .collect();
    format!(
        "`{addressed}` is not a command. Commands are {}.",
        known.join(", ")
    )
}

/// To a request to continue with a pull request that is over. `label` is the request label.
pub(super) fn closed(name: &str, label: &str) -> String {
    format!(
        "this {name} is closed, merged or locked, so nothing was started. Reopen it and repeat the command, or add the label `{label}` to the issue for new work."
    )
}

/// How far a task is. `changed` says whether the command changed that; one that did not is answered with why.
pub(super) fn status(
    task: &Task,
    sessions: &[Session],
    command: CommentCommand,
    changed: bool,
) -> String {
    let nothing = match command == CommentCommand::Status || changed {
        true => "",
        false => "nothing to do. ",
    };
    let mut text = format!("{nothing}Task {} {}.", task.number, state(task));
    if let Some(url) = &task.pull_request_url {
        text += &format!(" Its {}: {url}.", task.item.tracker.pull_request());
    }
    if let Some(used) = used(sessions, Utc::now()) {
        text += &format!(" So far: {used}.");
    }
    text
}

fn state(task: &Task) -> String {
    let reason = task.reason.as_deref().map(|reason| {
        let reason = neutralized(&line(&cap(reason, MAX_REASON), MAX_REASON));
        format!(": {}", reason.trim_end_matches('.'))
    });
    let reason = reason.unwrap_or_default();
    match task.state {
        TaskState::Queued if task.card.waits_for.is_some() => "waits for its turn".to_owned(),
        TaskState::Queued => "waits for a worker".to_owned(),
        TaskState::Leased(phase) => format!("is at work ({phase}, attempt {})", task.attempt),
        TaskState::Paused => format!("is paused{reason}"),
        TaskState::Ended(EndState::Done) => format!("is done{reason}"),
        TaskState::Ended(EndState::Failed) => format!("failed{reason}"),
        TaskState::Ended(EndState::Stopped) => format!("was stopped{reason}"),
    }
}
