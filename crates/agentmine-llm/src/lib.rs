//! Model providers: OpenAI Chat Completions over HTTP, and replay of recorded replies.

mod message;
pub mod openai;
pub mod recorder;
pub mod recording;
pub mod replay;
mod retry;

pub use message::{Message, ModelReply, Stop, ToolCall, ToolSpec};

use std::sync::Arc;

use agentmine_domain::Usage;
use agentmine_runtime::config;
use anyhow::Context;
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
pub struct ModelRequest<'a> {
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
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError>;
}

/// The model that the configuration names.
///
/// # Errors
/// What is missing or wrong in the `model` section, in words for the person who wrote it.
pub fn from_config(config: &config::ModelConfig) -> anyhow::Result<Arc<dyn Model>> {
    Ok(match config.provider {
        config::Provider::OpenAi => Arc::new(openai::OpenAi::new(config)?),
        config::Provider::Replay => {
            let path = config.recording.as_deref().context(
                "model.provider is replay, but no recording is named. hint: set model.recording to a file",
            )?;
            Arc::new(replay::Replay::from_file(path)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(config: &config::ModelConfig) -> String {
        match from_config(config) {
            Ok(model) => panic!("{} was made", model.name()),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let openai = config::ModelConfig::default();
        assert!(fault(&openai).contains("OPENAI_API_KEY"));
        let replay = config::ModelConfig {
            provider: config::Provider::Replay,
            ..config::ModelConfig::default()
        };
        assert!(fault(&replay).contains("model.recording"));
        let absent = config::ModelConfig {
            recording: Some("/nonexistent/recording.jsonl".into()),
            ..replay
        };
        assert!(fault(&absent).contains("/nonexistent/recording.jsonl"));
    }

    #[test]
    fn a_local_server_needs_no_key() {
        let config = config::ModelConfig {
            base_url: "http://127.0.0.1:11434/v1".parse().unwrap(),
            name: "qwen3".into(),
            ..config::ModelConfig::default()
        };
        assert_eq!(from_config(&config).unwrap().name(), "qwen3");
    }
}
