//! One call of a model API: its tries, its time limits, and reading the response as a stream or whole.
//!
//! Guaranteed: every call ends, with a reply or with an error, in bounded time and memory; no secret
//! appears in an error. Dropping the future closes the connection.
//!
//! Accepted: when a stream breaks off and is tried again, a watcher sees the beginning of the reply
//! twice. The reply itself holds only the try that succeeded. The provider may count tokens of tries that
//! broke off, which no response reports: the usage has an estimate of what they sent. It also has one
//! for each reply of a server that never counts tokens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use agentmine_domain::Usage;
use agentmine_runtime::config::{ModelConfig, Secret};
use agentmine_runtime::metrics::zero;
use agentmine_runtime::tls::{self, TlsFault};
use bytes::Bytes;
use chrono::DateTime;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap};
use reqwest::{Client, RequestBuilder, Response, Url};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, timeout_at};
use url::Position::{AfterPort, BeforeHost};

use super::body::{Body, chain, no_first_byte};
use super::connect::{KeyHeader, http_client};
use super::failure;
use super::notice::{Notices, Stage};
use super::page;
use super::redact::Redactor;
use super::retry::{Failure, NO_FIRST_BYTE, RetryPolicy, Trouble};
use super::retry_after::retry_after;
use super::sse::Parser;
use super::usage::{Prices, Tokens};
use crate::call_state::CallState;
use crate::error::{Credentials, LlmError};
use crate::message::{Extra, ModelReply, ToolCall};
use crate::model::{Delta, Probe};

/// Bytes of a request or a reply for each of its tokens, roughly.
pub(crate) const BYTES_OF_TOKEN: u64 = 4;

/// A 504 that comes later means that a proxy stopped waiting for the reply. An earlier one means that the proxy reached no
/// server: AWS's load balancer gives up a connection after 10 seconds.
const LATE: Duration = Duration::from_secs(20);

/// Why an event is not part of a reply.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) String);

/// A reply that is being put together from one API's events.
pub(crate) trait Assembly: Default + Send {
    /// Adds an event of a stream, or a whole reply. Returns what a watcher sees of it.
    fn add(&mut self, event: &Value) -> Result<Vec<Delta>, Malformed>;
    /// The error that an event reports, if it reports one.
    fn error_in(event: &Value) -> Option<&Value> {
        failure::error_in(event)
    }
    /// Whether the reply is complete. Only bookkeeping follows.
    fn has_finished(&self) -> bool {
        self.has_reason() || self.has_ended()
    }
    /// Whether the server has said why the reply ended.
    fn has_reason(&self) -> bool;
    /// Whether the server has said that nothing follows, where the API says so in an event.
    fn has_ended(&self) -> bool {
        false
    }
    /// Whether an event only keeps the connection alive, as a comment does.
    fn keeps_alive(_event: &str) -> bool {
        false
    }
    /// Whether nothing was added yet.
    fn is_empty(&self) -> bool;
    /// The tokens so far, if the server counts them before the end of the reply.
    fn counted(&self) -> Option<Tokens> {
        None
    }
    /// What the server ended the reply with, if that was a failure of its own.
    fn failure(&self) -> Option<&str>;
    /// The reply, and its tokens if the server counted them. `turn`, its position in the conversation, becomes part of
    /// generated ids, which makes them unique in the conversation and the same each time.
    fn finish(self, turn: usize) -> (ModelReply, Option<Tokens>);
}

/// A kind of response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stream,
    Whole,
    /// A web page, which no API responds with.
    Page,
}

/// Who learns what a try receives.
#[derive(Clone, Copy)]
struct Watcher<'a> {
    watch: Option<&'a UnboundedSender<Delta>>,
    notices: &'a Notices<'a>,
    state: &'a CallState,
}

impl Watcher<'_> {
    fn show(self, deltas: Vec<Delta>) {
        self.notices.reach(Stage::Reply);
        for delta in deltas {
            // A watcher may have gone away.
            let _ = self.watch.map(|watch| watch.send(delta));
        }
    }
}

