//! The git half of the gateway: smart HTTP for one repository and one branch.
//!
//! Fetching is passed through. A push is read whole, then judged, then sent upstream from the file
//! it was read into; the order of the checks is in [`GitProxy::decide`]. A push that has been read
//! is finished even if the sandbox goes away meanwhile, so that its outcome is always recorded.
//! One push at a time: what the branch held and what it holds after are known to the next one. The
//! next one is not read before: a sandbox fills one file at the most. A sealed gateway refuses every
//! push; sealing waits for a push that is judged or sent, but never for one that is being read.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use tracing::Instrument;

use crate::events::Ledger;
use crate::http::{Body, full, text, watched};
use crate::{Fence, Upstream};
use push::{Command, Head, is_zero};
use spool::Spool;
use upstream::{Remote, Service, UpstreamError, Version};

pub(crate) mod command;
mod pktline;
pub(crate) mod push;
mod quarantine;
mod spool;
pub(crate) mod upstream;
mod upstream_http;
mod upstream_path;

#[cfg(test)]
mod tests;

/// Bytes of the request of a fetch, packed and unpacked.
const MAX_FETCH_REQUEST: usize = 2 * 1024 * 1024;
/// Time for the request of a fetch to come.
const FETCH_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Fetches answered at once; more wait.
const MAX_FETCHES: usize = 8;
/// Bytes of the head of a push.
const MAX_PUSH_HEAD: usize = 8 * 1024 * 1024;
/// Time between two pieces of an answer to a fetch.
const ANSWER_IDLE: Duration = Duration::from_secs(330);
/// What a sealed gateway says.
const SEALED: &str = "nothing is pushed while the result is measured";

/// The git half of one session's gateway.
pub(crate) struct GitProxy {
    remote: Arc<Remote>,
    /// Path prefix with the nonce, as `/<nonce>/repo.git`.
    prefix: String,
    branch: String,
    refname: String,
    max_push_bytes: u64,
    fence: Arc<dyn Fence>,
    ledger: Arc<Ledger>,
    /// Held by the push that is judged and sent.
    pinned: Arc<Mutex<Pinned>>,
    /// Set under the lock of `pinned`.
    sealed: AtomicBool,
    /// Held from before a push is read until it is done with.
    spools: Arc<Semaphore>,
    fetches: Arc<Semaphore>,
}

/// What this gateway knows of the branch from its own pushes.
#[derive(Debug, Default)]
struct Pinned {
    /// The last commit that upstream accepted from here.
    head: Option<String>,
    /// A push whose answer was lost: upstream may hold this commit.
    in_doubt: Option<InDoubt>,
}

#[derive(Debug, Clone)]
struct InDoubt {
    old: String,
    new: String,
    bytes: u64,
}

