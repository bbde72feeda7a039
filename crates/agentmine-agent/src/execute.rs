//! The tool loop.

use std::time::{Duration, Instant};

use agentmine_domain::{Budget, Usage};
use agentmine_llm::{Delta, LlmError, Message, Model, ModelReply, ModelRequest, Stop, ToolCall};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::UnboundedSender;

use crate::history::History;
use crate::seam::{Halt, Journal, Record, ToolFault, Tools};

/// When to stop although the model would go on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// What the task may use.
    pub budget: Budget,
    /// The same call with the same result so often in a row: stuck.
    pub same_call: u32,
    /// Replies in a row that ask for nothing and say nothing (or were cut) before it ends.
    pub empty_replies: u32,
}

impl Limits {
    /// The defaults around a budget: stuck after three, three useless replies.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            same_call: 3,
            empty_replies: 3,
        }
    }
}

/// How a run of the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// The model says that it is done; its words.
    Said(String),
    /// A limit of the budget was reached.
    Budget(String),
    /// It goes round in circles.
    Stuck(String),
}

/// What one task's loop works on.
pub(crate) struct Execution<'a> {
    pub(crate) model: &'a dyn Model,
    pub(crate) tools: &'a dyn Tools,
    pub(crate) journal: &'a dyn Journal,
    pub(crate) limits: Limits,
    pub(crate) history: &'a mut History,
    pub(crate) usage: &'a mut Usage,
    pub(crate) started: Instant,
    pub(crate) watch: Option<&'a UnboundedSender<Delta>>,
}

/// What came of asking the model.
enum Answer {
    Reply(ModelReply),
    /// The conversation no longer fits; why, in words.
    Full(String),
}

const EMPTY: &str =
    "Your reply was empty. Call a tool, or say that you are done and what you changed.";
const CUT: &str = "Your reply was cut off at the output limit. Go on in smaller pieces: one tool call at a time, with shorter text.";
const INTERRUPTED: &str = "interrupted, outcome unknown: the worker was replaced while this call ran. Look at the state of things before you repeat it.";