/// The client of one model API at one address.
#[derive(Debug)]
pub(crate) struct ApiClient {
    http: Client,
    url: Url,
    asked: Kind,
    prices: Prices,
    redactor: Redactor,
    /// What its requests are sent with.
    credentials: Credentials,
    /// How it takes its key.
    key_header: KeyHeader,
    /// The key that the headers hold, if it may be replaced.
    key: Option<Secret>,
    /// Whether this process got a reply from it.
    has_replied: AtomicBool,
    /// See [`HIDDEN_WORK`].
    pub(crate) hidden_work: Duration,
    /// Whether the server has said of the newest reply why it ended.
    gives_reasons: AtomicBool,
    pub(crate) retries: RetryPolicy,
    pub(crate) first_byte: Duration,
    pub(crate) idle: Duration,
    pub(crate) notice: Duration,
    pub(crate) late: Duration,
}

impl ApiClient {
    /// A client that posts to `url` with `headers`, of which `key_header` follows the key. Sends no request yet.
    ///
    /// # Errors
    /// If this system has no trusted certificates.
    pub(crate) fn new(
        config: &ModelConfig,
        url: Url,
        headers: HeaderMap,
        key_header: KeyHeader,
    ) -> anyhow::Result<Self> {
        describe_metrics();
        let secrets = config.api_key.iter().chain(config.headers.values());
        let password = config.base_url.password().map(Secret::new);
        // A header of the configuration may be a key by another name, and an address may have a user.
        let is_open = !headers.contains_key(key_header.name())
            && config.headers.is_empty()
            && password.is_none()
            && url.query().is_none();
        Ok(Self {
            http: http_client(config, headers)?,
            url,
            asked: match config.stream {
                true => Kind::Stream,
                false => Kind::Whole,
            },
            prices: Prices::of(config),
            redactor: Redactor::new(secrets.cloned().chain(password)),
            credentials: match is_open {
                true => Credentials::Missing,
                false => Credentials::Sent,
            },
            key_header,
            key: key_header.key_in_use(config),
            has_replied: AtomicBool::new(false),
            hidden_work: HIDDEN_WORK,
            gives_reasons: AtomicBool::new(false),
            retries: RetryPolicy {
                max_tries: config.max_tries,
                away: Duration::from_secs(config.retry_seconds),
                absent: config.unreached_seconds.map(Duration::from_secs),
                base: Duration::from_millis(500),
                cap: Duration::from_secs(30),
                total: Duration::from_secs(3600.max(config.retry_seconds.saturating_mul(2))),
            },
            first_byte: Duration::from_secs(config.first_byte_timeout_seconds),
            idle: Duration::from_secs(config.idle_timeout_seconds),
            notice: Duration::from_secs(config.waiting_notice_seconds),
            late: LATE,
        })
    }

