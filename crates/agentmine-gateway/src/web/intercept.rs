//! Tunnels to package registries: their TLS ends here, so that each request is seen.
//!
//! The sandbox gets a certificate of the session's own authority, and the registry's certificate is verified
//! here. Requests of one tunnel go over one connection to the registry for as long as it lasts; one that breaks
//! between two requests is replaced once, since requests only read. Redirects go back to the sandbox, whose
//! next request is judged by itself.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::authority::Authority;
use super::dial::{DialError, Dialer};
use super::forward::{RESPONSE_TIMEOUT, remove_hop_by_hop};
use super::host::Host;
use super::policy::{Grant, HiddenNames};
use super::registry::{NotReading, ReadOnly};
use super::target::Target;
use super::traffic::{IDLE, bytes_received};
use super::tunnel::client_hello;
use crate::GatewayError;
use crate::egress::{AllowedBy, BlockedBy};
use crate::events::Ledger;
use crate::http::{self as web, Body, Ended, full, text, watched};
use crate::stream::GatewayStream;
use crate::write_timeout::WriteTimeout;

/// Time limit of each TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
const TLS_RECORD: u8 = 22;
const UNVERIFIED: &str =
    "the host's TLS certificate cannot be verified, or its TLS handshake failed";

/// The certificates of one session, and how registries are verified.
pub(super) struct Interceptor {
    authority: Authority,
    connector: TlsConnector,
}

impl Interceptor {
    /// Verifies registries against these roots.
    pub(super) fn new(roots: Arc<RootCertStore>) -> Result<Self, GatewayError> {
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .map_err(|error| GatewayError::certificates("TLS to registries", &error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            authority: Authority::new()?,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    /// The certificate that the session's sandboxes are to trust, as PEM.
    pub(super) fn pem(&self) -> String {
        self.authority.pem()
    }
}

/// One tunnel to a registry.
pub(super) struct Reading {
    pub(super) interceptor: Arc<Interceptor>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) target: Target,
    pub(super) grant: Grant,
    pub(super) rules: ReadOnly,
    pub(super) dialer: Dialer,
}

/// What is spoken in a tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wire {
    Tls,
    /// Only to the operator's own hosts.
    Plain,
}

impl Wire {
    fn default_port(self) -> u16 {
        match self {
            Self::Tls => 443,
            Self::Plain => 80,
        }
    }
}

type Sender = SendRequest<Body>;

impl Reading {
    /// Serves the tunnel until it ends. `upstream` is connected already.
    pub(super) async fn serve(self, mut client: impl GatewayStream, upstream: TcpStream) {
        let host = self.target.host.to_string();
        let (wire, first) = match self.first_bytes(&mut client).await {
            Ok(first) => first,
            Err(reason) => {
                let port = self.target.port;
                return self.ledger.web_blocked(&host, port, BlockedBy::Tls, reason);
            }
        };
        let (from, to) = tokio::io::split(client);
        let client = tokio::io::join(std::io::Cursor::new(first).chain(from), to);
        match wire {
            Wire::Plain => self.requests(client, upstream, wire).await,
            Wire::Tls => {
                let config = match self.interceptor.authority.server(&self.target.host) {
                    Ok(config) => config,
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            "no certificate for a registry"
                        );
                        return;
                    }
                };
                let accepted = TlsAcceptor::from(config).accept(client);
                match timeout(HANDSHAKE_TIMEOUT, accepted).await {
                    Ok(Ok(client)) => self.requests(client, upstream, wire).await,
                    // Whatever does not trust the session's authority, or pins a certificate.
                    Ok(Err(_)) | Err(_) => {
                        let reason = "the TLS handshake with the gateway failed; registries are read through it";
                        let port = self.target.port;
                        self.ledger.web_blocked(&host, port, BlockedBy::Tls, reason);
                    }
                }
            }
        }
    }

    /// The first bytes of the client, from which its certificate's name or plain HTTP is known.
    async fn first_bytes(
        &self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(Wire, Vec<u8>), &'static str> {
        let mut first = vec![0; 1];
        match timeout(HANDSHAKE_TIMEOUT, client.read_exact(&mut first)).await {
            Ok(Ok(_)) if self.grant == Grant::Private && first[0] != TLS_RECORD => {
                return Ok((Wire::Plain, first));
            }
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return Err("the client sent nothing"),
        }
        let host = &self.target.host;
        if matches!(host, Host::Address(_)) {
            // TLS to an address names no host.
            return Ok((Wire::Tls, first));
        }
        let mut client = first.as_slice().chain(client);
        let hello = client_hello(&mut client, host, HiddenNames::Refused, HANDSHAKE_TIMEOUT);
        Ok((Wire::Tls, hello.await?))
    }

    async fn requests(self, client: impl GatewayStream, upstream: TcpStream, wire: Wire) {
        let (host, port) = (self.target.host.to_string(), self.target.port);
        let ledger = Arc::clone(&self.ledger);
        let connection = Arc::new(Connection {
            reading: self,
            wire,
            dialled: Mutex::new(Some(upstream)),
            sender: Mutex::new(None),
        });
        let handle = |request| Arc::clone(&connection).answer(request);
        // A sandbox that asks and does not read must not occupy a connection for ever.
        let client = WriteTimeout::new(client, IDLE);
        if web::serve(client, handle).await == Ended::Unreadable {
            ledger.web_blocked(&host, port, BlockedBy::Request, "not a valid HTTP request");
        }
    }
}

