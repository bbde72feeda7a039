//! The comments on an item.

use agentmine_domain::markdown::{cap, fenced};

/// Characters of a reason in a comment.
const MAX_REASON: usize = 8_000;

/// The one comment on the item, edited in place as the task goes on. `session` is its number, or a
/// word for the time after the last one.
#[must_use]
pub fn progress_comment(text: &str, session: &str) -> String {
    format!("{text}\n\n<sub>AgentMine, session {session}</sub>")
}

/// The comment for a result; `missing` where it is only partial.
pub(crate) fn result_comment(url: &str, missing: Option<&str>, session: &str) -> String {
    let text = match missing {
        Some(_) => format!(
            "AgentMine opened a pull request with a partial result; see \"Not done\" there: {url}"
        ),
        None => format!("AgentMine opened a pull request; it lists what was measured: {url}"),
    };
    progress_comment(&text, session)
}

/// The comment for a task that could not be done.
pub(crate) fn failure_comment(reason: &str, session: &str) -> String {
    let text = format!(
        "AgentMine could not finish this task:\n\n{}",
        fenced(&cap(reason.trim(), MAX_REASON))
    );
    progress_comment(&text, session)
}

/// The comment for a task that a person stopped.
pub(crate) fn stopped_comment(reason: &str, session: &str) -> String {
    progress_comment(&format!("AgentMine stopped: {reason}."), session)
}