    /// With the key as it is by now.
    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        let Some(first) = &self.key else {
            return request;
        };
        let now = first.current();
        if now.expose() == first.expose() {
            return request;
        }
        match self.key_header.value(&now) {
            Ok(value) => request.header(self.key_header.name(), value),
            Err(error) => {
                tracing::warn!(%error, "the former key of the model API stays in use");
                request
            }
        }
    }

    /// Posts `body` until there is a reply. `turn`: how many replies the conversation holds. `state` is that of the whole call, which
    /// may have sent other bodies before.
    pub(crate) async fn reply<A: Assembly>(
        &self,
        body: Vec<u8>,
        turn: usize,
        state: &CallState,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let body = Bytes::from(body);
        let host = &self.url[BeforeHost..AfterPort];
        let notices = Notices::new(host, self.notice, watch);
        let watcher = Watcher {
            watch,
            notices: &notices,
            state,
        };
        let each = self.estimate(body.len());
        let is_proven = turn > 0 || self.has_replied.load(Ordering::Relaxed);
        let replied = self
            .retries
            .run(&notices, |_| {
                let attempt = self.measured(body.clone(), watcher);
                notices.during(async move {
                    state.sent();
                    attempt.await.map_err(|failure| {
                        state.failed(failure.cost());
                        match is_proven {
                            true => failure.at_proven_address(),
                            false => failure,
                        }
                    })
                })
            })
            .await;
        let assembly: A = replied.map_err(|error| {
            let error = error.at(&self.url);
            error.with(self.credentials, self.key_header.variable())
        })?;
        state.answered();
        self.has_replied.store(true, Ordering::Relaxed);
        let (reply, counted) = assembly.finish(turn);
        if counted.is_none() {
            state.estimated();
        }
        let mut used = state.lost(each);
        used += self.prices.usage(tokens(counted, body.len(), &reply));
        Ok((reply, used))
    }

    /// What a request of `sent` bytes may cost if its reply does not arrive in full.
    pub(crate) fn estimate(&self, sent: usize) -> Usage {
        self.prices.usage(Tokens {
            input: sent as u64 / BYTES_OF_TOKEN,
            ..Tokens::default()
        })
    }

    /// Asks for the list of models, once. `None`: the server has none.
    pub(crate) async fn models(&self, url: Url) -> Result<Probe, LlmError> {
        let deadline = Instant::now() + self.first_byte;
        let away = |detail: String| LlmError::Unavailable {
            tries: 1,
            detail: self.redactor.redact(&detail),
            until: None,
        };
        let request = self.authorized(self.http.get(url.clone()));
        let response = timeout_at(deadline, request.send())
            .await
            .map_err(|_| away("no answer in time".into()).at(&url))?
            .map_err(|error| match self.unreached(&error.without_url()) {
                Failure::Final(error) => error,
                Failure::Retry { detail, .. } => away(detail).at(&url),
            })?;
        let status = response.status();
        let redirect = status.is_redirection().then(|| {
            failure::of_redirect(status.as_u16(), response.headers(), &url, &self.redactor)
        });
        let date = response.headers().get(DATE).and_then(|it| it.to_str().ok());
        let date = date.and_then(|text| httpdate::parse_http_date(text).ok());
        let text = Body::new(response, deadline, self.idle).all().await;
        if matches!(status.as_u16(), 404 | 405 | 501) {
            return Ok(Probe {
                models: None,
                server_time: date.map(DateTime::from),
            });
        }
        let text = match text {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => return Err(away("the answer broke off".into()).at(&url)),
        };
        if !status.is_success() {
            let failure = redirect.unwrap_or_else(|| {
                failure::of_status(status.as_u16(), &text, None, &self.redactor)
            });
            return Err(match failure {
                Failure::Final(error) => error.with(self.credentials, self.key_header.variable()),
                Failure::Retry { detail, .. } => away(detail).at(&url),
            });
        }
        if let Some(page) = page::described(&text) {
            return Err(LlmError::NotAnApi(self.redactor.redact(&page)));
        }
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| LlmError::Protocol(format!("{error} in the list of models")))?;
        let names = value["data"].as_array().map(|models| {
            let names = models.iter().filter_map(|model| model["id"].as_str());
            names.map(ToOwned::to_owned).collect()
        });
        Ok(Probe {
            models: names,
            server_time: date.map(DateTime::from),
        })
    }

    /// One try, measured.
    async fn measured<A: Assembly>(&self, body: Bytes, watcher: Watcher<'_>) -> Result<A, Failure> {
        let start = Instant::now();
        let result = self.attempt(body, watcher).await;
        let outcome = match &result {
            Ok(_) => "reply",
            Err(Failure::Retry { reason, .. }) => reason,
            Err(Failure::Final(_)) => "refused",
        };
        metrics::histogram!("agentmine_llm_request_duration_seconds", "outcome" => outcome)
            .record(start.elapsed().as_secs_f64());
        result
    }

    async fn attempt<A: Assembly>(&self, body: Bytes, watcher: Watcher<'_>) -> Result<A, Failure> {
        let begun = Instant::now();
        let first_byte = begun + self.first_byte;
        let request = self.authorized(self.http.post(self.url.clone()).body(body));
        let response = timeout_at(first_byte, request.send())
            .await
            .map_err(|_| no_first_byte(self.silence()))?
            .map_err(|error| {
                let failure = self.unreached(&error.without_url());
                // A connection that was idle for long while the server worked on a whole reply.
                match self.asked == Kind::Whole && begun.elapsed() >= self.late {
                    true => failure.of_late_reply(),
                    false => failure,
                }
            })?;
        watcher.notices.reach(Stage::Answered);
        let status = response.status();
        if !status.is_success() {
            let headers = response.headers().clone();
            if status.is_redirection() {
                let status = status.as_u16();
                return Err(failure::of_redirect(
                    status,
                    &headers,
                    &self.url,
                    &self.redactor,
                ));
            }
            let body = Body::new(response, first_byte, self.idle).of_error().await;
            let status = status.as_u16();
            let after = retry_after(status, &headers, &body, SystemTime::now());
            let failure = failure::of_status(status, &body, after, &self.redactor);
            return Err(match status == 504 && begun.elapsed() >= self.late {
                true => failure.of_late_reply(),
                false => failure,
            });
        }
        let kind = self.kind(&response);
        let idle = match kind {
            // A server that has begun may think before the first part, or hold a call back until it is complete.
            Kind::Stream => self.first_byte.max(self.idle),
            Kind::Whole | Kind::Page => self.idle,
        };
        let body = Body::new(response, first_byte, idle);
        let assembly: A = match kind {
            Kind::Stream => self.read_stream(body, first_byte, watcher).await?,
            Kind::Whole => self.read_whole(body, watcher).await?,
            Kind::Page => return Err(self.not_an_api(&body.of_error().await)),
        };
        match assembly.failure() {
            Some(word) => return Err(broken(&format!("the server ended the reply with {word:?}"))),
            None if assembly.has_reason() => self.gives_reasons.store(true, Ordering::Relaxed),
            None => {}
        }
        Ok(assembly)
    }

    /// What it means that no response began in time: a server that is asked for a whole reply is silent while it works on it,
    /// one that is asked for a stream begins it at once.
    fn silence(&self) -> Trouble {
        match self.asked {
            Kind::Stream => Trouble::Silent,
            Kind::Whole | Kind::Page => Trouble::Reply,
        }
    }

    /// There is no response. A wrong certificate, or no TLS, is not worth another try, except that a certificate may be
    /// renewed, or a clock be set.
    fn unreached(&self, error: &reqwest::Error) -> Failure {
        let why = self.redactor.redact(&chain(error));
        let (trouble, detail) = match tls::fault(error) {
            Some(TlsFault::Untrusted) => {
                let hint = "name a PEM file with the authority that issued the server's certificate in SSL_CERT_FILE; the server's own certificate must not be that of an authority (CA:TRUE)";
                return Failure::Final(LlmError::NoTls { why, hint });
            }
            Some(TlsFault::WrongName) => {
                let hint = "the host in model.base_url must be a name that the server's certificate is for";
                return Failure::Final(LlmError::NoTls { why, hint });
            }
            Some(TlsFault::Plain) => {
                let hint = "the server seems to expect http:// in model.base_url, not https://";
                return Failure::Final(LlmError::NoTls { why, hint });
            }
            Some(TlsFault::OutOfDate) => {
                let hint = "renew the server's certificate, and check the clock of this machine";
                (Trouble::Away, format!("{why}. hint: {hint}"))
            }
            None if error.is_connect() => (Trouble::Absent, why),
            None => (Trouble::Dropped, why),
        };
        Failure::Retry {
            trouble,
            reason: "connect",
            detail,
            after: None,
        }
    }

    /// A server that has no streams sends a whole reply, and one asked for a whole reply may stream it:
    /// its content type decides.
    fn kind(&self, response: &Response) -> Kind {
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        match content_type {
            t if t.contains("event-stream") => Kind::Stream,
            t if t.contains("json") => Kind::Whole,
            t if t.contains("html") => Kind::Page,
            _ => self.asked,
        }
    }

    async fn read_whole<A: Assembly>(
        &self,
        body: Body,
        watcher: Watcher<'_>,
    ) -> Result<A, Failure> {
        let bytes = body.all().await?;
        let value = serde_json::from_slice(&bytes).map_err(|error| match error.is_eof() {
            true => Failure::retry("broken", "the reply broke off"),
            false => self.unreadable(&error, &String::from_utf8_lossy(&bytes)),
        })?;
        let mut assembly = A::default();
        self.add(&mut assembly, &value, watcher)?;
        Ok(assembly)
    }

    async fn read_stream<A: Assembly>(
        &self,
        mut body: Body,
        first_byte: Instant,
        watcher: Watcher<'_>,
    ) -> Result<A, Failure> {
        let mut parser = Parser::default();
        let mut assembly = A::default();
        let limit = self.first_byte.max(self.idle);
        let (mut due, mut latest) = (first_byte, first_byte);
        let mut has_begun = false;
        loop {
            // Comments keep the connection alive, and the body's own limits with it.
            let next = timeout_at(due, body.next());
            let silence = || Err(only_comments(has_begun));
            let bytes = match next.await.unwrap_or_else(|_| silence()) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                // Only the usage could be missing.
                Err(_) if assembly.has_finished() => return Ok(assembly),
                Err(failure) => return Err(during(&assembly, failure)),
            };
            if assembly.is_empty() && page::described(&String::from_utf8_lossy(&bytes)).is_some() {
                return Err(self.not_an_api(&String::from_utf8_lossy(&bytes)));
            }
            let mut events = match parser.push(&bytes) {
                Ok(events) => events,
                Err(_) if assembly.has_finished() => return Ok(assembly),
                Err(error) => {
                    let failure = Failure::Final(LlmError::Protocol(error.to_string()));
                    return Err(during(&assembly, failure));
                }
            };
            events.retain(|event| !A::keeps_alive(event));
            let now = Instant::now();
            match events.is_empty() {
                true if !has_begun => watcher.notices.reach(Stage::Comments),
                // A model that has begun may think for long, and not show it.
                true => due = (now + limit).min(latest),
                false => {
                    has_begun = true;
                    (due, latest) = (now + limit, now + limit.max(self.hidden_work));
                }
            }
            for event in events {
                match event.trim() {
                    "" => {}
                    "[DONE]" => {
                        body.drain().await;
                        return self.ended(assembly);
                    }
                    event => self.add_event(&mut assembly, event, watcher)?,
                }
            }
            if assembly.has_ended() {
                body.drain().await;
                return self.ended(assembly);
            }
            if !assembly.is_empty() {
                body.set_idle(self.idle);
            }
        }
        match parser.finish().as_deref().map(str::trim) {
            Some("[DONE]") => return self.ended(assembly),
            Some(event) if serde_json::from_str::<Value>(event).is_ok() => {
                self.add_event(&mut assembly, event, watcher)?;
            }
            Some(_) | None => {}
        }
        match assembly.has_finished() {
            true => Ok(assembly),
            false if assembly.is_empty() => Err(broken(NOT_BEGUN)),
            false => Err(broken(IN_THE_MIDDLE)),
        }
    }

    /// The end that a stream declares. A proxy also declares it where its own source broke off: then nothing says why the
    /// reply ended. But some servers never say that, and some not always, so only one such end in a row is tried again.
    fn ended<A: Assembly>(&self, assembly: A) -> Result<A, Failure> {
        if assembly.has_reason() {
            return Ok(assembly);
        }
        if assembly.is_empty() {
            return Err(broken(NOT_BEGUN));
        }
        match self.gives_reasons.swap(false, Ordering::Relaxed) {
            true => Err(broken(IN_THE_MIDDLE)),
            false => Ok(assembly),
        }
    }

    /// Adds an event of a stream. What cannot be read no longer matters once the reply is complete.
    fn add_event<A: Assembly>(
        &self,
        assembly: &mut A,
        event: &str,
        watcher: Watcher<'_>,
    ) -> Result<(), Failure> {
        let added = serde_json::from_str(event)
            .map_err(|error| self.unreadable(&error, event))
            .and_then(|value: Value| self.add(assembly, &value, watcher));
        match added {
            Err(Failure::Final(LlmError::Protocol(_))) if assembly.has_finished() => Ok(()),
            added => added.map_err(|failure| during(assembly, failure)),
        }
    }

    fn add<A: Assembly>(
        &self,
        assembly: &mut A,
        value: &Value,
        watcher: Watcher<'_>,
    ) -> Result<(), Failure> {
        if let Some(error) = A::error_in(value) {
            return Err(failure::of_event(value, error, &self.redactor));
        }
        let deltas = assembly
            .add(value)
            .map_err(|error| self.unreadable(&error, &value.to_string()))?;
        if let Some(tokens) = assembly.counted() {
            watcher.state.counted(self.prices.usage(tokens));
        }
        if !assembly.is_empty() {
            watcher.state.begun();
        }
        watcher.show(deltas);
        Ok(())
    }

    fn not_an_api(&self, text: &str) -> Failure {
        // The content type says that it is a page, if its text does not.
        let page = page::described(text).unwrap_or_else(|| "a web page".to_owned());
        Failure::Final(LlmError::NotAnApi(self.redactor.redact(&page)))
    }

    fn unreadable(&self, error: &dyn std::error::Error, text: &str) -> Failure {
        if page::described(text).is_some() {
            return self.not_an_api(text);
        }
        let text = self.redactor.redact(text);
        Failure::Final(LlmError::Protocol(format!("{error}; the response: {text}")))
    }
}

