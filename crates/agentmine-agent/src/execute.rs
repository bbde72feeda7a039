//! The tool loop.

use std::time::Duration;

use agentmine_domain::{Budget, Usage};
use agentmine_llm::{
    CallState, ConversationId, Delta, LlmError, Model, ModelReply, ModelRequest, Stop, ToolCall,
    ToolSpec,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::discussion::{Discussion, RemarkOrder};
use crate::history::{History, INTERRUPTED};
use crate::journal::{CallResult, Entry};
use crate::note::NoteFact;
use crate::prompt::{Prompt, remarks_prompt};
use crate::reasoning::without_reasoning;
use crate::repeats::{Repeats, Repetition};
use crate::seam::{AgentError, Inbox, Journal, Tools};
use crate::unusable::Unusable;
use crate::window::Window;

/// Limits that stop the loop although the model would continue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunLimits {
    /// The task's budget.
    pub budget: Budget,
    /// Consecutive identical calls with identical results after which the model is warned. If it makes the call
    /// once more, or was warned three times before, the agent counts as stuck.
    pub same_call: u32,
    /// Consecutive replies that are empty, truncated, filtered, or have a call as text, after which the agent counts as stuck.
    pub empty_replies: u32,
}

impl RunLimits {
    /// The default limits with a budget.
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
    /// The model ended its turn with this message.
    Said(String),
    /// A limit of the budget was reached.
    Budget(String),
    /// The agent makes no progress.
    Stuck(String),
    /// The conversation no longer fits into the model's context; the reason.
    Full(String),
    /// An earlier session was stopped; the reason, as it was recorded.
    Before(String),
}

/// One run of the tool loop.
pub(crate) struct Execution<'a, E> {
    pub(crate) model: &'a dyn Model,
    pub(crate) tools: &'a dyn Tools<E>,
    pub(crate) journal: &'a dyn Journal<E>,
    pub(crate) inbox: &'a dyn Inbox,
    pub(crate) limits: RunLimits,
    pub(crate) history: &'a mut History,
    /// Another one after a change of what was said before.
    pub(crate) conversation: &'a mut ConversationId,
    pub(crate) usage: &'a mut Usage,
    /// How long earlier sessions of the task worked.
    pub(crate) worked: Duration,
    pub(crate) started: Instant,
    pub(crate) watch: Option<&'a UnboundedSender<Delta>>,
}

/// The outcome of a model call.
enum Answer {
    Reply {
        reply: ModelReply,
        /// The server's count of what it was sent; `None` if it does not count, or with an estimate for
        /// replies that broke off.
        input_tokens: Option<u64>,
    },
    /// The conversation no longer fits into the model's context; the reason.
    Full(String),
}

/// Whether people wrote something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Nothing,
    Remarks,
}

/// The forms in which a conversation that an API refuses is sent again, in turn.
const SIMPLER: [fn(&History) -> Option<History>; 2] = [History::tidied, History::simplified];
const TRUNCATED: &str = "not run: the conversation was truncated";
/// How long a session that has to end waits until the journal has what its last request may have cost.
const LAST_ENTRY: Duration = Duration::from_secs(5);
const OUT_OF_TIME: &str = "not run: the time limit of the task was reached";
const REPEATED: &str = "not run: the call before it repeats earlier ones";
/// Why the work ends where no room can be made for a reply.
const WINDOW_FULL: &str =
    "the conversation fills the model's context window, and nothing of it can be omitted";
/// How the warning of a limit begins. A resumed conversation has it only once.
const NEAR_LIMIT: &str = "A limit of this task is near: ";

