//! Rounds of work and measurement.

use std::time::Duration;

use agentmine_domain::{Phase, Usage};
use agentmine_llm::{ConversationId, Delta, Message, Model};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::execute::{Execution, Finished, RunLimits, send};
use crate::facts::Facts;
use crate::history::History;
use crate::journal::Entry;
use crate::prompt::{Brief, correction, system_prompt, task_prompt};
use crate::reasoning::without_reasoning;
use crate::seam::{AgentError, Gather, Inbox, Journal, Tools};
use crate::unusable::Unusable;
use crate::verify::missing;

/// Everything that a run of the agent needs. `E` is the worker's error type.
pub struct AgentRun<'a, E> {
    /// The model.
    pub model: &'a dyn Model,
    /// The tools.
    pub tools: &'a dyn Tools<E>,
    /// Where steps are recorded.
    pub journal: &'a dyn Journal<E>,
    /// Measures the result.
    pub gather: &'a dyn Gather<E>,
    /// What people write meanwhile.
    pub inbox: &'a dyn Inbox,
    /// When to stop.
    pub limits: RunLimits,
    /// How long earlier sessions of the task worked, which counts against its time limit.
    pub worked: Duration,
    /// Maximum number of rounds of work and measurement.
    pub max_rounds: u32,
    /// The input of the prompts.
    pub brief: &'a Brief,
    /// The message to the model when this worker continues another worker's conversation.
    pub resumed: &'a str,
    /// Receives streamed deltas of replies, for `agentmine session logs -f`.
    pub watch: Option<&'a UnboundedSender<Delta>>,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The facts of the last measurement.
    pub facts: Facts,
    /// What is missing, if the result is only partial.
    pub missing: Option<String>,
    /// The model's last message: a claim, not a fact.
    pub last_message: String,
    /// The usage, including earlier sessions of the task.
    pub usage: Usage,
    /// The number of rounds, including earlier sessions that had a result.
    pub rounds: u32,
}

impl<E> AgentRun<'_, E> {
    /// Runs the agent on a fresh or resumed conversation.
    ///
    /// # Errors
    /// Returns an error if the session has to end without an outcome.
    pub async fn run(
        &self,
        mut history: History,
        mut usage: Usage,
    ) -> Result<RunOutcome, AgentError<E>> {
        let started = Instant::now();
        // If the worker was killed between the two opening prompts, the second is still missing.
        let opening = [system_prompt(self.brief), task_prompt(self.brief)];
        let begun = history.messages().len();
        let mut notice = (begun >= opening.len()).then_some(self.resumed);
        for prompt in opening.into_iter().skip(begun) {
            send(self.journal, &mut history, prompt).await?;
        }
        // A resumed conversation may end with the model's final message: then measurement is next.
        let mut final_message = history
            .last_reply()
            .filter(|r| r.calls.is_empty() && Unusable::of(r, &self.tools.specs()).is_none())
            .map(|r| without_reasoning(&r.text).to_owned());
        // What an earlier session did is not done again only because its result could not be reported.
        let mut stopped_before = history.stopped().map(str::to_owned);
        let mut round = history.corrections();
        let mut conversation = ConversationId::unique();
        loop {
            round += 1;
            let finished = match (final_message.take(), stopped_before.take()) {
                (_, Some(why)) => Finished::Before(why),
                (Some(words), None) => Finished::Said(words),
                (None, None) => {
                    self.begin(Phase::Running).await?;
                    let mut execution = Execution {
                        model: self.model,
                        tools: self.tools,
                        journal: self.journal,
                        inbox: self.inbox,
                        limits: self.limits,
                        history: &mut history,
                        conversation: &mut conversation,
                        usage: &mut usage,
                        worked: self.worked,
                        started,
                        watch: self.watch,
                    };
                    execution.run(notice.take()).await?
                }
            };
            self.begin(Phase::Verifying).await?;
            let (last_message, stopped) = message_of(finished, &history);
            let facts = self.measure(stopped.clone()).await?;
            let missing = match (missing(&facts), stopped) {
                (None, stopped) => stopped,
                (Some(missing), None) if round < self.max_rounds => {
                    send(self.journal, &mut history, correction(&missing, &facts)).await?;
                    continue;
                }
                (Some(missing), None) => Some(missing),
                (Some(missing), Some(stopped)) => Some(format!("{stopped}\n{missing}")),
            };
            return Ok(RunOutcome {
                facts,
                missing,
                last_message,
                usage,
                rounds: round,
            });
        }
    }

    async fn begin(&self, phase: Phase) -> Result<(), E> {
        let entry = Entry::Phase { phase };
        self.journal.record(entry, Duration::ZERO).await
    }

    async fn measure(&self, stopped: Option<String>) -> Result<Facts, E> {
        let begun = Instant::now();
        let facts = tokio::select! {
            biased;
            end = self.journal.interrupted() => return Err(end),
            facts = self.gather.facts() => facts?,
        };
        let entry = Entry::Facts {
            facts: facts.clone(),
            stopped,
        };
        self.journal.record(entry, begun.elapsed()).await?;
        Ok(facts)
    }
}

/// The model's last message, and why it was stopped if it was.
fn message_of(finished: Finished, history: &History) -> (String, Option<String>) {
    let stopped = match finished {
        Finished::Said(words) => return (words, None),
        Finished::Budget(why) => format!("the budget ran out: {why}"),
        Finished::Stuck(why) => format!("the agent was stuck: {why}"),
        Finished::Full(why) | Finished::Before(why) => why,
    };
    (newest_text(history), Some(stopped))
}

/// The newest non-empty text of the model.
fn newest_text(history: &History) -> String {
    history
        .messages()
        .iter()
        .rev()
        .find_map(|message| match message {
            Message::Assistant(reply) => {
                Some(without_reasoning(&reply.text)).filter(|words| !words.is_empty())
            }
            _ => None,
        })
        .unwrap_or_default()
        .to_owned()
}
