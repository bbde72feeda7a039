//! Model providers: OpenAI Chat Completions over HTTP, and replay of recorded replies.

mod message;

pub use message::{Message, Reply, Stop, ToolCall, ToolSpec};

use agentmine_domain::Usage;
use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// The request itself is refused (400, 404, 413, 422): trying again is no use.
    #[error("the model API refused the request ({status}): {body}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The error body, capped, secrets removed.
        body: String,
    },
    /// The credentials are refused (401, 403).
    #[error(
        "the model API refused the credentials ({status}): {body}. hint: check model.api_key or OPENAI_API_KEY"
    )]
    Unauthorized {
        /// HTTP status.
        status: u16,
        /// The error body, capped, secrets removed.
        body: String,
    },
    /// The conversation no longer fits the model.
    #[error("the conversation is too long for the model: {0}")]
    ContextTooLong(String),
    /// Not reached, or overloaded, after all tries: the provider is gone for now.
    #[error("the model API is unavailable after {tries} tries: {detail}")]
    Unavailable {
        /// How often it was tried.
        tries: u32,
        /// The last failure.
        detail: String,
    },
    /// The answer is not what the protocol says.
    #[error("the model API answered what cannot be read: {0}")]
    Protocol(String),
    /// The recording has no more replies, or was made for another conversation.
    #[error("the recording does not fit: {0}")]
    Replay(String),
}

/// One request: the whole conversation. Stateless, so that any worker can go on with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request<'a> {
    /// The conversation, system prompt first.
    pub messages: &'a [Message],
    /// Tools on offer, sorted by name.
    pub tools: &'a [ToolSpec],
}

/// A piece of a streamed reply, for a person who looks on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Some text.
    Text(String),
    /// A tool call begins.
    Call(String),
}

/// A model provider. It retries what may be retried; an error it returns is final for the call.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// The model's name, for records.
    fn name(&self) -> &str;
    /// Asks for one reply. Dropping the future ends the request.
    async fn reply(
        &self,
        request: Request<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(Reply, Usage), LlmError>;
}

// To be provided beside this trait:
//   pub mod openai { pub struct OpenAi; impl OpenAi { pub fn new(&config::Model) -> anyhow::Result<Self> } }
//   pub mod replay { pub struct Replay; impl Replay { pub fn from_file(&Path), pub fn new(Vec<Reply>) } }
//   pub fn from_config(&config::Model) -> anyhow::Result<Arc<dyn Model>>
