//! Any endpoint that speaks OpenAI Chat Completions, streamed or not.
//!
//! Guaranteed: the same conversation gives the same request. `crate::api` guarantees the rest.

mod assemble;
mod extra;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};

use agentmine_domain::Usage;
use agentmine_runtime::config::ModelConfig;
use anyhow::ensure;
use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::AUTHORIZATION;
use tokio::sync::mpsc::UnboundedSender;

use crate::api::{ApiClient, KeyHeader, endpoint, headers};
use crate::error::LlmError;
use crate::message::ModelReply;
use crate::model::{Delta, Model, ModelRequest, Probe};
use assemble::ChatAssembly;
use wire::{Descriptions, Dialect, LimitName, Reasoning, Settings, UsageRequest};

/// What the address of each server ends with.
const PATH: [&str; 2] = ["chat", "completions"];
/// The host of OpenAI's own API.
const OPENAI_HOST: &str = "api.openai.com";
/// Its hosts in other regions.
const OPENAI_REGIONS: &str = ".api.openai.com";

/// A model behind Chat Completions.
#[derive(Debug)]
pub struct OpenAi {
    client: ApiClient,
    endpoint: Url,
    settings: Settings,
    /// Whether the limit on the reply has its newer name here: on OpenAI's own hosts, and where a server asked for it, as
    /// Azure does for newer models.
    has_newer_limit: AtomicBool,
    /// Whether a server accepts streamed requests only if they do not ask for the usage.
    refuses_usage_request: AtomicBool,
    /// Whether a server refuses long descriptions of tools.
    refuses_long_descriptions: AtomicBool,
    /// Whether a server refuses a reply with the reasoning that it sent with it.
    refuses_reasoning: AtomicBool,
}

impl OpenAi {
    /// A client for the configured model. Sends no request yet.
    ///
    /// # Errors
    /// A malformed header, no key for OpenAI's own API, or no trusted certificates on this system.
    pub fn new(config: &ModelConfig) -> anyhow::Result<Self> {
        let headers = headers(config, KeyHeader::Bearer.with_key(config)?)?;
        let host = config.base_url.host_str().unwrap_or_default();
        ensure!(
            host != OPENAI_HOST || headers.contains_key(AUTHORIZATION),
            "no API key for {host}. hint: set OPENAI_API_KEY, or model.base_url to a server that needs none"
        );
        ensure!(!config.name.trim().is_empty(), "model.name is empty");
        let endpoint = endpoint(&config.base_url, &PATH)?;
        Ok(Self {
            client: ApiClient::new(config, endpoint.clone(), headers, KeyHeader::Bearer)?,
            endpoint,
            settings: Settings {
                model: config.name.clone(),
                stream: config.stream,
                temperature: config.temperature,
                max_tokens: config.max_output_tokens,
                more: config.extra_body.clone(),
            },
            has_newer_limit: AtomicBool::new(host == OPENAI_HOST || host.ends_with(OPENAI_REGIONS)),
            refuses_usage_request: AtomicBool::new(false),
            refuses_long_descriptions: AtomicBool::new(false),
            refuses_reasoning: AtomicBool::new(false),
        })
    }
}

impl OpenAi {
    /// What the server is known to accept.
    fn dialect(&self) -> Dialect {
        Dialect {
            limit_name: match self.has_newer_limit.load(Ordering::Relaxed) {
                true => LimitName::MaxCompletionTokens,
                false => LimitName::MaxTokens,
            },
            usage: match self.refuses_usage_request.load(Ordering::Relaxed) {
                true => UsageRequest::Omitted,
                false => UsageRequest::Sent,
            },
            descriptions: match self.refuses_long_descriptions.load(Ordering::Relaxed) {
                true => Descriptions::Short,
                false => Descriptions::Whole,
            },
            reasoning: match self.refuses_reasoning.load(Ordering::Relaxed) {
                true => Reasoning::Omitted,
                false => Reasoning::Sent,
            },
        }
    }

    /// Uses a dialect from now on.
    fn accepts(&self, dialect: Dialect) {
        let Dialect {
            limit_name,
            usage,
            descriptions,
            reasoning,
        } = dialect;
        if limit_name == LimitName::MaxCompletionTokens {
            self.has_newer_limit.store(true, Ordering::Relaxed);
        }
        if usage == UsageRequest::Omitted {
            self.refuses_usage_request.store(true, Ordering::Relaxed);
        }
        if descriptions == Descriptions::Short {
            self.refuses_long_descriptions
                .store(true, Ordering::Relaxed);
        }
        if reasoning == Reasoning::Omitted {
            self.refuses_reasoning.store(true, Ordering::Relaxed);
        }
    }

    async fn send(
        &self,
        dialect: Dialect,
        request: &ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let body = wire::body(&self.settings, dialect, request).map_err(|error| {
            LlmError::Protocol(format!("the request cannot be encoded: {error}"))
        })?;
        self.client
            .reply::<ChatAssembly>(body, request.turn(), &request.state, watch)
            .await
    }
}

#[async_trait]
impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.settings.model
    }

    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let mut dialect = self.dialect();
        loop {
            let replied = self.send(dialect, &request, watch).await;
            let other = match &replied {
                Ok(_) => {
                    self.accepts(dialect);
                    None
                }
                Err(LlmError::Refused {
                    status: 400 | 422,
                    body,
                }) => dialect.after_refusal(body, &self.settings),
                Err(_) => None,
            };
            match other {
                Some(other) => dialect = other,
                None => return replied,
            }
        }
    }

    fn estimate(&self, request: &ModelRequest<'_>) -> Usage {
        let body = wire::body(&self.settings, self.dialect(), request);
        body.map_or_else(
            |_| Usage::default(),
            |body| self.client.estimate(body.len()),
        )
    }

    async fn probe(&self) -> Result<Probe, LlmError> {
        self.client.models(models_url(&self.endpoint)).await
    }
}

/// The list of models, beside the endpoint for completions.
fn models_url(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().pop().pop().push("models");
    }
    url
}

#[cfg(test)]
mod tests;
