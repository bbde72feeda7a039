//! HTTP to GitHub: one call with its retries, redirects, limits and caps.
//!
//! Promised: the token goes only to the configured origin, and into no error and no log; a reply
//! is read up to a cap; a call that may be repeated is, with jitter; one that may not
//! ([`Repeat::LookFirst`]) is repeated only where it cannot have happened, and else ends as
//! [`CallError::OutcomeUnknown`], so that the caller looks before it sends it again.

use std::time::Duration;

use agentmine_runtime::config::Secret;
use chrono::Utc;
use http::{Method, StatusCode, header};
use rand::Rng;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;

use super::cache::Cache;
use super::limits::{self, Bucket, Gates, Limited};
use super::reply::{Reply, rate_limited, unauthorized, unavailable};
use crate::TrackerError;

/// What a call may cost in time and bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Sends of one call, the first included.
    pub(super) tries: u32,
    /// The first pause between two tries; doubled each time, with jitter.
    pub(super) pause: Duration,
    /// The longest that one call waits for a rate limit.
    pub(super) max_wait: Duration,
    /// One request and its reply.
    pub(super) timeout: Duration,
    /// Bytes of one reply.
    pub(super) max_body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tries: 4,
            pause: Duration::from_millis(500),
            max_wait: Duration::from_secs(75),
            timeout: Duration::from_secs(30),
            max_body: 16 << 20,
        }
    }
}

/// Requests at once: GitHub asks for few.
const CONCURRENCY: usize = 4;
const MAX_REDIRECTS: usize = 5;
const API_VERSION: &str = "2022-11-28";

/// Whether a call may be sent twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Freely,
    LookFirst,
}

/// One call of the API.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Option<&'a Value>,
    pub(super) etag: Option<String>,
    pub(super) repeat: Repeat,
}

impl<'a> Call<'a> {
    pub(super) fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            body: None,
            etag: None,
            repeat: Repeat::Freely,
        }
    }

    pub(super) fn json(mut self, body: &'a Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(super) fn look_first(mut self) -> Self {
        self.repeat = Repeat::LookFirst;
        self
    }
}

/// Why a call gave no reply.
#[derive(Debug)]
pub(super) enum CallError {
    /// It may have happened all the same.
    OutcomeUnknown(String),
    /// It did not.
    Tracker(TrackerError),
}

impl From<CallError> for TrackerError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::OutcomeUnknown(detail) => unavailable(detail),
            CallError::Tracker(error) => error,
        }
    }
}

impl From<TrackerError> for CallError {
    fn from(error: TrackerError) -> Self {
        Self::Tracker(error)
    }
}

/// The client. One for each tracker.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    token: Secret,
    limits: Limits,
    gates: Gates,
    pub(super) cache: Cache,
    permits: Semaphore,
}

/// What one request came to.
enum Outcome {
    Reply(Reply),
    Limited(Limited),
    Denied(TrackerError),
    /// A fault that may pass; `sent` says whether the server may have acted.
    Fault {
        detail: String,
        sent: bool,
    },
}

