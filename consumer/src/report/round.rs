//! What a round answers to the threads of the review, and whether it completes a partial result.

use std::collections::BTreeSet;

use agentmine_agent::journal::{decode_all, given_remarks};
use agentmine_agent::{RunOutcome, completes, thread_answers, without_answers};
use agentmine_domain::markdown::{cap, followable, neutralized};
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
    let done = done(commit, outcome.missing.as_deref());
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
    // Once the result is recorded, some of the answers may have been posted. What an attempt left before that is replaced: it
    // may have had another result.
    let find = || ctx.effects.reported_commit();
    if work.round.result.is_some() && ctx.heartbeat.patiently(find).await?.is_some() {
        return Ok(message);
    }
    let said = thread_answers(&outcome.last_message, &names);
    let mut answers = Vec::new();
    for (name, thread) in threads.into_iter().take(MAX_REPLIES) {
        let text = answer(said.get(&name).map(String::as_str), &done);
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

/// Records that the round's commit completes the result of the pull request, if that was partial, and the facts show that
/// everything is done now that the results on its branch lacked.
pub(super) async fn begin_completion(
    ctx: &SessionContext,
    head: &str,
    outcome: &RunOutcome,
) -> Result<(), SessionError> {
    if outcome.missing.is_some() || outcome.facts.unchanged {
        return Ok(());
    }
    let find = || ctx.effects.missing_before();
    let missing = ctx.heartbeat.patiently(find).await?;
    if missing.is_some_and(|all| all.iter().all(|it| completes(&outcome.facts, it))) {
        let begin = || ctx.effects.begin_completion(head);
        ctx.heartbeat.patiently(begin).await?;
    }
    Ok(())
}

/// What a round did, whatever its agent says of that; `commit` is the one that it pushed.
fn done(commit: Option<&str>, missing: Option<&str>) -> String {
    match (commit, missing) {
        (Some(commit), None) => format!("The work of this round is in {commit}."),
        (Some(commit), Some(_)) => format!(
            "The work of this round is in {commit}. It is a partial result: AgentMine's comment lists what is not done."
        ),
        (None, _) => "This round changed nothing on the branch.".to_owned(),
    }
}

/// The reply to one thread: what the agent said of it, and what the round did.
fn answer(said: Option<&str>, done: &str) -> String {
    match said {
        Some(said) => {
            let said = followable(&neutralized(&cap(said, MAX_ANSWER)));
            format!("{said}\n\n{done}")
        }
        None => format!("{done} The agent's report does not mention this thread."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_names_the_commit_or_that_there_is_none() {
        let pushed = done(Some("abc"), None);
        assert_eq!(
            answer(Some("Renamed @mona."), &pushed),
            format!(
                "{}\n\nThe work of this round is in abc.",
                neutralized("Renamed @mona.")
            )
        );
        assert!(answer(None, &pushed).contains("in abc"));
        for missing in [None, Some("- nothing was pushed")] {
            let nothing = done(None, missing);
            let renamed = answer(Some("Renamed it."), &nothing);
            assert!(
                renamed.ends_with("changed nothing on the branch."),
                "{renamed}"
            );
            assert!(answer(None, &nothing).starts_with("This round changed nothing"));
        }
    }

    #[test]
    fn a_code_block_without_an_end_does_not_swallow_what_the_round_did() {
        let said = format!("Use:\n```sh\n{}", "make\n".repeat(1_000));
        let reply = answer(Some(&said), "This round changed nothing on the branch.");
        let (quoted, end) = reply.rsplit_once("\n\n").unwrap();
        assert!(quoted.lines().all(|line| line.starts_with('>')), "{reply}");
        assert_eq!(end, "This round changed nothing on the branch.");
    }

    #[test]
    fn a_reply_about_a_partial_result_says_so() {
        let partial = done(Some("abc"), Some("- `make test` failed"));
        let reply = answer(Some("Fixed, all tests pass."), &partial);
        assert!(reply.contains("in abc. It is a partial result"), "{reply}");
    }
}
