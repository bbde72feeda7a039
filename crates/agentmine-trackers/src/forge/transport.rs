//! One request and its reply: headers, redirects, caps, and what the reply means for another try.
//!
//! Guaranteed: the token goes only to the configured origin, and into no error and no log; a reply is
//! read up to a cap.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::TrackerKind;
use agentmine_runtime::config::Secret;
use agentmine_runtime::permit::Permit;
use agentmine_runtime::redact::Redactor;
use agentmine_runtime::tls::{self, Authority, TlsFault};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use url::Url;

use super::attempts::{Fault, RequestLimits};
use super::authorize::{Authorize, Purpose, Renewal};
use super::own_address::own_address;
use super::rate_limit::{Holder, LimitRules, Limited, retry_after};
use super::reply::Reply;
use super::smaller_page::smaller_page;
use crate::error::TrackerError;

const MAX_REDIRECTS: usize = 5;
/// What the owner of a token of GitHub can do for organizations with single sign-on.
pub(crate) const SIGN_ON: &str = "authorize the token for the organization's single sign-on: \"Configure SSO\" beside it in \
    the settings of its account; its permissions need no change";

/// What differs between forges below their endpoints.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Whose errors these are.
    pub(crate) tracker: TrackerKind,
    /// Sent with every request.
    pub(crate) headers: HeaderMap,
    /// Where the token of a request comes from.
    pub(crate) credentials: Arc<dyn Authorize>,
    /// What the operator can do about refused credentials.
    pub(crate) credentials_hint: String,
    /// How rate limits are announced.
    pub(crate) limits: LimitRules,
    /// Path prefixes below the base that have their own rate limit.
    pub(crate) own_buckets: &'static [&'static str],
    /// A certificate authority that is trusted in addition to the system's.
    pub(crate) authority: Option<Authority>,
}

/// One call of an API.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) body: Option<&'a Value>,
    /// Makes the call conditional: an unchanged reply is a 304.
    pub(crate) etag: Option<String>,
    effect: Effect<'a>,
    /// What the token is asked for, where the address does not name it.
    within: Option<String>,
    /// What the body of a successful reply says of its failure.
    fault_in: Option<FaultIn>,
}

/// A failure that a reply reports in its body alone, under a status that says success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// A rate limit, whose end is in the headers.
    Limited,
    /// One that may pass.
    Failed,
}

/// Reads it; `None` if there is none.
pub(crate) type FaultIn = fn(&[u8]) -> Option<BodyFault>;

/// Whether a call changes something on the server.
#[derive(Debug, Clone, Copy)]
enum Effect<'a> {
    None,
    /// Sent only while this holds.
    Write(&'a Permit),
}

impl<'a> Call<'a> {
    /// A GET.
    pub(crate) fn get(url: Url) -> Self {
        Self::new(Method::GET, url, Effect::None)
    }

    /// A POST that only reads: a query.
    pub(crate) fn query(url: Url) -> Self {
        Self::new(Method::POST, url, Effect::None)
    }

    /// Any other call. It is sent only while `permit` holds.
    pub(crate) fn write(method: Method, url: Url, permit: &'a Permit) -> Self {
        Self::new(method, url, Effect::Write(permit))
    }

    fn new(method: Method, url: Url, effect: Effect<'a>) -> Self {
        Self {
            method,
            url,
            body: None,
            etag: None,
            effect,
            within: None,
            fault_in: None,
        }
    }

    /// A successful reply may report a failure in its body.
    pub(crate) fn fault_in(mut self, read: FaultIn) -> Self {
        self.fault_in = Some(read);
        self
    }

    /// Sent with the token for this path below the base, instead of that for its address.
    pub(crate) fn within(mut self, path: String) -> Self {
        self.within = Some(path);
        self
    }

    pub(crate) fn json(mut self, body: &'a Value) -> Self {
        self.body = Some(body);
        self
    }

    /// The same for a smaller page; see [`smaller_page`].
    pub(super) fn with_smaller_page(&self) -> Option<Self> {
        let is_read = self.method == Method::GET;
        let url = smaller_page(&self.url).filter(|_| is_read)?;
        Some(Self {
            url,
            etag: None,
            ..self.clone()
        })
    }
}