impl<E> Execution<'_, E> {
    /// Runs until the model is done, a limit is reached, or the session has to end.
    /// `notice` is sent to the model first.
    pub(crate) async fn run(&mut self, notice: Option<&str>) -> Result<Finished, AgentError<E>> {
        self.close_calls(INTERRUPTED).await?;
        if let Some(notice) = notice {
            self.send(notice).await?;
        }
        let mut repeats = Repeats::default();
        let mut window = Window::default();
        let mut unusable_replies = 0;
        // Whether results were omitted since the last reply that could be used.
        let mut has_made_room = false;
        loop {
            self.refresh().await?;
            self.hear().await?;
            if let Some(limit) = self.limits.budget.exceeded(self.usage, self.elapsed()) {
                return Ok(Finished::Budget(limit));
            }
            self.warn_of_limit().await?;
            let conversation = *self.conversation;
            let (reply, input_tokens) = match self.ask().await? {
                Answer::Reply {
                    reply,
                    input_tokens,
                } => (reply, input_tokens),
                Answer::Full(why) => return Ok(Finished::Full(why)),
            };
            if conversation != *self.conversation {
                window = Window::default();
            }
            // Replies do not count.
            let sent = self.history.texts();
            if let Some(why) = input_tokens.and_then(|tokens| window.count(sent, tokens)) {
                self.close_calls(TRUNCATED).await?;
                return Ok(Finished::Full(why));
            }
            if let Some(fault) = Unusable::of(&reply, &self.tools.specs()) {
                unusable_replies += 1;
                let is_last = unusable_replies >= self.limits.empty_replies;
                // Model APIs require a result for every call.
                self.close_calls(fault.refusal()).await?;
                // Some servers do not distinguish a full window, where shorter replies do not help, from the output limit. A reply
                // that is cut off while the model thinks is the sign.
                let is_blank = reply.text.trim().is_empty() && reply.calls.is_empty();
                let seems_full = is_last && is_blank && fault == Unusable::Cut && !has_made_room;
                if reply.stop == Stop::WindowFull || seems_full {
                    let why = "there seems to be no room for a reply";
                    if self.omit_results(why, Duration::ZERO).await? {
                        has_made_room = true;
                        unusable_replies = 0;
                    } else if reply.stop == Stop::WindowFull {
                        return Ok(Finished::Full(WINDOW_FULL.to_owned()));
                    }
                }
                if unusable_replies >= self.limits.empty_replies {
                    return Ok(Finished::Stuck(fault.stuck(unusable_replies)));
                }
                self.send(fault.prompt()).await?;
                continue;
            }
            unusable_replies = 0;
            has_made_room = false;
            if reply.calls.is_empty() {
                match self.hear().await? {
                    Heard::Nothing => {
                        return Ok(Finished::Said(without_reasoning(&reply.text).to_owned()));
                    }
                    // What people wrote during the last call is heard before the work is measured.
                    Heard::Remarks => continue,
                }
            }
            for call in &reply.calls {
                let result = self.call(call).await?;
                let name = &call.name;
                match repeats.add(call, &result, self.limits.same_call as usize) {
                    Repetition::None => {}
                    Repetition::Warned(count) => {
                        self.close_calls(REPEATED).await?;
                        self.send(&repeated(name, count)).await?;
                        break;
                    }
                    Repetition::Stuck(count) => {
                        self.close_calls(REPEATED).await?;
                        return Ok(Finished::Stuck(format!(
                            "{name} was called {count} times with the same result"
                        )));
                    }
                }
                // A reply may have any number of calls. The budget then ends the run before the next model call.
                let elapsed = self.elapsed();
                if self.limits.budget.out_of_time(elapsed).is_some() {
                    self.close_calls(OUT_OF_TIME).await?;
                    break;
                }
            }
        }
    }

    /// How long the task was worked on.
    fn elapsed(&self) -> Duration {
        self.worked + self.started.elapsed()
    }

    /// Refreshes the tools before a model call.
    async fn refresh(&mut self) -> Result<(), E> {
        tokio::select! {
            biased;
            end = self.journal.interrupted() => return Err(end),
            refreshed = self.tools.refresh() => refreshed?,
        }
        *self.usage += self.tools.take_usage();
        Ok(())
    }

    /// Informs the model of a limit while there is time to publish what works.
    async fn warn_of_limit(&mut self) -> Result<(), E> {
        let elapsed = self.elapsed();
        match self.limits.budget.nearly_exceeded(self.usage, elapsed) {
            Some(near) if !self.history.was_sent(NEAR_LIMIT) => {
                let text = format!(
                    "{NEAR_LIMIT}{near}. When it is reached, you are stopped. Do only what is needed to finish, publish what \
                     works, and then report what is done and what is not."
                );
                self.send(&text).await
            }
            _ => Ok(()),
        }
    }

    /// Gives the model what people wrote meanwhile.
    async fn hear(&mut self) -> Result<Heard, E> {
        let remarks = tokio::select! {
            biased;
            end = self.journal.interrupted() => return Err(end),
            remarks = self.inbox.take() => remarks,
        };
        if remarks.is_empty() {
            return Ok(Heard::Nothing);
        }
        let order = RemarkOrder::OldestFirst;
        let discussion = Discussion { remarks, order };
        send(self.journal, self.history, remarks_prompt(&discussion)).await?;
        Ok(Heard::Remarks)
    }

    /// One model call, recorded before it returns.
    async fn ask(&mut self) -> Result<Answer, AgentError<E>> {
        let begun = Instant::now();
        let specs = self.tools.specs();
        let mut answer = self.fitting_request(&specs).await?;
        for simpler in SIMPLER {
            let note = match &answer {
                Err(error) if is_refused_conversation(error) => {
                    format!("{error}\nSending the conversation again in a simpler form.")
                }
                Ok(_) | Err(_) => break,
            };
            if let Some(simpler) = simpler(self.history) {
                self.append(Entry::note(note), begun.elapsed()).await?;
                *self.history = simpler;
                *self.conversation = ConversationId::unique();
                answer = self.fitting_request(&specs).await?;
            }
        }
        let (reply, mut used, is_estimated) = match answer {
            Ok(answer) => answer,
            // The work so far is measured and reported, as with any other limit.
            Err(error @ LlmError::ContextTooLong(_)) => return Ok(Answer::Full(error.to_string())),
            Err(error) if is_refused_conversation(&error) && self.history.has_reply() => {
                return Err(AgentError::Conversation(error));
            }
            Err(error) => return Err(AgentError::Model(error)),
        };
        used.model_calls = used.model_calls.max(1);
        *self.usage += used;
        let mut recorded = reply.clone();
        // A worker of an earlier version, which may continue the task, does not know the other word.
        if recorded.stop == Stop::WindowFull {
            recorded.stop = Stop::Length;
        }
        let entry = Entry::ModelReply {
            reply: recorded,
            usage: used,
        };
        self.append(entry, begun.elapsed()).await?;
        Ok(Answer::Reply {
            reply,
            input_tokens: (used.model_calls == 1 && !is_estimated).then_some(used.input_tokens),
        })
    }

    /// Counts what a call may have cost although it brought no reply: a server whose replies always break off must not
    /// be asked for them without end.
    async fn count_lost(&mut self, usage: Usage, took: Duration) -> Result<(), E> {
        if usage == Usage::default() {
            return Ok(());
        }
        *self.usage += usage;
        let text = format!(
            "{} replies of the model did not come whole. Their cost is estimated from what was sent",
            usage.model_calls
        );
        self.append(Entry::ModelUse { text, usage }, took).await
    }

    /// Counts what a call may have cost that was interrupted because the session has to end.
    async fn count_abandoned(&mut self, usage: Usage, took: Duration) {
        if usage == Usage::default() {
            return;
        }
        *self.usage += usage;
        let text = "the session ended during a call of the model. Its cost is estimated from what was sent";
        let entry = Entry::ModelUse {
            text: text.to_owned(),
            usage,
        };
        // A journal whose lease is lost refuses it, and another one may not answer.
        let _ = tokio::time::timeout(LAST_ENTRY, self.append(entry, took)).await;
    }

    /// Sends the conversation. While it is too long for the model, older results are omitted.
    async fn fitting_request(
        &mut self,
        specs: &[ToolSpec],
    ) -> Result<Result<(ModelReply, Usage, bool), LlmError>, AgentError<E>> {
        loop {
            let begun = Instant::now();
            let answer = self.request(specs).await?;
            let Err(LlmError::ContextTooLong(overflow)) = &answer else {
                return Ok(answer);
            };
            // Some servers notice it only after minutes.
            if self.limits.budget.out_of_time(self.elapsed()).is_some() {
                return Ok(answer);
            }
            let why = overflow.to_string();
            if !self.omit_results(&why, begun.elapsed()).await? {
                return Ok(answer);
            }
        }
    }

    /// Omits older results of a conversation that is too long for the model. `false`: there are none to omit.
    async fn omit_results(&mut self, why: &str, took: Duration) -> Result<bool, E> {
        let Some(count) = self.history.omissible_results() else {
            return Ok(false);
        };
        let note = Entry::Note {
            text: format!(
                "the conversation is too long for the model: {}. It continues without the results of its first {count} calls.",
                why.trim_end_matches('.')
            ),
            fact: Some(NoteFact::ResultsOmitted(count)),
        };
        self.append(note, took).await?;
        self.history.omit_results(count);
        *self.conversation = ConversationId::unique();
        Ok(true)
    }

    /// Sends the conversation. Beside the reply: whether its tokens are an estimate.
    async fn request(
        &mut self,
        specs: &[ToolSpec],
    ) -> Result<Result<(ModelReply, Usage, bool), LlmError>, AgentError<E>> {
        let begun = Instant::now();
        let request = ModelRequest {
            messages: self.history.messages(),
            tools: specs,
            conversation: Some(*self.conversation),
            state: CallState::default(),
        };
        let mut has_begun = false;
        let reply = async {
            has_begun = true;
            self.model.reply(request.clone(), self.watch).await
        };
        let end = tokio::select! {
            biased;
            end = self.journal.interrupted() => end,
            answer = reply => {
                let is_estimated = request.state.is_estimated();
                if answer.is_err() {
                    let usage = request.lost(self.model);
                    self.count_lost(usage, begun.elapsed()).await?;
                }
                return Ok(answer.map(|(reply, usage)| (reply, usage, is_estimated)));
            }
        };
        if has_begun {
            let usage = request.abandoned(self.model);
            self.count_abandoned(usage, begun.elapsed()).await;
        }
        Err(AgentError::Worker(end))
    }

    /// One tool call. Its result is recorded before it is returned.
    async fn call(&mut self, call: &ToolCall) -> Result<String, E> {
        let begun = Instant::now();
        let result = tokio::select! {
            biased;
            end = self.journal.interrupted() => return Err(end),
            result = self.tools.call(call) => result?,
        };
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
    ) -> Result<(), E> {
        let result = CallResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text,
            is_error,
        };
        self.append(Entry::ToolResult { result }, took).await
    }

    async fn send(&mut self, text: &str) -> Result<(), E> {
        send(self.journal, self.history, Prompt::user(text)).await
    }

    async fn append(&mut self, entry: Entry, took: Duration) -> Result<(), E> {
        append(self.journal, self.history, entry, took).await
    }

    /// Records an error result for each call without one: an interrupted call is never repeated
    /// silently.
    async fn close_calls(&mut self, why: &str) -> Result<(), E> {
        for call in self.history.open_calls() {
            self.answer(&call, why.to_owned(), true, Duration::ZERO)
                .await?;
        }
        Ok(())
    }
}

