//! Plain HTTP requests, each on its own connection.

use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::target::Target;
use super::traffic::{IDLE, bytes_received, bytes_sent};
use crate::http::{Body, text, watched};

/// Time limit for the head of a response.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);

/// Headers that belong to one connection (RFC 9110 §7.6.1), and those for the proxy.
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

/// Sends one plain request on its own connection.
pub(super) async fn forward(
    request: Request<Incoming>,
    upstream: TcpStream,
    target: &Target,
) -> Response<Body> {
    let broken = || {
        text(
            StatusCode::BAD_GATEWAY,
            "the host did not send a valid HTTP response",
        )
    };
    let Some(request) = rewritten(request, target) else {
        return text(StatusCode::BAD_REQUEST, "the URL cannot be forwarded");
    };
    let handshake = hyper::client::conn::http1::Builder::new()
        .max_headers(200)
        .max_buf_size(256 * 1024)
        .handshake(TokioIo::new(upstream));
    let Ok((mut sender, connection)) = handshake.await else {
        return broken();
    };
    tokio::spawn(async move {
        // Its errors also appear in the body of the response.
        let _ = connection.await;
    });
    match timeout(RESPONSE_TIMEOUT, sender.send_request(request)).await {
        Ok(Ok(response)) => {
            let (mut parts, body) = response.into_parts();
            remove_hop_by_hop(&mut parts.headers);
            Response::from_parts(parts, watched(body, IDLE, bytes_received(), ()))
        }
        Ok(Err(_)) => broken(),
        Err(_) => text(
            StatusCode::GATEWAY_TIMEOUT,
            "the host did not respond in time",
        ),
    }
}

/// The request as the host receives it: origin form, the host's own name, no connection headers.
fn rewritten(request: Request<Incoming>, target: &Target) -> Option<Request<Body>> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.is_empty() { "/" } else { path };
    let host = target.authority(80);
    parts.uri = path.parse().ok()?;
    parts.version = http::Version::HTTP_11;
    remove_hop_by_hop(&mut parts.headers);
    parts
        .headers
        .insert(header::HOST, HeaderValue::from_str(&host).ok()?);
    parts.extensions = http::Extensions::new();
    Some(Request::from_parts(
        parts,
        watched(body, IDLE, bytes_sent(), ()),
    ))
}

/// Removes the headers that belong to one connection.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
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