/// Whether the server may have acted on a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acted {
    No,
    Maybe,
}

/// What one request came to.
pub(crate) enum Outcome {
    Reply(Reply),
    Limited(Limited),
    /// Nothing was sent: there is no token for it before this time.
    NoToken(DateTime<Utc>),
    /// Another try is of no use.
    Denied(TrackerError),
    /// A reply of which no more than its beginning was read, and why.
    TooLarge(String),
    /// A failure that may pass.
    Failed(Fault, Acted),
}

impl From<TrackerError> for Outcome {
    fn from(error: TrackerError) -> Self {
        Self::Denied(error)
    }
}

/// The HTTP client with its credentials.
#[derive(Debug)]
pub(crate) struct Transport {
    http: reqwest::Client,
    base: Url,
    /// Of the latest token, which a server may repeat.
    redactor: Mutex<Option<(Secret, Redactor)>>,
    dialect: Dialect,
    max_body: usize,
}

impl Transport {
    pub(crate) fn new(
        dialect: Dialect,
        base: &Url,
        limits: RequestLimits,
    ) -> Result<Self, TrackerError> {
        let http = http_client(dialect.tracker, base, dialect.authority.as_ref(), limits)?;
        let mut base = base.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(Self {
            http,
            base,
            redactor: Mutex::default(),
            dialect,
            max_body: limits.max_body,
        })
    }

    /// The base of the API, with a slash at its end.
    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// The HTTP client, which follows no redirect by itself.
    pub(super) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    pub(crate) fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Sends a call once, again where it is redirected to, and once more with another token if the first one was refused:
    /// nothing was done with that.
    pub(crate) async fn exchange(&self, call: &Call<'_>) -> Outcome {
        let mut url = call.url.clone();
        let mut renewal = Renewal::Possible;
        for _ in 0..=MAX_REDIRECTS {
            let (reply, token) = match self.request(call, &url).await {
                Ok(answered) => answered,
                Err(outcome) => return outcome,
            };
            if reply.status == StatusCode::UNAUTHORIZED
                && std::mem::replace(&mut renewal, Renewal::None) == Renewal::Possible
                && self.dialect.credentials.refused(&token).await == Renewal::Possible
            {
                continue;
            }
            if !matches!(reply.status.as_u16(), 301 | 302 | 307 | 308) {
                return self.judge(call, reply);
            }
            // A renamed repository: the same request, to its new address.
            match self.redirect_target(&url, &reply) {
                Ok(next) => url = next,
                Err(error) => return error.into(),
            }
        }
        self.unavailable("it redirects without end").into()
    }

    /// An address that the server names, at the origin that the token belongs to.
    ///
    /// # Errors
    /// As [`own_address`].
    pub(crate) fn at_own_origin(&self, url: Url) -> Result<Url, TrackerError> {
        own_address(&self.base, url).map_err(|detail| self.unavailable(detail))
    }

    pub(crate) fn unavailable(&self, detail: impl Into<String>) -> TrackerError {
        TrackerError::unavailable(self.dialect.tracker, detail)
    }

