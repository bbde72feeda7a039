//! What a round answers to the threads of the review.

use std::collections::BTreeSet;

use agentmine_agent::journal::{decode_all, given_remarks};
use agentmine_agent::{RunOutcome, thread_answers, without_answers};
use agentmine_domain::markdown::{cap, neutralized};
use agentmine_domain::{RoundResult, ThreadAnswer};

use crate::error::SessionError;
use crate::prepare::RoundWork;
use crate::session::context::SessionContext;

/// Threads that get their own reply: forges limit how much is written in a minute. The answers to others are in the
/// round's comment.
const MAX_REPLIES: usize = 40;
/// Characters of one answer.
const MAX_ANSWER: usize = 4_000;

/// The ids of the remarks of people that the model was given; `None` if an earlier version described the task.
pub(super) async fn heard(ctx: &SessionContext) -> Result<Option<BTreeSet<String>>, SessionError> {
    let store = &ctx.deps.store;
    let steps = ctx.heartbeat.patiently(|| store.steps(ctx.task.id)).await?;
    Ok(given_remarks(&decode_all(&steps)?))
}

/// Records what the round is about to answer. Returns what is left of the agent's message for the comment.
pub(super) async fn record_answers(
    ctx: &SessionContext,
    work: &RoundWork,
    head: &str,
    outcome: &RunOutcome,
) -> Result<String, SessionError> {
    let store = &ctx.deps.store;
    let heard = heard(ctx).await?.unwrap_or_default();
    let is_ours = !outcome.facts.unchanged && head != work.round.head;
    let commit = is_ours.then_some(head);
    let threads = work.named(&heard);
    let names: Vec<String> = threads.iter().map(|(name, _)| name.clone()).collect();
    let replied = &names[..names.len().min(MAX_REPLIES)];
    let mut message = without_answers(&outcome.last_message, &names, replied);
    let others = names.len() - replied.len();
    if others > 0 {
        message.push_str(&format!(
            "\n\nThis message also answers {others} more threads: a round posts at most {MAX_REPLIES} replies."
        ));
    }
    if work.round.result.is_some() {
        return Ok(message);
    }
    let said = thread_answers(&outcome.last_message, &names);
    let mut answers = Vec::new();
    for (name, thread) in threads.into_iter().take(MAX_REPLIES) {
        let text = answer(said.get(&name).map(String::as_str), commit);
        let footer = format!("<sub>AgentMine, session {}</sub>", ctx.session_name());
        answers.push(ThreadAnswer {
            thread: thread.id.clone(),
            text: ctx.redactor.redact(format!("{text}\n\n{footer}")),
        });
    }
    let resolves = ctx.deps.config.rounds.resolve_threads;
    let result = RoundResult {
        heard: heard.into_iter().collect(),
        answers,
        resolve: resolves && commit.is_some() && outcome.missing.is_none(),
        message: outcome.last_message.clone(),
    };
    let number = work.round.number;
    let record = || store.round_result(&ctx.lease, number, &result);
    ctx.heartbeat.patiently(record).await?;
    Ok(message)
}

/// The reply to one thread: what the agent said of it, and the commit.
fn answer(said: Option<&str>, commit: Option<&str>) -> String {
    let said = said.map(|said| neutralized(&cap(said, MAX_ANSWER)));
    match (said, commit) {
        (Some(said), Some(commit)) => format!("{said}\n\nThe work of this round is in {commit}."),
        (Some(said), None) => said,
        (None, Some(commit)) => {
            format!(
                "The work of this round is in {commit}; its report does not mention this thread."
            )
        }
        (None, None) => {
            "Nothing was changed, and the report of this round does not mention this thread."
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_names_the_commit_or_why_not() {
        assert_eq!(
            answer(Some("Renamed @mona."), Some("abc")),
            format!(
                "{}\n\nThe work of this round is in abc.",
                neutralized("Renamed @mona.")
            )
        );
        assert_eq!(answer(Some("It is used."), None), "It is used.");
        assert!(answer(None, Some("abc")).contains("in abc"));
        assert!(answer(None, None).starts_with("Nothing was changed"));
    }
}
