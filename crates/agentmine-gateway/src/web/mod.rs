//! The web half of the gateway: a proxy that decides by policy for each request.
//!
//! A name is judged first, then every address it resolves to, and the connection goes to the judged
//! address. Through a tunnel the TLS greeting must name the host that was asked for. Which host is
//! behind an address after that is the word of its certificate, which the sandbox checks or does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentmine_runtime::config::Network;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use metrics::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::GatewayStream;
use crate::events::Ledger;
use crate::http::{self as answers, Body, full, text, watched};
use dial::{DialError, dial};
use policy::{Grant, Host, Policy, Way};
use sni::Hello;

mod address;
mod dial;
mod policy;
mod presets;
mod sni;

#[cfg(test)]
mod tests;

/// Time for the TLS greeting after CONNECT.
const HELLO_TIMEOUT: Duration = Duration::from_secs(15);
/// Time without a byte either way.
const IDLE: Duration = Duration::from_secs(300);
/// Time until the head of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Headers that belong to one connection (RFC 9110 §7.6.1), and those meant for the proxy.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The web half of one session's gateway.
#[derive(Debug)]
pub(crate) struct WebProxy {
    policy: Policy,
    ledger: Arc<Ledger>,
}

/// What a request asks for.
#[derive(Debug)]
struct Target {
    host: Host,
    port: u16,
}

impl WebProxy {
    pub(crate) fn new(network: &Network, ledger: Arc<Ledger>) -> anyhow::Result<Self> {
        Ok(Self {
            policy: Policy::new(network)?,
            ledger,
        })
    }

