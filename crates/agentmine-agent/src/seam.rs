//! What the loop asks of the worker.

use agentmine_domain::{Phase, Usage};
use agentmine_llm::{Message, ToolCall, ToolSpec};
use async_trait::async_trait;

use crate::verify::Facts;

/// What the model is told of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Text, already capped.
    pub text: String,
    /// Whether the tool failed. The model is told and goes on.
    pub is_error: bool,
}

/// The other kind of tool error: it ends the session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolFault {
    /// Nothing further can succeed, now or on another worker (the tracker refuses the credentials).
    #[error("{0}")]
    Hopeless(String),
    /// This sandbox or worker is no use any more; another one may be.
    #[error("{0}")]
    Broken(String),
}

/// The tools on offer.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Takes in what has changed of the offer; awaited before each model call. In between the offer
    /// stays as it was told.
    ///
    /// # Errors
    /// A [`Halt`] where what changed cannot be recorded or told.
    async fn refresh(&self) -> Result<(), Halt> {
        Ok(())
    }
    /// Sorted by name; asked before each model call. The same offer is always the same, to the byte,
    /// so that the provider's prompt cache holds.
    fn specs(&self) -> Vec<ToolSpec>;
    /// What the tools themselves used of the model since this was last asked. It counts against the
    /// budget; whoever has tools that do so also records it, as `usage` of a note.
    fn take_usage(&self) -> Usage {
        Usage::default()
    }
    /// Calls one. Dropping the future ends what it started.
    async fn call(&self, call: &ToolCall) -> Result<ToolResult, ToolFault>;
}

/// Something to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub enum Record<'a> {
    /// A phase began.
    Phase(Phase),
    /// A message of the worker to the model: the system prompt, the task, a correction.
    Prompt(&'a Message),
    /// The model's reply, a [`Message::Assistant`], and what it cost.
    Reply(&'a Message, Usage),
    /// A tool's result, a [`Message::Tool`].
    ToolResult(&'a Message),
    /// What was measured.
    Facts(&'a Facts),
    /// For a reader of the transcript.
    Note(&'a str),
}

/// The journal of the task.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Records it for good before it returns. `duration_ms` is how long the event itself took.
    async fn record(&self, record: Record<'_>, duration_ms: u64) -> Result<(), Halt>;
    /// Resolves when the session has to end: a person's wish, a lost lease, a drain.
    async fn halted(&self) -> Halt;
}

/// Measures the result.
#[async_trait]
pub trait Gather: Send + Sync {
    /// Publishes what is committed, then gathers the facts on the pushed commit.
    async fn facts(&self) -> Result<Facts, Halt>;
}

/// Why a session ends before its task is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// A person stopped the task.
    #[error("stopped: {0}")]
    Cancelled(String),
    /// A person set the task aside.
    #[error("paused: {0}")]
    Paused(String),
    /// The lease is gone; another worker has the task or will. No write and no effect may follow.
    #[error("the lease is no longer held")]
    LeaseLost,
    /// The worker is asked to end; the task is given back and does not count as an attempt.
    #[error("the worker is draining")]
    Draining,
    /// It may go better on another try: the model API, the sandbox or the network is gone.
    #[error("{0}")]
    Retry(String),
    /// It cannot be done; trying again is no use.
    #[error("{0}")]
    Failed(String),
}
