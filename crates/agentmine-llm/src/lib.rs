//! Model providers: OpenAI Chat Completions and Anthropic Messages over HTTP, and replay of recorded replies.
//!
//! [`Model`] is the seam. `api/` holds what every model API over HTTP needs: requests under time limits,
//! retries, server-sent events, redaction, and the classification of failures; `openai/` and `anthropic/` each
//! add the wire types of one API.

pub mod anthropic;
mod api;
mod call_state;
mod error;
mod message;
mod model;
pub mod openai;
pub mod recording;
pub mod replay;
#[cfg(test)]
mod test_server;

use std::sync::Arc;

use agentmine_runtime::config;
use anyhow::Context;

pub use api::Overflow;
pub use call_state::{CallState, RequestCost};
pub use error::{Credentials, LlmError};
pub use message::{Extra, Message, ModelReply, Stop, ToolCall, ToolSpec};
pub use model::{ConversationId, Delta, Model, ModelRequest, Probe};

/// The configured model. Sends no request.
///
/// # Errors
/// What is missing or wrong in the `model` section.
pub fn from_config(config: &config::ModelConfig) -> anyhow::Result<Arc<dyn Model>> {
    Ok(match config.provider {
        config::Provider::OpenAi => Arc::new(openai::OpenAi::new(config)?),
        config::Provider::Anthropic => Arc::new(anthropic::Anthropic::new(config)?),
        config::Provider::Replay => {
            let path = config.recording.as_deref().context(
                "model.provider is replay, but model.recording is not set. hint: set it to a file",
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
        let anthropic = config::ModelConfig {
            provider: config::Provider::Anthropic,
            base_url: config::Provider::Anthropic.base_url(),
            ..config::ModelConfig::default()
        };
        assert!(fault(&anthropic).contains("ANTHROPIC_API_KEY"));
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