    /// Serves one connection of the sandbox. Each request on it is judged by itself.
    pub(crate) async fn serve(self: &Arc<Self>, stream: impl GatewayStream) {
        answers::serve(stream, |request| self.clone().handle(request)).await;
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let way = if request.method() == Method::CONNECT {
            Way::Tunnel
        } else {
            Way::Plain
        };
        let target = match Target::of(request.uri(), way) {
            Ok(target) => target,
            Err(reason) => {
                let host = request.uri().host().unwrap_or("?");
                return self.blocked(host, request.uri().port_u16().unwrap_or(0), reason);
            }
        };
        let grant = match self.policy.decide(&target.host, target.port, way) {
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
        match way {
            Way::Tunnel => self.tunnel(request, upstream, target, grant),
            Way::Plain => {
                self.allowed(&target);
                forward(request, upstream, &target).await
            }
        }
    }

    /// Answers CONNECT and carries bytes from then on.
    fn tunnel(
        self: Arc<Self>,
        request: Request<Incoming>,
        upstream: TcpStream,
        target: Target,
        grant: Grant,
    ) -> Response<Body> {
        let carry = async move {
            let Ok(upgraded) = hyper::upgrade::on(request).await else {
                return;
            };
            let mut client = TokioIo::new(upgraded);
            let first = match grant {
                Grant::Private => Vec::new(),
                Grant::Public => match greeting(&mut client, &target.host, HELLO_TIMEOUT).await {
                    Ok(bytes) => bytes,
                    Err(reason) => {
                        let host = target.host.to_string();
                        self.ledger.web_blocked(&host, target.port, reason);
                        return;
                    }
                },
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

impl Target {
    fn of(uri: &Uri, way: Way) -> Result<Self, &'static str> {
        let authority = uri
            .authority()
            .ok_or("this is a proxy; the whole URL is needed")?;
        if authority.as_str().contains('@') {
            return Err("a URL with a user's name is not passed on");
        }
        let port = match (way, uri.scheme_str()) {
            (Way::Tunnel, _) => authority.port_u16().ok_or("CONNECT needs a port")?,
            (Way::Plain, Some("http")) => match authority.port() {
                Some(port) => port.as_str().parse().map_err(|_| "not a port")?,
                None => 80,
            },
            (Way::Plain, _) => return Err("only http URLs are passed on in plain"),
        };
        if port == 0 {
            return Err("not a port");
        }
        Ok(Self {
            host: Host::parse(authority.host())?,
            port,
        })
    }
}

/// Sends one plain request on a connection of its own.
async fn forward(
    request: Request<Incoming>,
    upstream: TcpStream,
    target: &Target,
) -> Response<Body> {
    let broken = || text(StatusCode::BAD_GATEWAY, "the host did not answer as HTTP");
    let Some(request) = rewritten(request, target) else {
        return text(StatusCode::BAD_REQUEST, "the URL cannot be passed on");
    };
    let handshake = hyper::client::conn::http1::Builder::new()
        .max_headers(200)
        .max_buf_size(256 * 1024)
        .handshake(TokioIo::new(upstream));
    let Ok((mut sender, connection)) = handshake.await else {
        return broken();
    };
    tokio::spawn(async move {
        // Its errors show in the body of the answer as well.
        let _ = connection.await;
    });
    match timeout(ANSWER_TIMEOUT, sender.send_request(request)).await {
        Ok(Ok(response)) => {
            let (mut parts, body) = response.into_parts();
            clean(&mut parts.headers);
            Response::from_parts(parts, watched(body, IDLE, bytes_in(), ()))
        }
        Ok(Err(_)) => broken(),
        Err(_) => text(
            StatusCode::GATEWAY_TIMEOUT,
            "the host did not answer in time",
        ),
    }
}

/// The request as the host gets it: origin form, its own name, no header of the connection.
fn rewritten(request: Request<Incoming>, target: &Target) -> Option<Request<Body>> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.is_empty() { "/" } else { path };
    let host = match &target.host {
        Host::Address(std::net::IpAddr::V6(address)) => format!("[{address}]"),
        other => other.to_string(),
    };
    let host = match target.port {
        80 => host,
        port => format!("{host}:{port}"),
    };
    parts.uri = path.parse().ok()?;
    parts.version = http::Version::HTTP_11;
    clean(&mut parts.headers);
    parts
        .headers
        .insert(header::HOST, HeaderValue::from_str(&host).ok()?);
    parts.extensions = http::Extensions::new();
    Some(Request::from_parts(
        parts,
        watched(body, IDLE, bytes_out(), ()),
    ))
}

/// Removes what belongs to one connection only.
fn clean(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Reads the TLS greeting, which must name `host`. Nothing has gone upstream yet.
async fn greeting(
    client: &mut (impl AsyncRead + Unpin),
    host: &Host,
    limit: Duration,
) -> Result<Vec<u8>, &'static str> {
    let read = async {
        let mut bytes = Vec::new();
        loop {
            match sni::server_name(&bytes) {
                Hello::Name(name) if matches!(Host::parse(&name), Ok(named) if named == *host) => {
                    return Ok(bytes);
                }
                Hello::Name(_) => return Err("the TLS greeting names another host"),
                Hello::Refused(reason) => return Err(reason),
                Hello::Incomplete if bytes.len() > sni::MAX_HELLO => {
                    return Err("the TLS greeting is too long");
                }
                Hello::Incomplete => {}
            }
            match client.read_buf(&mut bytes).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err("closed before a TLS greeting"),
            }
        }
    };
    timeout(limit, read)
        .await
        .unwrap_or(Err("no TLS greeting in time"))
}

/// Carries bytes both ways until both sides are done, one breaks, or nothing moves for [`IDLE`].
async fn carry(client: impl GatewayStream, mut upstream: TcpStream, first: &[u8]) {
    if upstream.write_all(first).await.is_err() {
        return;
    }
    let moved = Moved::new();
    let (from_client, to_client) = tokio::io::split(client);
    let (from_upstream, to_upstream) = upstream.into_split();
    let both = async {
        tokio::try_join!(
            pump(from_client, to_upstream, &moved, bytes_out()),
            pump(from_upstream, to_client, &moved, bytes_in()),
        )
    };
    tokio::select! {
        _ = both => {}
        () = moved.idle() => tracing::debug!("a tunnel was idle for too long"),
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Moved,
    counter: Counter,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..n]).await?;
        to.flush().await?;
        counter.increment(n as u64);
        moved.touch();
    }
}

/// When bytes last moved through a tunnel, in either direction.
struct Moved {
    start: Instant,
    last_ms: AtomicU64,
}

impl Moved {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }

    /// Ends when nothing has moved for [`IDLE`].
    async fn idle(&self) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let until = self.start + last + IDLE;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

fn bytes_in() -> Counter {
    metrics::counter!("agentmine_gateway_web_bytes_total", "direction" => "in")
}

fn bytes_out() -> Counter {
    metrics::counter!("agentmine_gateway_web_bytes_total", "direction" => "out")
}
