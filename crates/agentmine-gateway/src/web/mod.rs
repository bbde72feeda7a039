//! The web half of the gateway: a proxy that decides by policy for each request.
//!
//! The name is checked first, then every address it resolves to, and the connection goes to the checked
//! address, or through the operator's proxy. In a tunnel the TLS ClientHello must name the host that was
//! requested. Whether the server at that address is that host is up to its certificate, which the client in
//! the sandbox verifies or not.
//!
//! Package registries are only read, see [`registry`]: their TLS ends here, with a certificate authority of the
//! session. Other hosts' TLS is not read.

use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, Request, Response, StatusCode};
use agentmine_runtime::config::Network;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use crate::GatewayError;
use crate::egress::{AllowedBy, BlockedBy};
use crate::events::Ledger;
use crate::http::{self, Body, Ended, full, text};
use crate::stream::GatewayStream;
use dial::{DialError, Dialer};
use forward::forward;
use intercept::{Interceptor, Reading, read_plain};
use policy::{Access, Grant, Policy, Refused};
use registry::{ReadOnly, Registries};
use rustls::RootCertStore;
use target::Target;
use tunnel::{carry, client_hello};

mod address;
mod authority;
mod dial;
mod forward;
mod host;
mod intercept;
mod outbound_proxy;
mod policy;
mod registry;
mod sni;
mod target;
mod traffic;
mod tunnel;

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod registry_tests;
#[cfg(test)]
mod tests;

/// Time limit for the TLS ClientHello after CONNECT.
const HELLO_TIMEOUT: Duration = Duration::from_secs(15);

/// The web half of one session's gateway.
pub(crate) struct WebProxy {
    policy: Policy,
    registries: Registries,
    /// Only where there are registries.
    interceptor: Option<Arc<Interceptor>>,
    ledger: Arc<Ledger>,
    dialer: Dialer,
}

impl WebProxy {
    /// Registries are verified as the worker's system is configured (`SSL_CERT_FILE` overrides).
    pub(crate) fn new(network: &Network, ledger: Arc<Ledger>) -> Result<Self, GatewayError> {
        Self::with_roots(network, ledger, || {
            // A registry without TLS needs none; the others cannot be verified without.
            let system = agentmine_runtime::tls::system_authorities();
            system.unwrap_or_else(|_| Arc::new(RootCertStore::empty()))
        })
    }

    fn with_roots(
        network: &Network,
        ledger: Arc<Ledger>,
        roots: impl FnOnce() -> Arc<RootCertStore>,
    ) -> Result<Self, GatewayError> {
        let registries = Registries::new(network)?;
        let interceptor = match registries.is_empty() {
            true => None,
            false => Some(Arc::new(Interceptor::new(roots())?)),
        };
        Ok(Self {
            policy: Policy::new(network)?,
            registries,
            interceptor,
            ledger,
            dialer: Dialer::new(network)?,
        })
    }

    /// The certificate of the session's authority as PEM, where registries are read.
    pub(crate) fn authority(&self) -> Option<String> {
        self.interceptor
            .as_ref()
            .map(|interceptor| interceptor.pem())
    }

