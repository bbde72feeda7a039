//! What the loop needs of the worker.

use std::time::Duration;

use agentmine_domain::Usage;
use agentmine_llm::{LlmError, ToolCall, ToolSpec};
use async_trait::async_trait;

use crate::facts::Facts;
use crate::journal::Entry;

/// The result of a tool call, as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Text, already capped.
    pub text: String,
    /// Whether the tool failed. The model sees the failure and goes on.
    pub is_error: bool,
}

/// The tools on offer. A tool's error either is a [`ToolResult`] that the model sees, or ends the
/// session as the worker's error `E`.
#[async_trait]
pub trait Tools<E>: Send + Sync {
    /// Takes in changes of the offer; awaited before each model call. Between two calls the offer does
    /// not change.
    ///
    /// # Errors
    /// Where a change cannot be recorded.
    async fn refresh(&self) -> Result<(), E> {
        Ok(())
    }
    /// Sorted by name; asked before each model call. The same offer is always the same, to the byte,
    /// so that the provider's prompt cache holds.
    fn specs(&self) -> Vec<ToolSpec>;
    /// What the tools themselves used of the model since the last call of this method. It counts
    /// against the budget; an implementation with such tools also records it, as
    /// [`Entry::ModelUse`].
    fn take_usage(&self) -> Usage {
        Usage::default()
    }
    /// Calls one. Dropping the future ends what it started.
    async fn call(&self, call: &ToolCall) -> Result<ToolResult, E>;
}

/// The journal of the task. `E` is the worker's own error; one that it returns ends the session.
#[async_trait]
pub trait Journal<E>: Send + Sync {
    /// Records an entry durably before it returns. `duration` is how long the event itself took.
    async fn record(&self, entry: Entry, duration: Duration) -> Result<(), E>;
    /// Resolves when the session has to end: a stop or pause request, a lost lease, a drain.
    async fn interrupted(&self) -> E;
}

/// Measures the result.
#[async_trait]
pub trait Gather<E>: Send + Sync {
    /// Publishes what is committed, then gathers the facts on the pushed commit.
    async fn facts(&self) -> Result<Facts, E>;
}

/// Why a run ended without an outcome.
#[derive(Debug, thiserror::Error)]
pub enum AgentError<E> {
    /// The model gave no reply.
    #[error(transparent)]
    Model(LlmError),
    /// The worker's side of a seam failed, or the session was interrupted.
    #[error("{0}")]
    Worker(#[from] E),
}
