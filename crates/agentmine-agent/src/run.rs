//! Rounds of work and measurement.

use std::time::Instant;

use agentmine_domain::{Phase, Usage};
use agentmine_llm::{Delta, Message, Model};
use tokio::sync::mpsc::UnboundedSender;

use crate::execute::{Execution, Finished, Limits, millis};
use crate::history::History;
use crate::prompt::{Brief, correction, system_prompt, task_prompt};
use crate::seam::{Gather, Halt, Journal, Record, Tools};
use crate::verify::{Facts, Verdict, judge};

/// Everything that a run of the agent works with.
pub struct Session<'a> {
    /// The model.
    pub model: &'a dyn Model,
    /// The tools on offer.
    pub tools: &'a dyn Tools,
    /// Where steps are recorded.
    pub journal: &'a dyn Journal,
    /// What measures the result.
    pub gather: &'a dyn Gather,
    /// When to stop.
    pub limits: Limits,
    /// Rounds of work and measurement.
    pub max_rounds: u32,
    /// What the prompts are made of.
    pub brief: &'a Brief,
    /// What the model is told where the conversation is taken up again by another worker.
    pub resumed: &'a str,
    /// Gets pieces of replies as they come, for a person who looks on.
    pub watch: Option<&'a UnboundedSender<Delta>>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The facts of the last measurement.
    pub facts: Facts,
    /// What is missing, if the result is only partial.
    pub missing: Option<String>,
    /// What the model said of its work. A claim.
    pub words: String,
    /// What was used, earlier sessions of the task included.
    pub usage: Usage,
    /// Rounds that were run here.
    pub rounds: u32,
}

/// Runs the agent on a fresh or resumed conversation.
///
/// # Errors
/// A [`Halt`]: the session ends before its task is over.
pub async fn run(
    session: &Session<'_>,
    mut history: History,
    mut usage: Usage,
) -> Result<Outcome, Halt> {
    let started = Instant::now();
    // Killed between the two opening prompts, the second is still owed.
    let opening = [system_prompt(session.brief), task_prompt(session.brief)];
    let begun = history.messages().len();
    let mut news = (begun >= opening.len()).then_some(session.resumed);
    for message in opening.into_iter().skip(begun) {
        say(session, &mut history, message).await?;
    }
    // A resumed conversation may end with the model's last word: then it is measurement's turn.
    let mut said = history
        .last_reply()
        .filter(|r| r.calls.is_empty())
        .map(|r| r.text.clone());
    let mut round = 0;
    loop {
        round += 1;
        let finished = match said.take() {
            Some(words) => Finished::Said(words),
            None => {
                session
                    .journal
                    .record(Record::Phase(Phase::Running), 0)
                    .await?;
                Execution {
                    model: session.model,
                    tools: session.tools,
                    journal: session.journal,
                    limits: session.limits,
                    history: &mut history,
                    usage: &mut usage,
                    started,
                    watch: session.watch,
                }
                .run(news.take())
                .await?
            }
        };
        session
            .journal
            .record(Record::Phase(Phase::Verifying), 0)
            .await?;
        let begun = Instant::now();
        let facts = tokio::select! {
            biased;
            halt = session.journal.halted() => return Err(halt),
            facts = session.gather.facts() => facts?,
        };
        session
            .journal
            .record(Record::Facts(&facts), millis(begun.elapsed()))
            .await?;
        let (words, stopped) = match finished {
            Finished::Said(words) => (words, None),
            Finished::Budget(why) => (
                last_words(&history),
                Some(format!("the budget ran out: {why}")),
            ),
            Finished::Stuck(why) => (
                last_words(&history),
                Some(format!("the agent was stuck: {why}")),
            ),
        };
        let missing = match judge(&facts) {
            Verdict::Enough => stopped,
            Verdict::NotEnough(why) if stopped.is_none() && round < session.max_rounds => {
                say(session, &mut history, correction(&why)).await?;
                continue;
            }
            Verdict::NotEnough(why) => Some(match stopped {
                Some(stopped) => format!("{stopped}\n{why}"),
                None => why,
            }),
        };
        return Ok(Outcome {
            facts,
            missing,
            words,
            usage,
            rounds: round,
        });
    }
}

async fn say(session: &Session<'_>, history: &mut History, message: Message) -> Result<(), Halt> {
    session.journal.record(Record::Prompt(&message), 0).await?;
    history.push(message);
    Ok(())
}

/// The newest text the model wrote.
fn last_words(history: &History) -> String {
    history
        .messages()
        .iter()
        .rev()
        .find_map(|message| match message {
            Message::Assistant(reply) if !reply.text.trim().is_empty() => Some(reply.text.clone()),
            _ => None,
        })
        .unwrap_or_default()
}