impl Execution<'_> {
    /// Runs until the model is done, a limit is reached, or the session has to end.
    /// `news` is told first.
    pub(crate) async fn run(&mut self, news: Option<&str>) -> Result<Finished, Halt> {
        self.close_interrupted_calls().await?;
        if let Some(news) = news {
            self.say(news).await?;
        }
        let mut repeats = Repeats::default();
        let mut useless = 0;
        loop {
            self.refresh().await?;
            if let Some(limit) = self
                .limits
                .budget
                .exceeded(self.usage, self.started.elapsed())
            {
                return Ok(Finished::Budget(limit));
            }
            let reply = match self.ask().await? {
                Answer::Reply(reply) => reply,
                Answer::Full(why) => return Ok(Finished::Budget(why)),
            };
            if reply.stop == Stop::Length
                || (reply.calls.is_empty() && reply.text.trim().is_empty())
            {
                useless += 1;
                if useless >= self.limits.empty_replies {
                    return Ok(Finished::Stuck(format!(
                        "{useless} empty or cut replies in a row"
                    )));
                }
                self.refuse_cut_calls(&reply).await?;
                self.say(if reply.stop == Stop::Length {
                    CUT
                } else {
                    EMPTY
                })
                .await?;
                continue;
            }
            useless = 0;
            if reply.calls.is_empty() {
                return Ok(Finished::Said(reply.text));
            }
            for call in &reply.calls {
                let told = self.call(call).await?;
                if repeats.count(call, &told) >= self.limits.same_call {
                    let name = &call.name;
                    self.close_interrupted_calls().await?;
                    return Ok(Finished::Stuck(format!(
                        "{name} was called {} times with the same result",
                        self.limits.same_call
                    )));
                }
            }
        }
    }

    /// Takes in what has changed of the tools since the model was last asked.
    async fn refresh(&mut self) -> Result<(), Halt> {
        tokio::select! {
            biased;
            halt = self.journal.halted() => return Err(halt),
            refreshed = self.tools.refresh() => refreshed?,
        }
        *self.usage += self.tools.take_usage();
        Ok(())
    }

    /// One model call, recorded before it returns.
    async fn ask(&mut self) -> Result<Answer, Halt> {
        let begun = Instant::now();
        let specs = self.tools.specs();
        let request = ModelRequest {
            messages: self.history.messages(),
            tools: &specs,
        };
        let answer = tokio::select! {
            biased;
            halt = self.journal.halted() => return Err(halt),
            answer = self.model.reply(request, self.watch) => answer,
        };
        let (reply, mut used) = match answer {
            Ok(answer) => answer,
            // What was done so far is measured and reported, as with any other limit.
            Err(error @ LlmError::ContextTooLong(_)) => return Ok(Answer::Full(error.to_string())),
            Err(error) => return Err(provider_gone(error)),
        };
        used.model_calls = 1;
        *self.usage += used;
        let message = Message::Assistant(reply.clone());
        self.journal
            .record(Record::Reply(&message, used), millis(begun.elapsed()))
            .await?;
        self.history.push(message);
        Ok(Answer::Reply(reply))
    }

    /// One tool call; its result, recorded before it returns.
    async fn call(&mut self, call: &ToolCall) -> Result<String, Halt> {
        let begun = Instant::now();
        let result = tokio::select! {
            biased;
            halt = self.journal.halted() => return Err(halt),
            result = self.tools.call(call) => result,
        };
        let result = result.map_err(|fault| match fault {
            ToolFault::Hopeless(why) => Halt::Failed(why),
            ToolFault::Broken(why) => Halt::Retry(why),
        })?;
        self.usage.tool_calls += 1;
        *self.usage += self.tools.take_usage();
        self.answer(call, result.text.clone(), result.is_error, begun.elapsed())
            .await?;
        Ok(result.text)
    }

    async fn answer(
        &mut self,
        call: &ToolCall,
        text: String,
        is_error: bool,
        took: Duration,
    ) -> Result<(), Halt> {
        let message = Message::Tool {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text,
            is_error,
        };
        self.journal
            .record(Record::ToolResult(&message), millis(took))
            .await?;
        self.history.push(message);
        Ok(())
    }

    async fn say(&mut self, text: &str) -> Result<(), Halt> {
        let message = Message::User {
            text: text.to_owned(),
        };
        self.journal.record(Record::Prompt(&message), 0).await?;
        self.history.push(message);
        Ok(())
    }

    /// A call without a recorded result is never run again silently: the model is told.
    async fn close_interrupted_calls(&mut self) -> Result<(), Halt> {
        for call in self.history.open_calls() {
            self.answer(&call, INTERRUPTED.to_owned(), true, Duration::ZERO)
                .await?;
        }
        Ok(())
    }

    /// The arguments of a cut reply are not to be trusted, so none of its calls is run. Each still
    /// gets a result, since model APIs refuse a call without one.
    async fn refuse_cut_calls(&mut self, reply: &ModelReply) -> Result<(), Halt> {
        for call in &reply.calls {
            let text = "not run: the reply was cut off at the output limit".to_owned();
            self.answer(call, text, true, Duration::ZERO).await?;
        }
        Ok(())
    }
}

/// Counts how often the newest call came in a row with the newest result.
#[derive(Default)]
struct Repeats {
    last: Option<[u8; 32]>,
    count: u32,
}

impl Repeats {
    fn count(&mut self, call: &ToolCall, result: &str) -> u32 {
        let mut hash = Sha256::new();
        for part in [&call.name, &call.arguments, result] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        self.count = if self.last == Some(digest) {
            self.count + 1
        } else {
            1
        };
        self.last = Some(digest);
        self.count
    }
}

fn provider_gone(error: LlmError) -> Halt {
    match error {
        LlmError::Unavailable { .. } | LlmError::Protocol(_) => Halt::Retry(error.to_string()),
        LlmError::Refused { status: 404, .. } => Halt::Failed(format!(
            "{error}. hint: does model.base_url end in /v1, and is there a model of that name?"
        )),
        LlmError::Refused { .. }
        | LlmError::Unauthorized { .. }
        | LlmError::ContextTooLong(_)
        | LlmError::Replay(_) => Halt::Failed(error.to_string()),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
