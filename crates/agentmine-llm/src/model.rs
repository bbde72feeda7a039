//! The seam: what the agent loop asks of a model, in no provider's wire format.

use std::sync::atomic::{AtomicU64, Ordering};

use agentmine_domain::Usage;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use tokio::sync::mpsc::UnboundedSender;

use crate::call_state::CallState;
use crate::error::LlmError;
use crate::message::{Message, ModelReply, ToolSpec};

/// One request: the whole conversation. Stateless, so any worker can continue it.
#[derive(Debug, Clone)]
pub struct ModelRequest<'a> {
    /// The conversation, system prompt first.
    pub messages: &'a [Message],
    /// The tools that are offered, sorted by name.
    pub tools: &'a [ToolSpec],
    /// Which conversation it is, if it only grows: a later request with the same id begins with the same messages.
    pub conversation: Option<ConversationId>,
    /// How far the call has come: of this call alone, and shared with whatever sends the request for it.
    pub state: CallState,
}

/// Names a conversation within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationId(u64);

impl ConversationId {
    /// One that no other conversation has.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl ModelRequest<'_> {
    /// What the call of `model` may have cost if its reply is no longer waited for, estimated: nothing while it waits for the
    /// next try of a request that was refused.
    #[must_use]
    pub fn abandoned(&self, model: &dyn Model) -> Usage {
        self.state.abandoned(model.estimate(self))
    }

    /// What the call of `model` may have cost that ended with an error, estimated: the replies that did not come whole.
    #[must_use]
    pub fn lost(&self, model: &dyn Model) -> Usage {
        self.state.lost(model.estimate(self))
    }

    /// How many replies the conversation already holds.
    pub(crate) fn turn(&self) -> usize {
        let replies = self.messages.iter();
        replies
            .filter(|message| matches!(message, Message::Assistant(_)))
            .count()
    }
}

/// A piece of a streamed reply, for a person who watches: `agentmine session logs -f` and the live view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Some text.
    Text(String),
    /// The start of a call of this tool.
    Call(String),
    /// There is no reply yet: what the call waits for, for a person.
    Waiting(String),
}

/// What a model API says about itself, for a person who sets the fleet up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probe {
    /// The names of the models that it offers; `None` if it does not list them.
    pub models: Option<Vec<String>>,
    /// The server's time.
    pub server_time: Option<DateTime<Utc>>,
}

/// A model provider. It retries what may be retried; an error it returns is final for the call.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// The model's name, for records.
    fn name(&self) -> &str;
    /// Asks for one reply. `watch` gets its pieces as they arrive. Dropping the future ends the request. A model that sets nothing
    /// in the request's state has a request in flight all the time.
    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError>;
    /// An estimate of what a request costs if its reply does not come whole. Zero where nothing is charged.
    /// [`ModelRequest::abandoned`] is that of a call that is no longer waited for, [`ModelRequest::lost`] of one that failed.
    fn estimate(&self, _request: &ModelRequest<'_>) -> Usage {
        Usage::default()
    }
    /// Asks the API what it offers, once and without cost. Without a server there is nothing to ask.
    async fn probe(&self) -> Result<Probe, LlmError> {
        Ok(Probe::default())
    }
}
