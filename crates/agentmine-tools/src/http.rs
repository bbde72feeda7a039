//! The servers over streamable HTTP, for local programs and the official conformance suite.
//!
//! It listens on loopback addresses only, and answers only requests whose `Host` names one and whose
//! `Origin`, if there is one, does too: no web page reaches it by a name that it rebinds.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use rmcp::handler::server::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

/// Maximum size of a request, in bytes: that of the largest file that can be written, escaped.
const MAX_BODY: usize = 32 * 1024 * 1024;
/// Maximum number of open sessions; an unused one ends after five minutes.
const MAX_SESSIONS: usize = 256;

/// Who may connect.
#[derive(Clone)]
pub enum HttpAccess {
    /// Who can: every program of every user of this machine.
    Anybody,
    /// Who names this token, as `Authorization: Bearer TOKEN`.
    Token(Arc<str>),
}

impl HttpAccess {
    /// Whether a request with these headers is let through.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let Self::Token(expected) = self else {
            return true;
        };
        let mut named = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (named.next(), named.next()) else {
            return false;
        };
        let token = value.to_str().ok().and_then(|it| it.split_once(' '));
        token.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && is_equal(token.trim(), expected)
        })
    }
}

/// Compares in a time that depends on the lengths alone.
fn is_equal(given: &str, expected: &str) -> bool {
    let (given, expected) = (given.as_bytes(), expected.as_bytes());
    if given.len() != expected.len() {
        return false;
    }
    let different = given
        .iter()
        .zip(expected)
        .fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
    different == 0
}

/// Serves any handler at `/mcp`, as [`ToolServer::serve_http`](crate::ToolServer::serve_http) serves ours:
/// until the future is dropped, or on SIGTERM or SIGINT. `ready` gets the address; the kernel chooses the port
/// if `addr` has port 0. Each session gets a clone of `server`.
///
/// Every user of the machine can connect to a loopback address, so that [`HttpAccess::Anybody`] is for tests and for
/// machines with one user.
///
/// # Errors
/// When the address is not a loopback address or cannot be bound.
pub async fn serve<S>(
    server: S,
    addr: SocketAddr,
    access: HttpAccess,
    ready: impl FnOnce(SocketAddr),
) -> anyhow::Result<()>
where
    S: ServerHandler + Clone + Send + Sync + 'static,
{
    anyhow::ensure!(
        addr.ip().is_loopback(),
        "{addr} is not a loopback address: the tool servers are served on this machine only, \
         e.g. on 127.0.0.1:0"
    );
    let listener = tokio::net::TcpListener::bind(addr)
        .await
        .with_context(|| format!("cannot listen on {addr}"))?;
    let ended = CancellationToken::new();
    let _ended = ended.clone().drop_guard();
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(["localhost", "127.0.0.1", "::1"])
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"])
        .with_max_request_body_bytes(MAX_BODY)
        .with_cancellation_token(ended);
    let sessions = Arc::new(LocalSessionManager::default());
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
    let router = axum::Router::new()
        .route_service("/mcp", service)
        .layer(from_fn(move |request, next| {
            bounded(Arc::clone(&sessions), request, next)
        }))
        .layer(from_fn(move |request, next| {
            admitted(access.clone(), request, next)
        }));
    ready(listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, router).into_future() => served?,
        signal = crate::terminated::terminated() => signal?,
    }
    Ok(())
}

/// Refuses a request without the token, before anything of it is checked.
async fn admitted(access: HttpAccess, request: Request, next: Next) -> Response {
    if access.admits(request.headers()) {
        return next.run(request).await;
    }
    let scheme = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    let what = "expected the header `Authorization: Bearer TOKEN` with the token of this server";
    (StatusCode::UNAUTHORIZED, [scheme], what).into_response()
}

/// Refuses a request that would begin one session too many: it is in no session, and it does not name its method
/// in a header, as requests of the stateless revision must.
async fn bounded(sessions: Arc<LocalSessionManager>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let begins = !headers.contains_key("mcp-session-id") && !headers.contains_key("mcp-method");
    if begins && sessions.sessions.read().await.len() >= MAX_SESSIONS {
        let what = format!("{MAX_SESSIONS} sessions are open: end one, or wait");
        return (StatusCode::SERVICE_UNAVAILABLE, what).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_let_through() {
        let access = HttpAccess::Token("secret-token".into());
        let headers = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            headers
        };
        for (values, expected) in [
            (&["Bearer secret-token"][..], true),
            (&["bearer secret-token"], true),
            (&[], false),
            (&["Bearer secret-toke"], false),
            (&["Bearer secret-tokex"], false),
            (&["Bearer secret-token2"], false),
            (&["Bearer "], false),
            (&["Basic secret-token"], false),
            (&["secret-token"], false),
            (&["Bearer wrong", "Bearer secret-token"], false),
        ] {
            assert_eq!(access.admits(&headers(values)), expected, "{values:?}");
            assert!(HttpAccess::Anybody.admits(&headers(values)));
        }
    }
}
