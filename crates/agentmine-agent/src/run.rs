//! Rounds of work and measurement.

use std::time::{Duration, Instant};

use agentmine_domain::{Phase, Usage};
use agentmine_llm::{Delta, Message, Model};
use tokio::sync::mpsc::UnboundedSender;

use crate::execute::{Execution, Finished, RunLimits, say};
use crate::facts::Facts;
use crate::history::History;
use crate::journal::Entry;
use crate::prompt::{Brief, correction, system_prompt, task_prompt};
use crate::seam::{AgentError, Gather, Journal, Tools};
use crate::verify::{Verdict, judge};

/// Everything that a run of the agent works with. `E` is the worker's own error.
pub struct Agent<'a, E> {
    /// The model.
    pub model: &'a dyn Model,
    /// The tools on offer.
    pub tools: &'a dyn Tools<E>,
    /// Where steps are recorded.
    pub journal: &'a dyn Journal<E>,
    /// What measures the result.
    pub gather: &'a dyn Gather<E>,
    /// When to stop.
    pub limits: RunLimits,
    /// Rounds of work and measurement.
    pub max_rounds: u32,
    /// What the prompts are made of.
    pub brief: &'a Brief,
    /// The message to the model when another worker takes the conversation up again.
    pub resumed: &'a str,
    /// Receives pieces of replies as they are streamed: for `agentmine session logs -f`.
    pub watch: Option<&'a UnboundedSender<Delta>>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
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

impl<E> Agent<'_, E> {
    /// Runs the agent on a fresh or resumed conversation.
    ///
    /// # Errors
    /// The session ends before its task is over.
    pub async fn run(
        &self,
        mut history: History,
        mut usage: Usage,
    ) -> Result<RunOutcome, AgentError<E>> {
        let started = Instant::now();
        // If the worker was killed between the two opening prompts, the second is still missing.
        let opening = [system_prompt(self.brief), task_prompt(self.brief)];
        let begun = history.messages().len();
        let mut news = (begun >= opening.len()).then_some(self.resumed);
        for prompt in opening.into_iter().skip(begun) {
            say(self.journal, &mut history, prompt).await?;
        }
        // A resumed conversation may end with the model's last word: then measurement comes next.
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
                    self.begin(Phase::Running).await?;
                    let mut execution = Execution {
                        model: self.model,
                        tools: self.tools,
                        journal: self.journal,
                        limits: self.limits,
                        history: &mut history,
                        usage: &mut usage,
                        started,
                        watch: self.watch,
                    };
                    execution.run(news.take()).await?
                }
            };
            self.begin(Phase::Verifying).await?;
            let facts = self.measure().await?;
            let (words, stopped) = words_of(finished, &history);
            let missing = match judge(&facts) {
                Verdict::Enough => stopped,
                Verdict::NotEnough(why) if stopped.is_none() && round < self.max_rounds => {
                    say(self.journal, &mut history, correction(&why)).await?;
                    continue;
                }
                Verdict::NotEnough(why) => Some(match stopped {
                    Some(stopped) => format!("{stopped}\n{why}"),
                    None => why,
                }),
            };
            return Ok(RunOutcome {
                facts,
                missing,
                words,
                usage,
                rounds: round,
            });
        }
    }

    async fn begin(&self, phase: Phase) -> Result<(), E> {
        let entry = Entry::Phase { phase };
        self.journal.record(entry, Duration::ZERO).await
    }

    async fn measure(&self) -> Result<Facts, E> {
        let begun = Instant::now();
        let facts = tokio::select! {
            biased;
            end = self.journal.interrupted() => return Err(end),
            facts = self.gather.facts() => facts?,
        };
        let entry = Entry::Facts {
            facts: facts.clone(),
        };
        self.journal.record(entry, begun.elapsed()).await?;
        Ok(facts)
    }
}

/// What the model said at the end, and why it was stopped if it was.
fn words_of(finished: Finished, history: &History) -> (String, Option<String>) {
    let stopped = match finished {
        Finished::Said(words) => return (words, None),
        Finished::Budget(why) => format!("the budget ran out: {why}"),
        Finished::Stuck(why) => format!("the agent was stuck: {why}"),
    };
    (last_words(history), Some(stopped))
}

/// The newest text that the model wrote.
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
