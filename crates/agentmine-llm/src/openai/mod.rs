//! Any endpoint that speaks OpenAI Chat Completions, streamed or not.
//!
//! Promised: every call ends, with a reply or with an error, in bounded time and memory; the same
//! conversation gives the same request; no secret appears in an error. Dropping the future closes the
//! connection (HTTP/2: the stream).
//!
//! Accepted: when a stream breaks off and is tried again, whoever looks on sees the beginning of the
//! reply twice. The reply itself holds only the try that succeeded. The provider may count tokens of
//! the tries that failed; they are not in the usage, since nobody told them.

mod assemble;
mod body;
mod failure;
mod sse;
mod wire;

use std::time::{Duration, SystemTime};

use agentmine_domain::Usage;
use agentmine_runtime::config::{self, Secret};
use anyhow::{Context, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, timeout_at};

use crate::retry::{Failure, Policy, retry_after};
use crate::{Delta, LlmError, Message, Model, ModelReply, ModelRequest};
use assemble::{Assembly, Prices, Tokens};
use body::Body;
use failure::Redactor;
use wire::{LimitName, Settings};

/// Where OpenAI itself answers.
const OPENAI_HOST: &str = "api.openai.com";

/// A model behind an HTTP API.
#[derive(Debug)]
pub struct OpenAi {
    client: Client,
    url: Url,
    settings: Settings,
    prices: Prices,
    redactor: Redactor,
    retries: Policy,
    first_byte: Duration,
    idle: Duration,
}

impl OpenAi {
    /// A client for what the configuration names. Nothing is connected yet.
    ///
    /// # Errors
    /// A header that is none, no key for OpenAI itself, or no trusted certificates on this system.
    pub fn new(config: &config::ModelConfig) -> anyhow::Result<Self> {
        describe_metrics();
        let headers = headers(config)?;
        let host = config.base_url.host_str().unwrap_or_default();
        ensure!(
            host != OPENAI_HOST || headers.contains_key(AUTHORIZATION),
            "no API key for {host}. hint: set OPENAI_API_KEY, or model.base_url to a server that needs none"
        );
        ensure!(!config.name.trim().is_empty(), "model.name is empty");
        let secrets = config.api_key.iter().chain(config.headers.values());
        let password = config.base_url.password().map(Secret::new);
        Ok(Self {
            client: client(config, headers)?,
            url: endpoint(&config.base_url)?,
            settings: Settings {
                model: config.name.clone(),
                stream: config.stream,
                temperature: config.temperature,
                max_tokens: config.max_output_tokens,
                limit_name: match host {
                    OPENAI_HOST => LimitName::MaxCompletionTokens,
                    _ => LimitName::MaxTokens,
                },
            },
            prices: Prices {
                input: config.input_price,
                cached: config.cached_input_price,
                output: config.output_price,
            },
            redactor: Redactor::new(secrets.cloned().chain(password)),
            retries: Policy {
                max_tries: config.max_tries,
                base: Duration::from_millis(500),
                cap: Duration::from_secs(30),
                total: Duration::from_secs(3600),
            },
            first_byte: Duration::from_secs(config.first_byte_timeout_seconds),
            idle: Duration::from_secs(config.idle_timeout_seconds),
        })
    }