/// What cannot be read in the middle of a reply is a reply that broke off: it is tried again a few times, and each try may
/// have been paid for.
fn during<A: Assembly>(assembly: &A, failure: Failure) -> Failure {
    match failure {
        Failure::Final(LlmError::Protocol(detail)) if !assembly.is_empty() => broken(&detail),
        failure => failure,
    }
}

/// The tokens of a reply to a request of `sent` bytes. Where the server has not counted them they are estimated, since no
/// limit would hold otherwise.
fn tokens(counted: Option<Tokens>, sent: usize, reply: &ModelReply) -> Tokens {
    if let Some(tokens) = counted {
        count(tokens);
        return tokens;
    }
    Tokens {
        input: sent as u64 / BYTES_OF_TOKEN,
        cached: 0,
        written: 0,
        output: size(reply) as u64 / BYTES_OF_TOKEN,
    }
}

/// Bytes of what a model wrote.
fn size(reply: &ModelReply) -> usize {
    let ModelReply {
        text,
        calls,
        stop: _,
        extra,
    } = reply;
    let of_extra = |extra: &Extra| {
        let values = extra.values();
        values.map(|value| value.to_string().len()).sum::<usize>()
    };
    let of_calls = calls.iter().map(|call| {
        let ToolCall {
            id: _,
            name,
            arguments,
            extra,
        } = call;
        name.len() + arguments.len() + of_extra(extra)
    });
    text.len() + of_extra(extra) + of_calls.sum::<usize>()
}

