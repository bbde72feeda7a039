//! The traits that the worker implements for the loop.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::Usage;
use agentmine_llm::{LlmError, ToolCall, ToolSpec};
use async_trait::async_trait;

use crate::discussion::Remark;
use crate::facts::Facts;
use crate::journal::Entry;

/// The result of a tool call, as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The text, already truncated to its limit.
    pub text: String,
    /// Whether the tool failed. The model sees the error and continues.
    pub is_error: bool,
}

/// The tools that the model may call. A failure is either a [`ToolResult`] that the model sees, or the
/// worker's error `E`, which ends the session.
#[async_trait]
pub trait Tools<E>: Send + Sync {
    /// Updates the list of tools; awaited before each model call. The list does not change between two
    /// calls of this method.
    ///
    /// # Errors
    /// Returns an error if a change cannot be recorded.
    async fn refresh(&self) -> Result<(), E> {
        Ok(())
    }
    /// The tools, sorted by name. The same tools are always described by the same bytes, so that the
    /// provider's prompt cache works.
    fn specs(&self) -> Arc<[ToolSpec]>;
    /// Takes the tools' own use of the model since the last call of this method. It counts against the
    /// budget; an implementation with such tools also records it as [`Entry::ModelUse`].
    fn take_usage(&self) -> Usage {
        Usage::default()
    }
    /// Calls a tool. Dropping the future cancels the call.
    async fn call(&self, call: &ToolCall) -> Result<ToolResult, E>;
}

/// The journal of the task. An error `E` of the worker ends the session.
#[async_trait]
pub trait Journal<E>: Send + Sync {
    /// Records an entry durably before it returns. `duration` is how long the event took.
    async fn record(&self, entry: Entry, duration: Duration) -> Result<(), E>;
    /// Resolves when the session has to end: a stop or pause request, a lost lease, a drain.
    async fn interrupted(&self) -> E;
}

/// What people write while the agent works.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Takes what has arrived since the last call; it may look for it. The loop records it before the next model call;
    /// each remark is given once in the life of a task. Dropping the future loses nothing.
    async fn take(&self) -> Vec<Remark>;
}

/// An inbox in which nothing arrives.
#[derive(Debug, Clone, Copy)]
pub struct NoInbox;

#[async_trait]
impl Inbox for NoInbox {
    async fn take(&self) -> Vec<Remark> {
        Vec::new()
    }
}

/// Measures the result.
#[async_trait]
pub trait Gather<E>: Send + Sync {
    /// Pushes what is not pushed yet, then gathers facts about the pushed commit.
    async fn facts(&self) -> Result<Facts, E>;
}

/// Why a run ended without an outcome.
#[derive(Debug, thiserror::Error)]
pub enum AgentError<E> {
    /// The model call failed.
    #[error(transparent)]
    Model(LlmError),
    /// The model API refuses the conversation, which it accepted when it was shorter, in a simpler form too.
    #[error("{0}")]
    Conversation(LlmError),
    /// A trait implementation of the worker failed, or the session was interrupted.
    #[error("{0}")]
    Worker(#[from] E),
}