impl Client {
    pub(super) fn new(base: &Url, token: Secret, limits: Limits) -> Result<Self, TrackerError> {
        agentmine_runtime::tls::install_default_provider();
        let http = reqwest::Client::builder()
            .user_agent(concat!("agentmine/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(Duration::from_secs(10).min(limits.timeout))
            .timeout(limits.timeout)
            .build()
            .map_err(|error| unavailable(format!("no HTTP client: {error}")))?;
        let mut base = base.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(Self {
            http,
            base,
            token,
            limits,
            gates: Gates::default(),
            cache: Cache::default(),
            permits: Semaphore::new(CONCURRENCY),
        })
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    pub(super) fn token(&self) -> &Secret {
        &self.token
    }

    pub(super) fn tries(&self) -> u32 {
        self.limits.tries
    }

    /// An address below the base; each segment is escaped.
    pub(super) fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        let mut url = self.base.clone();
        // Only a URL that cannot be a base has no segments, and `new` was given one that can.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// Sends a call until it has a reply.
    pub(super) async fn send(&self, call: &Call<'_>) -> Result<Reply, CallError> {
        let bucket = self.bucket(&call.url);
        let patience = Instant::now() + self.limits.max_wait;
        let mut tries = 0;
        loop {
            self.wait_for_gate(bucket, patience).await?;
            match self.once(call).await {
                Outcome::Reply(reply) => return Ok(reply),
                Outcome::Denied(error) => return Err(error.into()),
                Outcome::Limited(limited) => {
                    tracing::warn!(until = %limited.until, secondary = limited.secondary, "GitHub limits the rate");
                    self.gates.close(bucket, limited);
                }
                Outcome::Fault { detail, sent } => {
                    tries += 1;
                    if sent && call.repeat == Repeat::LookFirst {
                        return Err(CallError::OutcomeUnknown(detail));
                    }
                    if tries >= self.limits.tries {
                        return Err(unavailable(detail).into());
                    }
                    tracing::debug!(%detail, tries, "GitHub is asked again");
                    self.pause(tries).await;
                }
            }
        }
    }

    /// A pause before try `tries + 1`.
    pub(super) async fn pause(&self, tries: u32) {
        let full = self.limits.pause * 2_u32.saturating_pow(tries.saturating_sub(1)).min(64);
        let jitter = rand::rng().random_range(0.5..=1.0);
        tokio::time::sleep(full.mul_f64(jitter)).await;
    }

    fn bucket(&self, url: &Url) -> Bucket {
        let rest = url.path().strip_prefix(self.base.path());
        if rest.is_some_and(|path| path.starts_with("search/")) {
            Bucket::Search
        } else {
            Bucket::Core
        }
    }

    async fn wait_for_gate(&self, bucket: Bucket, patience: Instant) -> Result<(), TrackerError> {
        while let Some((wait, until)) = self.gates.closed(bucket, Utc::now()) {
            if Instant::now() + wait > patience {
                return Err(rate_limited(until));
            }
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    async fn once(&self, call: &Call<'_>) -> Outcome {
        let Ok(_permit) = self.permits.acquire().await else {
            return Outcome::Denied(unavailable("the client is closed".into()));
        };
        let mut url = call.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let reply = match self.request(call, &url).await {
                Ok(reply) => reply,
                Err(fault) => return fault,
            };
            if !is_redirect(reply.status) {
                return self.judge(reply);
            }
            // A renamed repository: the same request, to where it is now.
            match self.redirect_target(&url, &reply) {
                Ok(next) => url = next,
                Err(error) => return Outcome::Denied(error),
            }
        }
        Outcome::Denied(unavailable("it redirects without end".into()))
    }

    async fn request(&self, call: &Call<'_>, url: &Url) -> Result<Reply, Outcome> {
        let mut request = self
            .http
            .request(call.method.clone(), url.clone())
            .header(header::ACCEPT, "application/vnd.github+json")
            .header("X-GitHub-Api-Version", API_VERSION)
            .bearer_auth(self.token.expose());
        if let Some(body) = call.body {
            request = request.json(body);
        }
        if let Some(etag) = &call.etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        let response = request.send().await.map_err(|error| Outcome::Fault {
            sent: !error.is_connect(),
            detail: self.without_token(&chain(&error.without_url())),
        })?;
        let status = response.status();
        let headers = response.headers().clone();
        let body = self.body(response).await?;
        Ok(Reply {
            status,
            headers,
            body,
        })
    }

    async fn body(&self, mut response: reqwest::Response) -> Result<Vec<u8>, Outcome> {
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > self.limits.max_body => {
                    return Err(Outcome::Denied(unavailable(format!(
                        "its reply is over {} bytes",
                        self.limits.max_body
                    ))));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return Ok(body),
                Err(error) => {
                    return Err(Outcome::Fault {
                        sent: true,
                        detail: self.without_token(&chain(&error.without_url())),
                    });
                }
            }
        }
    }

    fn redirect_target(&self, from: &Url, reply: &Reply) -> Result<Url, TrackerError> {
        let target = reply
            .headers
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| from.join(text).ok())
            .ok_or_else(|| unavailable("it redirects to nowhere".into()))?;
        self.same_origin(target)
    }

    /// Refuses an address that would take the token elsewhere.
    pub(super) fn same_origin(&self, url: Url) -> Result<Url, TrackerError> {
        if url.origin() == self.base.origin() {
            Ok(url)
        } else {
            let host = url.host_str().unwrap_or("nowhere").to_owned();
            Err(unavailable(format!(
                "it points to another origin ({host}), where the token does not go"
            )))
        }
    }

    fn judge(&self, reply: Reply) -> Outcome {
        if let Some(limited) = limits::read(reply.status, &reply.headers, &reply.body, Utc::now()) {
            return Outcome::Limited(limited);
        }
        let detail = || self.without_token(&format!("{}: {}", reply.status, reply.message()));
        match reply.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Outcome::Denied(unauthorized(detail()))
            }
            status if status.is_server_error() => Outcome::Fault {
                detail: detail(),
                sent: true,
            },
            _ => Outcome::Reply(Reply {
                body: self.body_without_token(reply.body),
                ..reply
            }),
        }
    }

    fn without_token(&self, text: &str) -> String {
        let token = self.token.expose();
        if token.is_empty() {
            return text.to_owned();
        }
        text.replace(token, "***")
    }

    /// A server that echoes the token must not bring it into an error text by way of a refusal.
    fn body_without_token(&self, body: Vec<u8>) -> Vec<u8> {
        let token = self.token.expose().as_bytes();
        let holds = !token.is_empty() && body.windows(token.len()).any(|part| part == token);
        if holds {
            self.without_token(&String::from_utf8_lossy(&body))
                .into_bytes()
        } else {
            body
        }
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 307 | 308)
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