/// The stream is alive, but brings no part of a reply, or no further one.
fn only_comments(has_begun: bool) -> Failure {
    match has_begun {
        false => Failure::retry(
            NO_FIRST_BYTE,
            "only keep-alive comments within model.first_byte_timeout_seconds",
        ),
        true => broken("only keep-alive messages for a long time in the middle of the reply"),
    }
}

fn broken(detail: &str) -> Failure {
    Failure::retry("broken", detail)
}

fn count(tokens: Tokens) {
    let Tokens {
        input,
        cached,
        written: _,
        output,
    } = tokens;
    for (direction, tokens) in [
        ("input", input.saturating_sub(cached)),
        ("cached_input", cached),
        ("output", output),
    ] {
        metrics::counter!("agentmine_llm_tokens_total", "direction" => direction).increment(tokens);
    }
}

const NOT_BEGUN: &str = "the stream ended before the reply began";
const IN_THE_MIDDLE: &str = "the stream ended in the middle of the reply";
/// How long a stream may bring only messages that keep it alive after the reply has begun: thinking that is not shown, and
/// calls that a proxy holds back until they are complete.
const HIDDEN_WORK: Duration = Duration::from_secs(15 * 60);

/// Why requests are tried again ([`Failure::Retry`]).
const RETRIED: [&str; 6] = [
    "broken",
    "connect",
    NO_FIRST_BYTE,
    "idle_timeout",
    "page",
    "status",
];

fn describe_metrics() {
    metrics::describe_histogram!(
        "agentmine_llm_request_duration_seconds",
        metrics::Unit::Seconds,
        "Duration of one request to the model API, to the end of its response, by outcome"
    );
    metrics::describe_counter!(
        "agentmine_llm_tokens_total",
        "Tokens sent (input, cached_input) and received (output), as the provider counts them"
    );
    zero(
        "agentmine_llm_tokens_total",
        "direction",
        &["input", "cached_input", "output"],
    );
    metrics::describe_counter!(
        "agentmine_llm_retries_total",
        "Retried requests to the model API, by reason"
    );
    zero("agentmine_llm_retries_total", "reason", &RETRIED);
    for outcome in RETRIED.into_iter().chain(["reply", "refused"]) {
        let _ = metrics::histogram!("agentmine_llm_request_duration_seconds", "outcome" => outcome);
    }
}