    /// One try, measured.
    async fn measured(
        &self,
        body: Bytes,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<Assembly, Failure> {
        let start = Instant::now();
        let result = self.attempt(body, watch).await;
        let outcome = match &result {
            Ok(_) => "reply",
            Err(Failure::Retry { reason, .. }) => reason,
            Err(Failure::Final(_)) => "refused",
        };
        metrics::histogram!("agentmine_llm_request_duration_seconds", "outcome" => outcome)
            .record(start.elapsed().as_secs_f64());
        result
    }

    async fn attempt(
        &self,
        body: Bytes,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<Assembly, Failure> {
        let first_byte = Instant::now() + self.first_byte;
        let request = self.client.post(self.url.clone()).body(body);
        let response = timeout_at(first_byte, request.send())
            .await
            .map_err(|_| body::no_first_byte())?
            .map_err(|error| {
                let text = body::chain(&error.without_url());
                Failure::retry("connect", self.redactor.clean(&text))
            })?;
        let status = response.status();
        if !status.is_success() {
            let after = retry_after(response.headers(), SystemTime::now());
            let body = Body::new(response, first_byte, self.idle).of_error().await;
            return Err(failure::of_status(
                status.as_u16(),
                &body,
                after,
                &self.redactor,
            ));
        }
        // A server that knows no streams answers with a whole reply, and one asked for a whole reply
        // may stream all the same: what it says it sends decides.
        let streamed = self.is_stream(&response);
        let body = Body::new(response, first_byte, self.idle);
        match streamed {
            true => self.read_stream(body, watch).await,
            false => self.read_whole(body, watch).await,
        }
    }

    fn is_stream(&self, response: &Response) -> bool {
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        match content_type {
            t if t.contains("event-stream") => true,
            t if t.contains("json") => false,
            _ => self.settings.stream,
        }
    }

    async fn read_whole(
        &self,
        body: Body,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<Assembly, Failure> {
        let bytes = body.all().await?;
        let value = serde_json::from_slice(&bytes).map_err(|error| match error.is_eof() {
            true => Failure::retry("broken", "the reply broke off"),
            false => self.unreadable(&error, &String::from_utf8_lossy(&bytes)),
        })?;
        let mut assembly = Assembly::default();
        self.take(&mut assembly, &value, watch)?;
        Ok(assembly)
    }

    async fn read_stream(
        &self,
        mut body: Body,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<Assembly, Failure> {
        let mut parser = sse::Parser::default();
        let mut assembly = Assembly::default();
        loop {
            let bytes = match body.next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                // All that could be missing is the usage.
                Err(_) if assembly.has_finished() => return Ok(assembly),
                Err(failure) => return Err(failure),
            };
            let events = parser
                .push(&bytes)
                .map_err(|error| Failure::Final(LlmError::Protocol(error.to_string())))?;
            for event in events {
                match event.trim() {
                    "" => {}
                    "[DONE]" => {
                        body.drain().await;
                        return Ok(assembly);
                    }
                    event => {
                        let value = serde_json::from_str(event)
                            .map_err(|error| self.unreadable(&error, event))?;
                        self.take(&mut assembly, &value, watch)?;
                    }
                }
            }
        }
        match parser.finish().as_deref().map(str::trim) {
            Some("[DONE]") => return Ok(assembly),
            Some(event) => {
                if let Ok(value) = serde_json::from_str(event) {
                    self.take(&mut assembly, &value, watch)?;
                }
            }
            None => {}
        }
        match assembly.has_finished() {
            true => Ok(assembly),
            false => Err(Failure::retry(
                "broken",
                match assembly.is_empty() {
                    true => "the stream ended before the reply began",
                    false => "the stream ended in the middle of the reply",
                },
            )),
        }
    }

    fn take(
        &self,
        assembly: &mut Assembly,
        value: &Value,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(), Failure> {
        if let Some(failure) = failure::of_object(value, &self.redactor) {
            return Err(failure);
        }
        let deltas = assembly
            .add(value)
            .map_err(|error| self.unreadable(&error, &value.to_string()))?;
        for delta in deltas {
            // Nobody has to look on to the end.
            let _ = watch.map(|watch| watch.send(delta));
        }
        Ok(())
    }

    fn unreadable(&self, error: &dyn std::error::Error, text: &str) -> Failure {
        let text = self.redactor.clean(text);
        Failure::Final(LlmError::Protocol(format!("{error}; it says: {text}")))
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
        let body = wire::body(&self.settings, &request)
            .map(Bytes::from)
            .map_err(|error| {
                LlmError::Protocol(format!("the request cannot be written: {error}"))
            })?;
        let assembly = self
            .retries
            .run(|_| self.measured(body.clone(), watch))
            .await?;
        let (reply, tokens) = assembly.finish(turn(request.messages));
        count(tokens);
        Ok((reply, tokens.usage(self.prices)))
    }
}

/// How many replies the conversation already holds.
fn turn(messages: &[Message]) -> usize {
    messages
        .iter()
        .filter(|message| matches!(message, Message::Assistant(_)))
        .count()
}

/// `BASE/chat/completions`, whether or not the base ends with a slash or is the whole address
/// already. A query stays: some gateways want their version there.
fn endpoint(base: &Url) -> anyhow::Result<Url> {
    let mut url = base.clone();
    let shown = base.host_str().unwrap_or_default();
    ensure!(
        matches!(url.scheme(), "http" | "https"),
        "model.base_url must begin with http:// or https://, not {}:",
        url.scheme()
    );
    if url
        .path()
        .trim_end_matches('/')
        .ends_with("/chat/completions")
    {
        return Ok(url);
    }
    url.path_segments_mut()
        .map_err(|()| anyhow::anyhow!("model.base_url for {shown} cannot have a path"))?
        .pop_if_empty()
        .extend(["chat", "completions"]);
    Ok(url)
}

fn headers(config: &config::ModelConfig) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let secret_value = |secret: &Secret, what: &str| {
        let mut value = HeaderValue::from_str(secret.expose())
            .map_err(|_| anyhow::anyhow!("{what} has characters that no header may have"))?;
        value.set_sensitive(true);
        anyhow::Ok(value)
    };
    if let Some(key) = &config.api_key
        && !key.expose().trim().is_empty()
    {
        let bearer = Secret::new(format!("Bearer {}", key.expose().trim()));
        headers.insert(AUTHORIZATION, secret_value(&bearer, "model.api_key")?);
    }
    for (name, secret) in &config.headers {
        let value = secret_value(secret, &format!("model.headers.{name}"))?;
        let name: HeaderName = name
            .parse()
            .with_context(|| format!("model.headers.{name} is not a header name"))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn client(config: &config::ModelConfig, headers: HeaderMap) -> anyhow::Result<Client> {
    agentmine_runtime::tls::install_default_provider();
    let mut builder = Client::builder()
        .user_agent(concat!("agentmine/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .connect_timeout(Duration::from_secs(config.connect_timeout_seconds))
        // A redirect would turn the POST into a GET, or carry the conversation somewhere else.
        .redirect(reqwest::redirect::Policy::none());
    if config.base_url.scheme() == "http" {
        // A local model needs no certificates, so a system without any must do.
        builder = builder.tls_certs_only([]);
    }
    if is_loopback(&config.base_url) {
        // No proxy can reach this machine's own loopback address.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| {
        anyhow::anyhow!(
            "the HTTP client cannot be made: {}. hint: install the package ca-certificates",
            body::chain(&error.without_url())
        )
    })
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

fn count(tokens: Tokens) {
    let Tokens {
        input,
        cached,
        output,
    } = tokens;
    for (direction, tokens) in [
        ("input", input - cached),
        ("cached_input", cached),
        ("output", output),
    ] {
        metrics::counter!("agentmine_llm_tokens_total", "direction" => direction).increment(tokens);
    }
}

fn describe_metrics() {
    metrics::describe_histogram!(
        "agentmine_llm_request_duration_seconds",
        metrics::Unit::Seconds,
        "Time of one request to the model API, to the end of its answer, by outcome"
    );
    metrics::describe_counter!(
        "agentmine_llm_tokens_total",
        "Tokens sent (input, cached_input) and received (output), as the provider counts them"
    );
    metrics::describe_counter!(
        "agentmine_llm_retries_total",
        "Requests to the model API that were tried again, by reason"
    );
}

#[cfg(test)]
mod tests;
