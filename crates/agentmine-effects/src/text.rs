//! The comments on an item.

use std::cmp::Ordering;

use agentmine_domain::markdown::{cap, fenced, line, neutralized, quotation};
use agentmine_domain::{ItemKind, ItemRef, Phase, Session, Task, Usage, label_of_pause};
use agentmine_runtime::config::Labels;
use agentmine_trackers::{Comment, PullRequest};
use chrono::{DateTime, TimeDelta, Utc};

/// Maximum number of characters of a reason in a comment.
const MAX_REASON: usize = 8_000;
/// Characters of a label's name.
const MAX_LABEL: usize = 100;

/// The progress comment on the item, which is edited in place. `session` is the session's number, or
/// `ended` after the last session.
#[must_use]
pub fn progress_comment(text: &str, session: &str) -> String {
    format!("{text}\n\n<sub>AgentMine, session {session}</sub>")
}

/// With this begins the comment while a session works.
const WORKING: &str = "AgentMine is working on this";

/// The comment for a session that begins.
#[must_use]
pub fn work_comment(attempt: u32, session: &str) -> String {
    let text = match attempt {
        0 | 1 => format!("{WORKING}."),
        n => format!("{WORKING} (attempt {n})."),
    };
    progress_comment(&text, session)
}

/// The comment while a session works: what is done, what is at work, what comes, and what it has used so far.
#[must_use]
pub fn working_comment(
    task: &Task,
    phase: Phase,
    sessions: &[Session],
    (session, now): (&str, DateTime<Utc>),
) -> String {
    let name = task.item.tracker.pull_request();
    let mut text = match task.attempt {
        0 | 1 => format!("{WORKING}."),
        n => format!("{WORKING} (attempt {n})."),
    };
    text += "\n";
    for step in Phase::ALL {
        let what = match (step, task.item.kind) {
            (Phase::Preparing, _) => "Prepare the sandbox and the project".to_owned(),
            (Phase::Running, _) => "Work on the request".to_owned(),
            (Phase::Verifying, _) => "Check the pushed commit".to_owned(),
            (Phase::Reporting, ItemKind::Issue | ItemKind::Task) => format!("Open the {name}"),
            (Phase::Reporting, ItemKind::PullRequest) => "Report the result".to_owned(),
        };
        text += &match step.cmp(&phase) {
            Ordering::Less => format!("\n- [x] {what}"),
            Ordering::Equal => format!("\n- [ ] **{what}**"),
            Ordering::Greater => format!("\n- [ ] {what}"),
        };
    }
    let used = used(sessions, now);
    text.extend(used.map(|used| format!("\n\nSo far: {used}.")));
    let pull = task.pull_request_url.as_ref();
    text.extend(pull.map(|url| format!("\n\nThe {name}: {url}")));
    progress_comment(&text, session)
}

/// The comment for a task that a person paused.
pub(crate) fn paused_comment(reason: &str, request: &str, session: &str) -> String {
    let text = match label_of_pause(reason) {
        Some(label) => {
            let label = line(label, MAX_LABEL).replace('`', "'");
            format!("AgentMine is paused while this has the label `{label}`.")
        }
        None => {
            let reason = sentence(reason);
            format!(
                "AgentMine is paused: {reason}. The comment `/agentmine resume` or the label `{request}` continues it."
            )
        }
    };
    progress_comment(&text, session)
}

/// A reason as the end of a sentence, without its full stop. It is one line, so that no block in it swallows what follows.
fn sentence(reason: &str) -> String {
    neutralized(&line(reason.trim().trim_end_matches('.'), MAX_REASON))
}