impl GitProxy {
    pub(crate) fn new(
        upstream: Upstream,
        branch: String,
        max_push_bytes: u64,
        fence: Arc<dyn Fence>,
        ledger: Arc<Ledger>,
    ) -> anyhow::Result<Self> {
        let refname = crate::facts::branch_ref(&branch)?;
        // Other users of this machine can reach the port of the weak jail, but not guess this.
        let prefix = format!("/{:032x}/repo.git", rand::random::<u128>());
        Ok(Self {
            remote: Arc::new(Remote::new(upstream)?),
            prefix,
            branch,
            refname,
            max_push_bytes,
            fence,
            ledger,
            pinned: Arc::default(),
            sealed: AtomicBool::new(false),
            spools: Arc::new(Semaphore::new(1)),
            fetches: Arc::new(Semaphore::new(MAX_FETCHES)),
        })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Waits for a push that is judged or sent, then refuses all that follow.
    pub(crate) async fn seal(&self) {
        let _no_push = self.pinned.lock().await;
        self.sealed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn unseal(&self) {
        self.sealed.store(false, Ordering::SeqCst);
    }

    fn check_seal(&self) -> Result<(), Refusal> {
        if self.sealed.load(Ordering::SeqCst) {
            return Err(SEALED.to_owned().into());
        }
        Ok(())
    }

    /// Answers one request of the sandbox.
    pub(crate) async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let uri = request.uri();
        let Some(path) = uri.path().strip_prefix(self.prefix.as_str()) else {
            return text(StatusCode::NOT_FOUND, "no such repository here");
        };
        let version = request
            .headers()
            .get("git-protocol")
            .and_then(|value| Version::of(value.as_bytes()));
        match (request.method(), path, uri.query()) {
            (&Method::GET, "/info/refs", Some("service=git-upload-pack")) => {
                count("advertise_fetch");
                self.advertise_fetch(version).await
            }
            (&Method::GET, "/info/refs", Some("service=git-receive-pack")) => {
                count("advertise_push");
                self.advertise_push().await
            }
            (&Method::GET, "/info/refs", _) => {
                text(StatusCode::FORBIDDEN, "only smart HTTP is spoken here")
            }
            (&Method::POST, "/git-upload-pack", None) => {
                count("fetch");
                self.fetch(request, version).await
            }
            (&Method::POST, "/git-receive-pack", None) => {
                count("push");
                self.receive(request).await
            }
            _ => text(StatusCode::NOT_FOUND, "nothing here but fetch and push"),
        }
    }

    async fn advertise_fetch(&self, version: Option<Version>) -> Response<Body> {
        match self.remote.advertise_fetch(version).await {
            Ok(body) => passed_on(Service::UploadPack.advertisement_type(), body, ()),
            Err(error) => self.failed(&error),
        }
    }

    async fn advertise_push(&self) -> Response<Body> {
        match self.remote.advertise_push().await {
            Ok(refs) => answer(
                &Service::ReceivePack.advertisement_type(),
                full(refs.rewritten()),
            ),
            Err(error) => self.failed(&error),
        }
    }

    async fn fetch(&self, request: Request<Incoming>, version: Option<Version>) -> Response<Body> {
        let service = Service::UploadPack;
        let gzip = match encoding(request.headers()) {
            Ok(gzip) => gzip,
            Err(refusal) => return *refusal,
        };
        if !has_type(request.headers(), &service.request_type()) {
            return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not a fetch");
        }
        // Held until the answer has gone out: each fetch is a process or a download.
        let Ok(permit) = self.fetches.clone().acquire_owned().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "no more fetches");
        };
        let body = Limited::new(request.into_body(), MAX_FETCH_REQUEST).collect();
        let body = match tokio::time::timeout(FETCH_REQUEST_TIMEOUT, body).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return text(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long"),
            Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the request is too slow"),
        };
        match self
            .remote
            .upload_pack(body.to_bytes(), gzip, version)
            .await
        {
            Ok(body) => passed_on(service.result_type(), body, permit),
            Err(error) => self.failed(&error),
        }
    }

    async fn receive(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        if !matches!(encoding(request.headers()), Ok(false)) {
            return text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a push may not be compressed as a whole",
            );
        }
        if !has_type(request.headers(), &Service::ReceivePack.request_type()) {
            return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not a push");
        }
        let Ok(permit) = self.spools.clone().acquire_owned().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "no more pushes");
        };
        let spool = match Spool::read(request.into_body(), self.max_push_bytes).await {
            Ok(spool) => spool,
            Err(error) => {
                tracing::debug!(%error, "a push was not read to its end");
                self.ledger.push_refused("the push could not be read");
                return text(StatusCode::BAD_REQUEST, "the push could not be read");
            }
        };
        // A task of its own: the sandbox closing its stream must not leave the outcome unrecorded.
        let push = async move {
            let _permit = permit;
            let pinned = self.pinned.clone().lock_owned().await;
            self.push(&spool, pinned).await
        };
        match tokio::spawn(push.in_current_span()).await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!(%error, "a push panicked");
                text(StatusCode::INTERNAL_SERVER_ERROR, "the push failed")
            }
        }
    }

    async fn push(&self, spool: &Spool, mut pinned: OwnedMutexGuard<Pinned>) -> Response<Body> {
        let result_type = Service::ReceivePack.result_type();
        let start = spool.start(MAX_PUSH_HEAD).unwrap_or_default();
        let head = match push::Request::parse(&start) {
            Ok(push::Request::Probe) => return answer(&result_type, full(Bytes::new())),
            Ok(push::Request::Push(head)) => head,
            Err(error) => {
                self.ledger.push_refused(&error.to_string());
                return text(StatusCode::BAD_REQUEST, "the push cannot be read");
            }
        };
        drop(start);
        match self.decide(spool, &head, &mut pinned).await {
            Ok(report) => answer(&result_type, full(report)),
            Err(Refusal { reason, report }) => {
                self.ledger.push_refused(&reason);
                match report.or_else(|| head.refusal(&reason).map(Bytes::from)) {
                    Some(report) => answer(&result_type, full(report)),
                    None => text(StatusCode::FORBIDDEN, &reason),
                }
            }
        }
    }

    /// Judges a push and, if nothing speaks against it, sends it upstream.
    async fn decide(
        &self,
        spool: &Spool,
        head: &Head,
        pinned: &mut Pinned,
    ) -> Result<Bytes, Refusal> {
        self.check_seal()?;
        let command = head.only_command(&self.refname)?;
        if spool.over {
            let limit = self.max_push_bytes;
            return Err(format!("the push is larger than the limit of {limit} bytes").into());
        }
        self.check_old(command, head, pinned).await?;
        let checked = quarantine::check(self.remote.clone(), spool, head, command).await?;
        self.fence.check().await.map_err(|reason| {
            Refusal::from(format!("this session may no longer push: {reason}"))
        })?;
        self.forward(spool, head, command, pinned, checked).await
    }

    /// The push must start from what upstream has now. What a person pushed in between is then part
    /// of it or the push is refused further on as a rewind; a branch that a person has removed is
    /// not brought back.
    async fn check_old(
        &self,
        command: &Command,
        head: &Head,
        pinned: &mut Pinned,
    ) -> Result<(), Refusal> {
        let refs = self
            .remote
            .advertise_push()
            .await
            .map_err(|e| self.refused(&e))?;
        if refs.object_format() != head.object_format() {
            return Err("the object format is not the repository's"
                .to_owned()
                .into());
        }
        let now = refs.id(&self.refname);
        if let Some(doubt) = pinned.in_doubt.take()
            && now == Some(doubt.new.as_str())
        {
            self.accepted(&doubt, pinned);
        }
        if pinned.head.is_some() && now.is_none() {
            return Err("the branch was removed by somebody else".to_owned().into());
        }
        let expected = (!is_zero(&command.old)).then_some(command.old.as_str());
        if now != expected {
            return Err("the branch is not where this push expects it; fetch first"
                .to_owned()
                .into());
        }
        Ok(())
    }

    async fn forward(
        &self,
        spool: &Spool,
        head: &Head,
        command: &Command,
        pinned: &mut Pinned,
        _checked: quarantine::Checked,
    ) -> Result<Bytes, Refusal> {
        self.check_seal()?;
        let attempt = InDoubt {
            old: command.old.clone(),
            new: command.new.clone(),
            bytes: spool.length,
        };
        let file = spool.from(0).map_err(|error| {
            tracing::warn!(%error, "a push cannot be read back");
            Refusal::from("the push could not be read back".to_owned())
        })?;
        let report = match self.remote.receive_pack(file, spool.length).await {
            Ok(report) => report,
            Err(error) => {
                if matches!(error, UpstreamError::Network(_)) {
                    pinned.in_doubt = Some(attempt);
                }
                return Err(self.refused(&error));
            }
        };
        match head.verdict(&report, &self.refname) {
            Ok(()) => {
                self.accepted(&attempt, pinned);
                Ok(report)
            }
            Err(reason) => Err(Refusal {
                reason,
                report: Some(report),
            }),
        }
    }

    fn accepted(&self, push: &InDoubt, pinned: &mut Pinned) {
        pinned.head = Some(push.new.clone());
        self.ledger
            .pushed(&self.branch, &push.old, &push.new, push.bytes);
    }

    /// Records refused credentials.
    fn note(&self, error: &UpstreamError) {
        match error {
            UpstreamError::Auth(status) => self.ledger.auth(*status),
            UpstreamError::NotFound | UpstreamError::Network(_) => {}
        }
    }

    fn refused(&self, error: &UpstreamError) -> Refusal {
        self.note(error);
        Refusal::from(error.to_string())
    }

    /// Upstream's failure as git shows it. Never a 401, which would make git ask for a password.
    fn failed(&self, error: &UpstreamError) -> Response<Body> {
        self.note(error);
        let status = match error {
            UpstreamError::Auth(_) => StatusCode::FORBIDDEN,
            UpstreamError::NotFound => StatusCode::NOT_FOUND,
            UpstreamError::Network(_) => StatusCode::BAD_GATEWAY,
        };
        text(status, &error.to_string())
    }
}