    /// Serves one connection of the sandbox. Each request on it is decided separately.
    /// `permit` is held until a tunnel on it has ended too.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        stream: impl GatewayStream,
        permit: OwnedSemaphorePermit,
    ) {
        let permit = Arc::new(permit);
        let handle = |request| self.clone().handle(request, permit.clone());
        if http::serve(stream, handle).await == Ended::Unreadable {
            let reason = "not a valid HTTP request";
            self.ledger.web_blocked("?", 0, BlockedBy::Request, reason);
        }
    }

    async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        let access = if request.method() == Method::CONNECT {
            Access::Tunnel
        } else {
            Access::Plain
        };
        let target = match Target::of(request.uri(), access) {
            Ok(target) => target,
            Err(reason) => {
                let host = request.uri().host().unwrap_or("?");
                let port = request.uri().port_u16().unwrap_or(0);
                return self.blocked(host, port, BlockedBy::Request, reason);
            }
        };
        let grant = match self.policy.decide(&target.host, target.port, access) {
            Ok(grant) => grant,
            Err(Refused { by, reason }) => {
                return self.blocked(&target.host.to_string(), target.port, by, reason);
            }
        };
        let registry = self.registries.of(&target, access, grant);
        let reading = match (&registry, access) {
            (Some(rules), Access::Plain) => match rules.rewritten(&request, &target, 80) {
                Ok(reading) => Some(reading),
                Err(refused) => {
                    let host = target.host.to_string();
                    let by = BlockedBy::Registry;
                    self.ledger
                        .web_blocked(&host, target.port, by, refused.reason);
                    return refused.response();
                }
            },
            (Some(_), Access::Tunnel) | (None, _) => None,
        };
        let allowed_by = match registry {
            Some(_) => AllowedBy::Registry,
            None => self.policy.allowed_by(grant),
        };
        let upstream = match self.dialer.dial(&target.host, target.port, grant).await {
            Ok(upstream) => upstream,
            Err(DialError::Blocked(reason)) => {
                let host = target.host.to_string();
                return self.blocked(&host, target.port, BlockedBy::Address, reason);
            }
            Err(DialError::Unreachable(reason)) => {
                self.allowed(&target, allowed_by);
                let host = target.host.to_string();
                self.ledger.web_unreachable(&host, target.port, reason);
                return text(StatusCode::BAD_GATEWAY, reason);
            }
        };
        match (access, registry) {
            (Access::Tunnel, Some(rules)) => {
                self.read(request, upstream, (target, grant, rules), permit)
            }
            (Access::Tunnel, None) => self.tunnel(request, upstream, target, grant, permit),
            (Access::Plain, _) => {
                self.allowed(&target, allowed_by);
                match reading {
                    Some(reading) => read_plain(&reading, upstream).await,
                    None => forward(request, upstream, &target).await,
                }
            }
        }
    }

    /// Answers CONNECT to a registry, and judges each request from then on.
    fn read(
        &self,
        request: Request<Incoming>,
        upstream: TcpStream,
        (target, grant, rules): (Target, Grant, ReadOnly),
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        let Some(interceptor) = &self.interceptor else {
            return text(StatusCode::BAD_GATEWAY, "registries cannot be read");
        };
        let reading = Reading {
            interceptor: Arc::clone(interceptor),
            ledger: Arc::clone(&self.ledger),
            target,
            grant,
            rules,
            dialer: self.dialer.clone(),
        };
        let serve = async move {
            let _permit = permit;
            if let Ok(upgraded) = hyper::upgrade::on(request).await {
                reading.serve(TokioIo::new(upgraded), upstream).await;
            }
        };
        tokio::spawn(serve.in_current_span());
        Response::new(full(bytes::Bytes::new()))
    }

    /// Answers CONNECT and copies bytes from then on.
    fn tunnel(
        self: Arc<Self>,
        request: Request<Incoming>,
        upstream: TcpStream,
        target: Target,
        grant: Grant,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        let hidden = self.policy.hidden_names();
        let carry = async move {
            let _permit = permit;
            let Ok(upgraded) = hyper::upgrade::on(request).await else {
                return;
            };
            let mut client = TokioIo::new(upgraded);
            let first = match grant {
                Grant::Private => Vec::new(),
                Grant::Public => {
                    match client_hello(&mut client, &target.host, hidden, HELLO_TIMEOUT).await {
                        Ok(bytes) => bytes,
                        Err(reason) => {
                            let host = target.host.to_string();
                            let by = BlockedBy::Tls;
                            self.ledger.web_blocked(&host, target.port, by, reason);
                            return;
                        }
                    }
                }
            };
            self.allowed(&target, self.policy.allowed_by(grant));
            carry(client, upstream, &first).await;
        };
        tokio::spawn(carry.in_current_span());
        Response::new(full(bytes::Bytes::new()))
    }

    fn allowed(&self, target: &Target, by: AllowedBy) {
        self.ledger
            .web_allowed(&target.host.to_string(), target.port, by);
    }

    fn blocked(&self, host: &str, port: u16, by: BlockedBy, reason: &str) -> Response<Body> {
        self.ledger.web_blocked(host, port, by, reason);
        text(StatusCode::FORBIDDEN, &format!("blocked: {reason}"))
    }
}

impl std::fmt::Debug for WebProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebProxy").finish_non_exhaustive()
    }
}