/// The connection to the registry, behind one of the sandbox.
struct Connection {
    reading: Reading,
    wire: Wire,
    /// The connection that was made before the tunnel was allowed.
    dialled: Mutex<Option<TcpStream>>,
    sender: Mutex<Option<Sender>>,
}

/// Why a registry does not answer, for the client.
struct NoAnswer(StatusCode, &'static str);

impl Connection {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let Reading {
            ledger,
            target,
            rules,
            ..
        } = &self.reading;
        let host = target.host.to_string();
        let request = match rules.rewritten(&request, target, self.wire.default_port()) {
            Ok(request) => request,
            Err(refused) => {
                ledger.web_blocked(&host, target.port, BlockedBy::Registry, refused.reason);
                return refused.response();
            }
        };
        ledger.web_allowed(&host, target.port, AllowedBy::Registry);
        match self.send(&request).await {
            Ok(response) => received(response),
            Err(NoAnswer(status, reason)) => text(status, reason),
        }
    }

    async fn send(&self, request: &Request<()>) -> Result<Response<Incoming>, NoAnswer> {
        let mut held = self.sender.lock().await;
        if let Some(mut sender) = held.take()
            && sender.ready().await.is_ok()
            && let Ok(sent) = timeout(RESPONSE_TIMEOUT, sender.send_request(copy(request))).await
            && let Ok(response) = sent
        {
            *held = Some(sender);
            return Ok(response);
        }
        let mut sender = self.connect().await?;
        match timeout(RESPONSE_TIMEOUT, sender.send_request(copy(request))).await {
            Ok(Ok(response)) => {
                *held = Some(sender);
                Ok(response)
            }
            Ok(Err(_)) => Err(NoAnswer(
                StatusCode::BAD_GATEWAY,
                "the host did not send a valid HTTP response",
            )),
            Err(_) => Err(NoAnswer(
                StatusCode::GATEWAY_TIMEOUT,
                "the host did not respond in time",
            )),
        }
    }

    async fn connect(&self) -> Result<Sender, NoAnswer> {
        let Target { host, port } = &self.reading.target;
        let unreachable = |reason| NoAnswer(StatusCode::BAD_GATEWAY, reason);
        let stream = match self.dialled.lock().await.take() {
            Some(stream) => stream,
            None => match self
                .reading
                .dialer
                .dial(host, *port, self.reading.grant)
                .await
            {
                Ok(stream) => stream,
                Err(DialError::Blocked(reason) | DialError::Unreachable(reason)) => {
                    return Err(unreachable(reason));
                }
            },
        };
        match self.wire {
            Wire::Plain => handshake(stream).await,
            Wire::Tls => {
                let name = server_name(host).ok_or(unreachable(UNVERIFIED))?;
                let secured = self.reading.interceptor.connector.connect(name, stream);
                match timeout(HANDSHAKE_TIMEOUT, secured).await {
                    Ok(Ok(stream)) => handshake(stream).await,
                    Ok(Err(_)) | Err(_) => Err(unreachable(UNVERIFIED)),
                }
            }
        }
    }
}

/// Sends one plain request to a registry, on its own connection.
pub(super) async fn read_plain(request: &Request<()>, upstream: TcpStream) -> Response<Body> {
    let mut sender = match handshake(upstream).await {
        Ok(sender) => sender,
        Err(NoAnswer(status, reason)) => return text(status, reason),
    };
    match timeout(RESPONSE_TIMEOUT, sender.send_request(copy(request))).await {
        Ok(Ok(response)) => received(response),
        Ok(Err(_)) => text(
            StatusCode::BAD_GATEWAY,
            "the host did not send a valid HTTP response",
        ),
        Err(_) => text(
            StatusCode::GATEWAY_TIMEOUT,
            "the host did not respond in time",
        ),
    }
}

impl NotReading {
    /// The answer to the client.
    pub(super) fn response(&self) -> Response<Body> {
        let mut response = text(self.status, &format!("blocked: {}", self.reason));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(header::ALLOW, allowed);
        }
        response
    }
}

async fn handshake(stream: impl GatewayStream) -> Result<Sender, NoAnswer> {
    let made = hyper::client::conn::http1::Builder::new()
        .max_headers(200)
        .max_buf_size(256 * 1024)
        .handshake(TokioIo::new(stream));
    let failed = "the host did not send a valid HTTP response";
    let (sender, connection) = made
        .await
        .map_err(|_| NoAnswer(StatusCode::BAD_GATEWAY, failed))?;
    tokio::spawn(async move {
        // Its errors also appear in the body of the response.
        let _ = connection.await;
    });
    Ok(sender)
}

fn received(response: Response<Incoming>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    // The sandbox has no session at a registry.
    parts.headers.remove(header::SET_COOKIE);
    Response::from_parts(parts, watched(body, IDLE, bytes_received(), ()))
}

fn copy(request: &Request<()>) -> Request<Body> {
    let mut copy = Request::new(full(bytes::Bytes::new()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

fn server_name(host: &Host) -> Option<ServerName<'static>> {
    match host {
        Host::Name(name) => ServerName::try_from(name.clone()).ok(),
        Host::Address(address) => Some((*address).into()),
    }
}
