//! Anthropic's Messages, streamed or not: its own API, and the servers and gateways that speak it.
//!
//! Guaranteed: the same conversation gives the same request, and a longer one continues it, so that each step reads from
//! the prompt cache what the step before wrote to it. `crate::api` guarantees the rest.

mod assemble;
mod layout;
mod wire;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentmine_domain::Usage;
use agentmine_runtime::config::ModelConfig;
use anyhow::ensure;
use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use tokio::sync::mpsc::UnboundedSender;

use crate::api::{self, ApiClient, KeyHeader, headers};
use crate::error::LlmError;
use crate::message::ModelReply;
use crate::model::{ConversationId, Delta, Model, ModelRequest, Probe};
use assemble::MessageAssembly;
use wire::{Form, Settings, Thinking};

/// The host of Anthropic's own API.
const ANTHROPIC_HOST: &str = "api.anthropic.com";
/// The version of the API, which each request names.
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
/// Tokens of a reply at most by default, since the API has no default. A model that can write less says how much.
const MAX_TOKENS: u32 = 32_000;
/// The same without a stream: the SDK in some gateways refuses what could take longer than ten minutes.
const MAX_TOKENS_WHOLE: u32 = 16_000;
/// Conversations that are remembered at most: more than a process has at a time.
const REMEMBERED: usize = 1_000;
/// The longest list of models that the API gives at once.
const MODELS: &str = "1000";

/// A model behind Messages.
#[derive(Debug)]
pub struct Anthropic {
    client: ApiClient,
    endpoint: Url,
    settings: Settings,
    /// Tokens of a reply at most, as configured, or less where the server said that the model can write no more.
    max_tokens: AtomicU32,
    /// Conversations whose thinking the server refused, oldest first. In others it is as configured.
    without_thinking: Mutex<VecDeque<ConversationId>>,
}

impl Anthropic {
    /// A client for the configured model. Sends no request yet.
    ///
    /// # Errors
    /// A malformed header, no key for Anthropic's own API, or no trusted certificates on this system.
    pub fn new(config: &ModelConfig) -> anyhow::Result<Self> {
        let key_header = KeyHeader::ApiKey;
        let mut own = key_header.with_key(config)?;
        own.insert(
            HeaderName::from_static(VERSION.0),
            HeaderValue::from_static(VERSION.1),
        );
        let headers = headers(config, own)?;
        let host = config.base_url.host_str().unwrap_or_default();
        let has_key =
            headers.contains_key(key_header.name()) || headers.contains_key(AUTHORIZATION);
        ensure!(
            host != ANTHROPIC_HOST || has_key,
            "no API key for {host}. hint: set ANTHROPIC_API_KEY, or model.base_url to a server that needs none"
        );
        ensure!(!config.name.trim().is_empty(), "model.name is empty");
        let endpoint = endpoint(&config.base_url)?;
        let most = match config.stream {
            true => MAX_TOKENS,
            false => MAX_TOKENS_WHOLE,
        };
        Ok(Self {
            client: ApiClient::new(config, endpoint.clone(), headers, key_header)?,
            endpoint,
            settings: Settings {
                model: config.name.clone(),
                stream: config.stream,
                eager: config.stream && host == ANTHROPIC_HOST,
                temperature: config.temperature,
                more: config.extra_body.clone(),
            },
            max_tokens: AtomicU32::new(config.max_output_tokens.unwrap_or(most)),
            without_thinking: Mutex::default(),
        })
    }

    /// What the server is known to accept in a conversation.
    fn form(&self, conversation: Option<ConversationId>) -> Form {
        let is_without_thinking =
            conversation.is_some_and(|it| self.without_thinking().contains(&it));
        Form {
            max_tokens: self.max_tokens.load(Ordering::Relaxed),
            thinking: match is_without_thinking {
                true => Thinking::Omitted,
                false => Thinking::AsConfigured,
            },
        }
    }

    /// Asks for no more thinking in a conversation: one that began without it is refused again with each step, and going back
    /// and forth between both would miss the prompt cache.
    fn remember_without_thinking(&self, conversation: Option<ConversationId>) {
        let mut known = self.without_thinking();
        known.extend(conversation);
        if known.len() > REMEMBERED {
            known.pop_front();
        }
    }

    fn without_thinking(&self) -> MutexGuard<'_, VecDeque<ConversationId>> {
        self.without_thinking
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(
        &self,
        form: Form,
        request: &ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let body = wire::body(&self.settings, form, request).map_err(|error| {
            LlmError::Protocol(format!("the request cannot be encoded: {error}"))
        })?;
        self.client
            .reply::<MessageAssembly>(body, request.turn(), &request.state, watch)
            .await
    }
}

#[async_trait]
impl Model for Anthropic {
    fn name(&self) -> &str {
        &self.settings.model
    }

    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let mut form = self.form(request.conversation);
        loop {
            let replied = self.send(form, &request, watch).await;
            let other = match &replied {
                Err(LlmError::Refused {
                    status: 400 | 422,
                    body,
                }) => {
                    let other = form.after_refusal(body, &self.settings);
                    if let Some(limit) = other.map(|other| other.max_tokens)
                        && limit < form.max_tokens
                    {
                        self.max_tokens.fetch_min(limit, Ordering::Relaxed);
                    }
                    if other.is_some_and(|other| other.thinking != form.thinking) {
                        self.remember_without_thinking(request.conversation);
                    }
                    other
                }
                // Of this request alone: another conversation may have room for more.
                Err(LlmError::ContextTooLong(overflow)) => {
                    form.after_overflow(&overflow.text, &self.settings)
                }
                Ok(_) | Err(_) => None,
            };
            let Some(other) = other else {
                return replied;
            };
            form = other;
        }
    }

    fn estimate(&self, request: &ModelRequest<'_>) -> Usage {
        let body = wire::body(&self.settings, self.form(request.conversation), request);
        body.map_or_else(
            |_| Usage::default(),
            |body| self.client.estimate(body.len()),
        )
    }

    async fn probe(&self) -> Result<Probe, LlmError> {
        self.client.models(models_url(&self.endpoint)).await
    }
}

/// `BASE/v1/messages`, whether the base ends with `/v1`, with a slash, or is the whole address already.
fn endpoint(base: &Url) -> anyhow::Result<Url> {
    let last = base
        .path_segments()
        .and_then(|mut segments| segments.rfind(|segment| !segment.is_empty()));
    let rest: &[&str] = match last {
        Some("v1" | "messages") => &["messages"],
        Some(_) | None => &["v1", "messages"],
    };
    api::endpoint(base, rest)
}

/// The list of models, beside the endpoint for messages.
fn models_url(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().pop().push("models");
    }
    url.query_pairs_mut().append_pair("limit", MODELS);
    url
}

#[cfg(test)]
mod tests;
