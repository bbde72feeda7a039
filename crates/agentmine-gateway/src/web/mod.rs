//! The web half of the gateway: a proxy that decides by policy for each request.
//!
//! The name is checked first, then every address it resolves to, and the connection goes to the checked
//! address. In a tunnel the TLS ClientHello must name the host that was requested. Whether the server at
//! that address is that host is up to its certificate, which the client in the sandbox verifies or not.

use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, Request, Response, StatusCode};
use agentmine_runtime::config::Network;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use crate::events::Ledger;
use crate::http::{self, Body, Ended, full, text};
use crate::stream::GatewayStream;
use dial::{DialError, dial};
use forward::forward;
use policy::{Access, Grant, Policy};
use target::Target;
use tunnel::{carry, client_hello};

mod address;
mod dial;
mod forward;
mod host;
mod policy;
mod sni;
mod target;
mod traffic;
mod tunnel;

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod tests;

/// Time limit for the TLS ClientHello after CONNECT.
const HELLO_TIMEOUT: Duration = Duration::from_secs(15);

/// The web half of one session's gateway.
#[derive(Debug)]
pub(crate) struct WebProxy {
    policy: Policy,
    ledger: Arc<Ledger>,
}

impl WebProxy {
    pub(crate) fn new(network: &Network, ledger: Arc<Ledger>) -> anyhow::Result<Self> {
        Ok(Self {
            policy: Policy::new(network)?,
            ledger,
        })
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
            self.ledger.web_blocked("?", 0, reason);
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
                return self.blocked(host, request.uri().port_u16().unwrap_or(0), reason);
            }
        };
        let grant = match self.policy.decide(&target.host, target.port, access) {
            Ok(grant) => grant,
            Err(reason) => return self.blocked(&target.host.to_string(), target.port, reason),
        };
        let upstream = match dial(&target.host, target.port, grant).await {
            Ok(upstream) => upstream,
            Err(DialError::Blocked(reason)) => {
                return self.blocked(&target.host.to_string(), target.port, reason);
            }
            Err(DialError::Unreachable(reason)) => {
                self.allowed(&target);
                return text(StatusCode::BAD_GATEWAY, reason);
            }
        };
        match access {
            Access::Tunnel => self.tunnel(request, upstream, target, grant, permit),
            Access::Plain => {
                self.allowed(&target);
                forward(request, upstream, &target).await
            }
        }
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
                            self.ledger.web_blocked(&host, target.port, reason);
                            return;
                        }
                    }
                }
            };
            self.allowed(&target);
            carry(client, upstream, &first).await;
        };
        tokio::spawn(carry.in_current_span());
        Response::new(full(bytes::Bytes::new()))
    }

    fn allowed(&self, target: &Target) {
        self.ledger
            .web_allowed(&target.host.to_string(), target.port);
    }

    fn blocked(&self, host: &str, port: u16, reason: &str) -> Response<Body> {
        self.ledger.web_blocked(host, port, reason);
        text(StatusCode::FORBIDDEN, &format!("blocked: {reason}"))
    }
}