/// What sessions have used, as a list of words; `None` before the first.
#[must_use]
pub fn used(sessions: &[Session], now: DateTime<Utc>) -> Option<String> {
    if sessions.is_empty() {
        return None;
    }
    let mut sum = Usage::default();
    let mut worked = TimeDelta::zero();
    for session in sessions {
        sum += session.usage;
        worked += session.ended_at.unwrap_or(now) - session.started_at;
    }
    let cost = sum.cost().map(|cost| format!(", {cost}"));
    let time = match worked.num_minutes() {
        ..1 => "less than a minute".to_owned(),
        minutes => format!("{minutes} min"),
    };
    Some(format!(
        "{time}, {}{}",
        sum.calls(),
        cost.unwrap_or_default()
    ))
}

/// Whether this comment is one of [`work_comment`].
pub(crate) fn is_of_work(body: &str) -> bool {
    body.starts_with(WORKING)
}

/// The comment for a result; `missing` is set if it is partial.
pub(crate) fn result_comment(
    item: &ItemRef,
    url: &str,
    missing: Option<&str>,
    session: &str,
) -> String {
    let what = match missing {
        Some(_) => "**a partial result**",
        None => "the measured results",
    };
    let name = item.tracker.pull_request();
    let mut text = match item.kind {
        ItemKind::Issue | ItemKind::Task => {
            format!("AgentMine opened a {name} with {what}: {url}")
        }
        ItemKind::PullRequest => {
            format!("AgentMine pushed its work to this {name}'s branch, with {what}.")
        }
    };
    if let Some(missing) = missing {
        text += &format!(
            "\n\nNot done:\n\n{}",
            fenced(&cap(missing.trim(), MAX_REASON))
        );
    }
    progress_comment(&text, session)
}

/// The comment on a pull request of AgentMine on which no further round is made.
pub(crate) fn rounds_comment(pull: &ItemRef, reason: &str, request: &str) -> String {
    let name = pull.tracker.pull_request();
    let reason = reason.trim().trim_end_matches('.');
    let text = format!(
        "AgentMine does no further work on this {name} on its own: {reason}. To continue, add the label `{request}` to this {name}."
    );
    progress_comment(&text, "ended")
}

/// The comment for a task that waits until somebody confirms the request.
#[must_use]
pub fn held_comment(reason: &str, request: &str, session: &str) -> String {
    let reason = sentence(reason);
    let text = format!(
        "AgentMine paused before it began: {reason}. If the text is what you want, add the label `{request}` to confirm it."
    );
    progress_comment(&text, session)
}

/// The comment on an item that says that it is worked on although no task is known.
pub(crate) fn orphan_comment(labels: &Labels) -> String {
    format!(
        "AgentMine is not working on this: it has the label `{}`, but there is no task for it any more. To queue it, add the label `{}`.",
        labels.processing, labels.request
    )
}

/// The comment for a task that waits until the credentials are accepted.
pub(crate) fn refused_comment(refusal: &str, session: &str) -> String {
    let text = format!(
        "AgentMine is paused here because a service refused its account or credentials. It continues on its own once they are accepted:\n\n{}",
        fenced(&cap(refusal.trim(), MAX_REASON))
    );
    progress_comment(&text, session)
}

/// That a task failed, and why.
pub(crate) fn failure_text(reason: &str) -> String {
    format!(
        "AgentMine could not finish this task:\n\n{}",
        fenced(&cap(reason.trim(), MAX_REASON))
    )
}

/// The comment for a failed task. `draft` is the pull request that was opened when the work began.
pub(crate) fn failure_comment(
    task: &Task,
    reason: &str,
    session: &str,
    draft: Option<&PullRequest>,
) -> String {
    let mut text = failure_text(reason);
    if let Some(draft) = draft {
        let name = task.item.tracker.pull_request();
        text += &format!("\n\nIts {name} stays open: {}.", draft.url);
    }
    progress_comment(&text, session)
}

/// That a task was stopped, and why.
pub(crate) fn stopped_text(reason: &str) -> String {
    format!("AgentMine stopped: {}.", sentence(reason))
}