/// The warning to a model that repeats itself.
fn repeated(name: &str, count: usize) -> String {
    format!(
        "{name} was called {count} times with the same result, and once more will not change it. Do something else. To wait \
         for something, use one command that returns when it is there, such as a loop with `sleep` and a limit. If you \
         cannot continue, reply without a tool call and explain why."
    )
}

/// Whether the API refuses the conversation itself, as by the statuses for a malformed request.
fn is_refused_conversation(error: &LlmError) -> bool {
    match error {
        LlmError::Refused { status, .. } => matches!(status, 400 | 422),
        LlmError::Unauthorized { .. }
        | LlmError::OutOfQuota { .. }
        | LlmError::NotFound { .. }
        | LlmError::NotAnApi(_)
        | LlmError::NoTls { .. }
        | LlmError::ContextTooLong(_)
        | LlmError::Unavailable { .. }
        | LlmError::Protocol(_)
        | LlmError::Replay(_) => false,
    }
}

/// Sends a prompt to the model: records it and adds it to the conversation.
pub(crate) async fn send<E>(
    journal: &dyn Journal<E>,
    history: &mut History,
    prompt: Prompt,
) -> Result<(), E> {
    append(journal, history, prompt.into(), Duration::ZERO).await
}

/// Records an entry, then adds its message to the conversation.
async fn append<E>(
    journal: &dyn Journal<E>,
    history: &mut History,
    entry: Entry,
    took: Duration,
) -> Result<(), E> {
    let message = entry.message();
    journal.record(entry, took).await?;
    if let Some(message) = message {
        history.push(message);
    }
    Ok(())
}
