//! The git half of the gateway: smart HTTP for one repository.
//!
//! A fetch is forwarded, or answered from a [`Mirror`]. A push goes through the [`PushGate`]; a read-only session has none, and every
//! push is refused.

use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::config::PushPolicy;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::GatewayError;
use crate::config::{BranchBefore, GitAccess, Rewrite};
use crate::events::Ledger;
use crate::facts::listing;
use crate::http::{Body, full, text};
use crate::mirror::refs::CloneRefs;
use crate::mirror::{Answer, Mirror, Mirrors};
use crate::upstream::{Encoding, MAX_FETCH_REQUEST, ProtocolVersion, Remote, Service, gunzip};
use push_gate::PushGate;
use respond::{answer, encoding, failed, forwarded, has_type};

mod content;
mod fresh;
mod fsck;
mod identities;
mod message;
mod objects;
mod paths;
mod pattern;
mod push_gate;
mod quarantine;
mod respond;
mod secrets;
mod spool;

pub use message::{not_obeyed, without_skips};
pub use push_gate::branch_in_the_way;
pub use secrets::without_secrets;

#[cfg(test)]
mod tests;

/// Time limit for receiving the request of a fetch.
const FETCH_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the host's list of the refs of a clone.
const LIST_LIMIT: Duration = Duration::from_secs(20);
/// Fetches served at once; more wait.
const MAX_FETCHES: usize = 8;
/// Why a read-only session refuses a push.
const READ_ONLY: &str = "this session may not push";

/// The git half of one session's gateway.
pub(crate) struct GitProxy {
    remote: Arc<Remote>,
    mirror: Option<Arc<Mirror>>,
    /// Path prefix with the nonce, as `/<nonce>/repo.git`.
    prefix: String,
    ledger: Arc<Ledger>,
    fetches: Arc<Semaphore>,
    /// `None` in a read-only session.
    push: Option<Arc<PushGate>>,
}

impl GitProxy {
    /// The proxy, if there is a repository.
    pub(crate) fn new(
        access: GitAccess,
        policy: PushPolicy,
        mirrors: Option<&Mirrors>,
        ledger: Arc<Ledger>,
    ) -> Result<Option<Self>, GatewayError> {
        let (remote, push) = match access {
            GitAccess::None => return Ok(None),
            GitAccess::ReadOnly(upstream) => (Arc::new(Remote::new(upstream)?), None),
            GitAccess::ReadWrite {
                upstream,
                branch,
                max_push_bytes,
                fence,
            } => {
                let remote = Arc::new(Remote::new(upstream)?);
                let gate = PushGate::new(
                    remote.clone(),
                    branch,
                    max_push_bytes,
                    policy,
                    fence,
                    ledger.clone(),
                )?;
                (remote, Some(Arc::new(gate)))
            }
        };
        Ok(Some(Self {
            mirror: mirrors.and_then(|mirrors| Mirror::of(mirrors, &remote)),
            remote,
            // Other users of this machine can reach the port of the weak jail, but cannot guess this.
            prefix: format!("/{:032x}/repo.git", rand::random::<u128>()),
            ledger,
            fetches: Arc::new(Semaphore::new(MAX_FETCHES)),
            push,
        }))
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// See [`crate::Gateway::clone_refs`].
    pub(crate) async fn clone_refs(&self, branch: &str) -> Option<CloneRefs> {
        let prefixes = CloneRefs::prefixes(branch);
        let prefixes = prefixes.each_ref().map(String::as_str);
        let request = listing::request_with_targets(&prefixes).into();
        let listed = timeout(LIST_LIMIT, self.remote.list_refs(request)).await;
        CloneRefs::listed(&listed.ok()?.ok()?, branch)
    }

    /// Waits for a push that is being checked or sent, then refuses all that follow.
    pub(crate) async fn seal(&self) {
        if let Some(push) = &self.push {
            push.seal().await;
        }
    }

    pub(crate) async fn try_credentials(&self) {
        if let Some(push) = &self.push {
            push.try_credentials().await;
        }
    }

    pub(crate) async fn branch_was(&self, before: BranchBefore) {
        if let Some(push) = &self.push {
            push.branch_was(before).await;
        }
    }

    pub(crate) async fn require_start(&self, commit: &str) {
        if let Some(push) = &self.push {
            push.require_start(commit).await;
        }
    }

    pub(crate) async fn allow_rewrite(&self, rewrite: Rewrite) {
        if let Some(push) = &self.push {
            push.allow_rewrite(rewrite).await;
        }
    }

    pub(crate) async fn rewritable(&self) -> Option<String> {
        match &self.push {
            Some(push) => push.rewritable().await,
            None => None,
        }
    }

    pub(crate) fn unseal(&self) {
        if let Some(push) = &self.push {
            push.unseal();
        }
    }

    /// Serves one request of the sandbox.
    pub(crate) async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let uri = request.uri();
        let Some(path) = uri.path().strip_prefix(self.prefix.as_str()) else {
            return text(StatusCode::NOT_FOUND, "there is no such repository");
        };
        let version = request
            .headers()
            .get("git-protocol")
            .and_then(|value| ProtocolVersion::from_header(value.as_bytes()));
        match (request.method(), path, uri.query()) {
            (&Method::GET, "/info/refs", Some("service=git-upload-pack")) => {
                count("advertise_fetch");
                self.advertise_fetch(version).await
            }
            (&Method::GET, "/info/refs", Some("service=git-receive-pack")) => {
                count("advertise_push");
                self.advertise_push().await
            }
            (&Method::GET, "/info/refs", _) => text(
                StatusCode::FORBIDDEN,
                "only git's smart HTTP protocol is supported",
            ),
            (&Method::POST, "/git-upload-pack", None) => {
                count("fetch");
                self.fetch(request, version).await
            }
            (&Method::POST, "/git-receive-pack", None) => {
                count("push");
                match &self.push {
                    Some(push) => push.clone().receive(request).await,
                    None => self.read_only(),
                }
            }
            (_, path, _) => {
                if path.contains("receive-pack") {
                    self.ledger
                        .push_refused("the request is not that of a push");
                }
                text(StatusCode::NOT_FOUND, "only fetch and push are supported")
            }
        }
    }