/// The comment on a pull request that was opened when the work began, for work that ended without a result.
pub(crate) fn draft_end_comment(task: &Task, request: &str, how: &str) -> String {
    let name = task.item.tracker.pull_request();
    let text = format!(
        "{how}\n\nThis {name} has no result and stays as it is. Its branch `{}` is kept, with anything that was pushed to it. To start again, add the label `{request}` to #{}.",
        task.branch(),
        task.item.number
    );
    progress_comment(&text, "ended")
}

/// Characters of one quoted comment, and of all of them.
const MAX_QUOTED: usize = 4_000;
const MAX_ALL_QUOTED: usize = 50_000;

/// The comment on a pull request with the comments on its issue, oldest first; `None` if there are none.
#[must_use]
pub fn transferred_comments(issue: u64, comments: &[Comment], session: &str) -> Option<String> {
    let mut text = format!("Comments on #{issue} when the work began:");
    let (mut length, mut left_out) = (0, 0);
    let said = comments.iter().filter(|it| !it.body.trim().is_empty());
    for comment in said {
        let author = neutralized(&line(&comment.author.login, 100));
        let at = comment.created_at.format("%Y-%m-%d %H:%M UTC");
        let quoted = quotation(&neutralized(&cap(comment.body.trim(), MAX_QUOTED)));
        let block = format!("\n\n**{author}**, {at}:\n\n{quoted}");
        length += block.chars().count();
        match length <= MAX_ALL_QUOTED {
            true => text += &block,
            false => left_out += 1,
        }
    }
    if left_out > 0 {
        text += &format!("\n\n{left_out} more are on #{issue}.");
    }
    (length > 0).then(|| progress_comment(&text, session))
}

/// The comment on such a pull request after the work continued and came to a result.
pub(crate) fn draft_resumed_comment(task: &Task) -> String {
    let name = task.item.tracker.pull_request();
    let text =
        format!("AgentMine continued the work. The result is in the description of this {name}.");
    progress_comment(&text, "ended")
}

/// The answer on a pull request whose partial result this commit completes, where a person changed the parts of the description
/// that report it.
pub(crate) fn changed_text(task: &Task, commit: &str) -> String {
    let name = task.item.tracker.pull_request();
    format!(
        "The result is now complete: the checks that failed now pass on {commit}. Somebody edited the part of this {name}'s description that reports the partial result, so AgentMine leaves the description as it is, and a draft stays a draft."
    )
}

/// The comment for a task that was stopped since its item was moved: it does not name the repository that has the work.
pub(crate) fn moved_comment(
    task: &Task,
    reason: &str,
    session: &str,
    open: Option<&PullRequest>,
) -> String {
    let work = match open {
        Some(_) => format!(
            "Its {} stays open in the repository that this was moved from.",
            task.item.tracker.pull_request()
        ),
        None => format!(
            "Anything that was pushed is on the branch `{}` of the repository that this was moved from.",
            task.branch()
        ),
    };
    progress_comment(&format!("{} {work}", stopped_text(reason)), session)
}

/// The comment for a stopped task: why, where its work is, and how to continue. `open` is its pull request.
pub(crate) fn stopped_comment(
    task: &Task,
    request: &str,
    reason: &str,
    session: &str,
    open: Option<&PullRequest>,
) -> String {
    let stopped = stopped_text(reason);
    let work = match (task.item.kind, open) {
        (ItemKind::Issue | ItemKind::Task, Some(pull)) => {
            let name = task.item.tracker.pull_request();
            format!(" Its {name} stays open: {}.", pull.url)
        }
        (ItemKind::Issue | ItemKind::Task, None) => format!(
            " Anything that was pushed is on the branch `{}`.",
            task.branch()
        ),
        (ItemKind::PullRequest, _) => String::new(),
    };
    let again = match task.item.kind {
        ItemKind::Issue | ItemKind::PullRequest => {
            format!("Add the label `{request}` to queue it again.")
        }
        ItemKind::Task => format!("`agentmine task retry {}` starts it again.", task.number),
    };
    let text = format!("{stopped}{work} {again}");
    progress_comment(&text, session)
}
