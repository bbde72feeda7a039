//! Why no further round is made, as the end of a sentence for people.

use agentmine_domain::markdown::{cap, line, neutralized};
use agentmine_domain::{EndState, RedCheck, Round, RoundCause, Task, TaskState};

use super::requests::Requests;

/// Why no further round is made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// One of [`super::metrics::ENDS`].
    pub(super) code: &'static str,
    /// The end of a sentence for people.
    pub(super) reason: String,
}

impl Ended {
    fn new(code: &'static str, reason: String) -> Self {
        Self { code, reason }
    }
}

/// Requests that are named.
const MOST_NAMED: usize = 10;
/// Characters of a reason.
const MAX_REASON: usize = 300;

/// The last round did not come to a result; `None` if it did, or if there was none.
pub(super) fn of_last_round(last: Option<&Task>) -> Option<Ended> {
    let last = last?;
    let number = last.round().unwrap_or_default();
    let reason = quoted(last.reason.as_deref());
    match last.state {
        TaskState::Ended(EndState::Failed) => Some(Ended::new(
            "failed",
            format!("round {number} failed ({reason}); a person needs to look at it"),
        )),
        TaskState::Ended(EndState::Stopped) => Some(Ended::new(
            "stopped",
            format!("round {number} was stopped ({reason})"),
        )),
        TaskState::Ended(EndState::Done)
        | TaskState::Queued
        | TaskState::Leased(_)
        | TaskState::Paused => None,
    }
}

/// All rounds were made, and something is still open.
pub(super) fn limit(max: u32, requests: &Requests, cause: &RoundCause) -> Ended {
    let rounds = match max {
        1 => "1 round was".to_owned(),
        max => format!("{max} rounds were"),
    };
    let mut named: Vec<String> = requests.words();
    named.extend(
        cause
            .checks
            .iter()
            .map(|check| format!("the failed check {}", code(&check.name))),
    );
    named.extend(
        cause
            .conflict
            .then(|| "a conflict with the target branch".to_owned()),
    );
    let more = named.split_off(named.len().min(MOST_NAMED)).len();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    Ended::new(
        "limit",
        format!(
            "{rounds} made, which is the limit, and this is still open: {}. A person needs to decide what to do",
            named.join("; ")
        ),
    )
}

/// The checks that failed fail on the target branch too.
pub(super) fn red_base(base: &str) -> Ended {
    Ended::new(
        "red_base",
        format!(
            "the failed checks also fail on {}, so this change is not the cause; fix them there first",
            code(base)
        ),
    )
}

/// What the last round was for is as it was before it.
pub(super) fn same_again(last: Option<&Round>, cause: &RoundCause, head: &str) -> Option<Ended> {
    let last = last?;
    let is_where_it_was = last.head == head || {
        let target = cause.target.as_ref();
        target.is_some() && target == last.cause.target.as_ref()
    };
    if cause.conflict && last.cause.conflict && is_where_it_was {
        let reason = format!(
            "round {} did not resolve the conflict with the target branch",
            last.number
        );
        return Some(Ended::new("same_conflict", reason));
    }
    let before = |check: &&RedCheck| {
        let same = |it: &RedCheck| it.name == check.name && it.failure == check.failure;
        !check.failure.is_empty() && last.cause.checks.iter().any(same)
    };
    let again = cause.checks.iter().find(before)?;
    Some(Ended::new(
        "same_failure",
        format!(
            "the check {} failed in the same way before and after round {}; a person needs to look at it",
            code(&again.name),
            last.number
        ),
    ))
}

/// Why a round ended, in a sentence. It may have the words of its agent.
fn quoted(reason: Option<&str>) -> String {
    let reason = cap(reason.unwrap_or("no reason is recorded"), MAX_REASON);
    neutralized(&line(&reason, MAX_REASON))
}

/// A name as code.
fn code(name: &str) -> String {
    format!("`{}`", line(name, 100).replace('`', "'"))
}

/// A person pushed to the branch.
pub(super) fn pushed(branch: &str) -> Ended {
    Ended::new(
        "pushed",
        format!("somebody else pushed to `{branch}`, and AgentMine does not overwrite that work"),
    )
}

/// The branch has commits that no result was reported on, after a task on it that ended without one.
pub(super) fn unreported(branch: &str) -> Ended {
    Ended::new(
        "pushed",
        format!(
            "the newest task on it ended without a result, and `{branch}` has commits that no task reported, of that task \
             or of somebody else; a person needs to look at it"
        ),
    )
}

/// A person removed the branch.
pub(super) fn removed(branch: &str) -> Ended {
    Ended::new(
        "removed",
        format!("somebody deleted `{branch}`, and AgentMine does not restore it"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_last_words_mention_nobody_and_show_no_image() {
        let said = "no result: nothing was pushed\nLast message of the agent:\n@acme/all ![](https://x.example/?a) <!-- #1";
        let shown = quoted(Some(said));
        for part in ["@a", "![", "<!", "#1"] {
            assert!(!shown.contains(part), "{shown}");
        }
        assert!(!shown.contains('\n'), "{shown}");
        assert_eq!(quoted(None), "no reason is recorded");
    }
}