    async fn advertise_fetch(&self, version: Option<ProtocolVersion>) -> Response<Body> {
        match self.remote.advertise_fetch(version).await {
            Ok(body) => {
                let content_type = Service::UploadPack.advertisement_type();
                forwarded(self.ledger.clone(), &content_type, body, ())
            }
            Err(error) => failed(&self.ledger, &error),
        }
    }

    async fn advertise_push(&self) -> Response<Body> {
        let Some(push) = &self.push else {
            return self.read_only();
        };
        push.begins();
        match self.remote.advertise_push().await {
            Ok(refs) => {
                self.ledger.host_answered();
                answer(
                    &Service::ReceivePack.advertisement_type(),
                    full(refs.rewritten(push.start().await.as_deref())),
                )
            }
            Err(error) => failed(&self.ledger, &error),
        }
    }

    fn read_only(&self) -> Response<Body> {
        self.ledger.push_refused(READ_ONLY);
        text(StatusCode::FORBIDDEN, READ_ONLY)
    }

    async fn fetch(
        &self,
        request: Request<Incoming>,
        version: Option<ProtocolVersion>,
    ) -> Response<Body> {
        let service = Service::UploadPack;
        let encoding = match encoding(request.headers()) {
            Ok(encoding) => encoding,
            Err(refusal) => return *refusal,
        };
        if !has_type(request.headers(), &service.request_type()) {
            return text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the content type is not that of a fetch",
            );
        }
        // Held until the response has been sent: each fetch is a process or a download.
        let Ok(permit) = self.fetches.clone().acquire_owned().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the gateway is closed");
        };
        let body = Limited::new(request.into_body(), MAX_FETCH_REQUEST).collect();
        let body = match tokio::time::timeout(FETCH_REQUEST_TIMEOUT, body).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return text(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large"),
            Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
        };
        let body = body.to_bytes();
        let tend = match self.mirrored(&body, encoding, version).await {
            Answer::Mirror(body, tend) => {
                let held = (permit, tend);
                return forwarded(self.ledger.clone(), &service.result_type(), body, held);
            }
            Answer::Host(tend) => tend,
        };
        match self.remote.upload_pack(body, encoding, version).await {
            Ok(body) => {
                let held = (permit, tend);
                forwarded(self.ledger.clone(), &service.result_type(), body, held)
            }
            Err(error) => failed(&self.ledger, &error),
        }
    }

    async fn mirrored(
        &self,
        body: &Bytes,
        encoding: Encoding,
        version: Option<ProtocolVersion>,
    ) -> Answer {
        let (Some(mirror), Some(ProtocolVersion::V2)) = (&self.mirror, version) else {
            return Answer::Host(None);
        };
        let plain = match encoding {
            Encoding::Identity => Ok(body.clone()),
            Encoding::Gzip => gunzip(body),
        };
        match plain {
            Ok(plain) => mirror.answer(&plain).await,
            Err(_) => Answer::Host(None),
        }
    }
}

fn count(request: &'static str) {
    metrics::counter!("agentmine_gateway_git_requests_total", "request" => request).increment(1);
}