    /// The reply, and the token that the request was sent with.
    async fn request(&self, call: &Call<'_>, url: &Url) -> Result<(Reply, Secret), Outcome> {
        if let Effect::Write(permit) = call.effect {
            let tracker = self.dialect.tracker;
            permit
                .check()
                .map_err(|lapsed| TrackerError::NotPermitted { tracker, lapsed })?;
        }
        let (token, redactor) = self.token(call).await?;
        let mut bearer =
            HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| {
                self.unavailable("its token has characters that no HTTP header may have")
            })?;
        bearer.set_sensitive(true);
        let mut request = self
            .http
            .request(call.method.clone(), url.clone())
            .headers(self.dialect.headers.clone())
            .header(header::AUTHORIZATION, bearer);
        if let Some(body) = call.body {
            request = request.json(body);
        }
        if let Some(etag) = &call.etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        let response = request.send().await.map_err(|error| match error {
            error if error.is_connect() => failed(error, &redactor, Acted::No),
            error => failed(error, &redactor, Acted::Maybe),
        })?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.body(response, &redactor).await?;
        let reply = Reply {
            tracker: self.dialect.tracker,
            status,
            headers,
            body: body.into(),
            redactor,
        };
        Ok((reply, token))
    }

    /// Whose limits a call counts against.
    pub(super) async fn holder(&self, call: &Call<'_>) -> Result<Holder, TrackerError> {
        self.dialect.credentials.holder(self.path_of(call)).await
    }

    /// What the token of a call is asked for by.
    fn path_of<'c>(&self, call: &'c Call<'_>) -> &'c str {
        match &call.within {
            Some(path) => path,
            None => self.path_below_base(&call.url),
        }
    }

    /// The path of an address from the base of the API on; nothing if it is elsewhere.
    pub(super) fn path_below_base<'u>(&self, url: &'u Url) -> &'u str {
        let path = url.path().strip_prefix(self.base.path());
        path.unwrap_or_default()
    }

    /// The token of a call, and what removes it from texts.
    pub(super) async fn token(&self, call: &Call<'_>) -> Result<(Secret, Redactor), Outcome> {
        let purpose = match call.effect {
            Effect::None => Purpose::Read,
            Effect::Write(_) => Purpose::Write,
        };
        let asked = self.dialect.credentials.token(self.path_of(call), purpose);
        let token = asked.await.map_err(|error| match error {
            TrackerError::Unavailable { detail, until, .. } => {
                Outcome::Failed(Fault { detail, until }, Acted::No)
            }
            TrackerError::RateLimited { until, .. } => Outcome::NoToken(until),
            error => Outcome::Denied(error),
        })?;
        let mut known = self.redactor.lock().unwrap_or_else(PoisonError::into_inner);
        let redactor = match &*known {
            Some((of, redactor)) if of.expose() == token.expose() => redactor.clone(),
            Some(_) | None => {
                let redactor = Redactor::at_least(1, [token.clone()]);
                *known = Some((token.clone(), redactor.clone()));
                redactor
            }
        };
        Ok((token, redactor))
    }

    async fn body(
        &self,
        mut response: reqwest::Response,
        redactor: &Redactor,
    ) -> Result<Vec<u8>, Outcome> {
        let mut body = Vec::new();
        let read = |error| failed(error, redactor, Acted::Maybe);
        while let Some(chunk) = response.chunk().await.map_err(read)? {
            if body.len() + chunk.len() > self.max_body {
                let detail = format!("its reply is larger than {} bytes", self.max_body);
                return Err(Outcome::TooLarge(detail));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn redirect_target(&self, from: &Url, reply: &Reply) -> Result<Url, TrackerError> {
        let target = reply
            .headers
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| from.join(text).ok())
            .ok_or_else(|| self.unavailable("it redirects to no address"))?;
        let host = target.host_str().unwrap_or_default().to_owned();
        match self.at_own_origin(target)? {
            // It wants another scheme or host, not another path.
            own if own == *from => Err(self.unavailable(format!(
                "it redirects to the same path of another origin ({host}); the token is not sent there. hint: set `api_url` to that origin"
            ))),
            own => Ok(own),
        }
    }

    fn judge(&self, call: &Call<'_>, reply: Reply) -> Outcome {
        let (now, limits) = (Utc::now(), &self.dialect.limits);
        if let Some(limited) = limits.read(reply.status, &reply.headers, &reply.body, now) {
            return Outcome::Limited(limited);
        }
        let detail = || {
            let needs = accepted_permissions(&reply.headers);
            format!("{}: {}{needs}", reply.status, reply.message())
        };
        match reply.status {
            StatusCode::UNAUTHORIZED => TrackerError::Unauthorized {
                tracker: self.dialect.tracker,
                detail: detail(),
                hint: self.dialect.credentials_hint.clone(),
            }
            .into(),
            StatusCode::FORBIDDEN => TrackerError::Forbidden {
                tracker: self.dialect.tracker,
                detail: detail(),
                hint: match wants_sign_on(&reply.headers) {
                    true => SIGN_ON.to_owned(),
                    false => self.dialect.credentials_hint.clone(),
                },
            }
            .into(),
            status if status.is_server_error() => failed_by_itself(detail(), &reply, now),
            status => {
                let fault_in = call.fault_in.filter(|_| status.is_success());
                match fault_in.and_then(|read| read(&reply.body)) {
                    Some(BodyFault::Limited) => {
                        Outcome::Limited(limits.announced(&reply.headers, now))
                    }
                    Some(BodyFault::Failed) => failed_by_itself(detail(), &reply, now),
                    None => Outcome::Reply(self.redacted(reply)),
                }
            }
        }
    }

    /// A server that echoes the token must not bring it into an error text by way of a refusal.
    fn redacted(&self, reply: Reply) -> Reply {
        let redacted = match reply.redactor.redact_bytes(&reply.body) {
            Cow::Borrowed(_) => None,
            Cow::Owned(body) => Some(body.into()),
        };
        match redacted {
            Some(body) => Reply { body, ..reply },
            None => reply,
        }
    }
}

/// The HTTP client of a forge. It follows no redirect by itself.
pub(crate) fn http_client(
    tracker: TrackerKind,
    base: &Url,
    authority: Option<&Authority>,
    limits: RequestLimits,
) -> Result<reqwest::Client, TrackerError> {
    let broken = |error: &dyn std::error::Error| {
        let detail = format!("cannot create an HTTP client: {error}");
        TrackerError::unavailable(tracker, detail)
    };
    let config =
        agentmine_runtime::tls::http_config(base, authority).map_err(|error| broken(&error))?;
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .user_agent(concat!("agentmine/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(Duration::from_secs(10).min(limits.timeout))
        .timeout(limits.timeout)
        .build()
        .map_err(|error| broken(&error))
}

/// A failure that the server reports of itself.
fn failed_by_itself(detail: String, reply: &Reply, now: DateTime<Utc>) -> Outcome {
    let until = retry_after(&reply.headers, now);
    Outcome::Failed(Fault { detail, until }, Acted::Maybe)
}

fn failed(error: reqwest::Error, redactor: &Redactor, acted: Acted) -> Outcome {
    let detail = redactor.redact(explained(error));
    Outcome::Failed(Fault::new(detail), acted)
}

/// An error of a request with its causes on one line, and with what to do about a fault of TLS.
pub(crate) fn explained(error: reqwest::Error) -> String {
    let error = error.without_url();
    let text = chain(&error);
    let Some(fault) = tls::fault(&error) else {
        return text;
    };
    let hint = match fault {
        TlsFault::Untrusted => {
            "name a PEM file with the authority that issued the server's certificate in `ca_file` of this tracker"
        }
        TlsFault::WrongName => {
            "the host in `api_url` must be a name that the server's certificate is for"
        }
        TlsFault::OutOfDate => {
            "renew the server's certificate, and check the clock of this machine"
        }
        TlsFault::Plain => "the server seems to expect http:// in `api_url`, not https://",
    };
    format!("{text}. hint: {hint}")
}

/// Which permissions of the token would allow what was refused, where GitHub names them:
/// `issues=write; pull_requests=write` are alternatives.
fn accepted_permissions(headers: &HeaderMap) -> String {
    let named = headers.get("x-accepted-github-permissions");
    let named = named.and_then(|value| value.to_str().ok());
    let fine = |c: char| c.is_ascii_alphanumeric() || "_=;, ".contains(c);
    match named.map(str::trim) {
        Some(named) if !named.is_empty() && named.len() <= 200 && named.chars().all(fine) => {
            format!(" (it needs the permission {})", named.replace(';', " or"))
        }
        Some(_) | None => String::new(),
    }
}

/// Whether a token is refused only because its owner has not authorized it for the single sign-on of an organization of GitHub:
/// `required; url=…`. The address is that of one person and lasts for an hour, so it is not shown.
fn wants_sign_on(headers: &HeaderMap) -> bool {
    let said = headers.get("x-github-sso");
    said.is_some_and(|said| said.as_bytes().starts_with(b"required"))
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