/// Why a push did not happen, and upstream's own words if it was upstream that refused.
struct Refusal {
    reason: String,
    report: Option<Bytes>,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self {
            reason,
            report: None,
        }
    }
}

fn count(request: &'static str) {
    metrics::counter!("agentmine_gateway_git_requests_total", "request" => request).increment(1);
}

/// Whether the body is compressed with gzip; anything else is refused.
fn encoding(headers: &HeaderMap) -> Result<bool, Box<Response<Body>>> {
    match headers
        .get(header::CONTENT_ENCODING)
        .map(HeaderValue::as_bytes)
    {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip" | b"x-gzip") => Ok(true),
        Some(_) => Err(Box::new(text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unknown content encoding",
        ))),
    }
}

fn has_type(headers: &HeaderMap, expected: &str) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes() == expected.as_bytes())
}

fn answer(content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// `held` is dropped when the body has ended.
fn passed_on(content_type: String, body: Body, held: impl Send + 'static) -> Response<Body> {
    let counter = metrics::counter!("agentmine_gateway_git_bytes_total", "direction" => "fetched");
    answer(&content_type, watched(body, ANSWER_IDLE, counter, held))
}

/// Unpacks the request of a fetch, to at most [`MAX_FETCH_REQUEST`] bytes.
fn gunzip(body: &[u8]) -> Result<Bytes, UpstreamError> {
    let unreadable = || UpstreamError::Network("the request cannot be unpacked".into());
    let mut out = Vec::new();
    let limit = MAX_FETCH_REQUEST as u64;
    flate2::read::GzDecoder::new(body)
        .take(limit + 1)
        .read_to_end(&mut out)
        .map_err(|_| unreadable())?;
    if out.len() as u64 > limit {
        return Err(unreadable());
    }
    Ok(out.into())
}
