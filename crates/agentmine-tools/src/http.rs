//! The servers over streamable HTTP, for local programs and the official conformance suite.
//!
//! It listens on loopback addresses only, and answers only requests whose `Host` names one and whose
//! `Origin`, if there is one, does too: no web page reaches it by a name that it rebinds.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use rmcp::handler::server::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager as _};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

/// Maximum size of a request, in bytes: that of the largest file that can be written, escaped.
const MAX_BODY: usize = 32 * 1024 * 1024;
/// Maximum number of open sessions.
const MAX_SESSIONS: usize = 256;
/// A session that is not used for this long ends. Many clients cannot use a server any more whose session has ended,
/// until they are restarted, and an editor is often idle for hours.
const IDLE: Duration = Duration::from_secs(8 * 60 * 60);

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
    let sessions = Arc::new(sessions());
    let used = Used::default();
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
    let router = axum::Router::new()
        .route_service("/mcp", service)
        .layer(from_fn(move |request, next| {
            bounded(Arc::clone(&sessions), Arc::clone(&used), request, next)
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

/// No sessions yet, each of which will end after [`IDLE`].
fn sessions() -> LocalSessionManager {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(IDLE);
    sessions
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

/// When each session was used last.
type Used = Arc<Mutex<HashMap<SessionId, Instant>>>;

fn session_of(headers: &HeaderMap) -> Option<SessionId> {
    let id = headers.get("mcp-session-id")?;
    id.to_str().ok().map(Into::into)
}

/// Ends the session that was not used for the longest time if a request would begin one too many: many clients never
/// end theirs. A request of the stateless revision names its method in a header and begins none.
async fn bounded(
    sessions: Arc<LocalSessionManager>,
    used: Used,
    request: Request,
    next: Next,
) -> Response {
    let lock = || used.lock().unwrap_or_else(PoisonError::into_inner);
    let named = session_of(request.headers());
    if named.is_none() && !request.headers().contains_key("mcp-method") {
        let oldest = {
            let open = sessions.sessions.read().await;
            let mut used = lock();
            used.retain(|id, _| open.contains_key(id));
            let oldest = used.iter().min_by_key(|(_, at)| **at);
            let oldest = oldest.filter(|_| open.len() >= MAX_SESSIONS);
            oldest.map(|(id, _)| Arc::clone(id))
        };
        if let Some(id) = oldest {
            // It may have ended meanwhile.
            let _ = sessions.close_session(&id).await;
        }
    }
    let response = next.run(request).await;
    if let Some(id) = named.or_else(|| session_of(response.headers()))
        && sessions.sessions.read().await.contains_key(&id)
    {
        lock().insert(id, Instant::now());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_of_an_idle_editor_stays() {
        let config = sessions().session_config;
        assert!(
            config
                .keep_alive
                .is_some_and(|idle| idle >= Duration::from_secs(4 * 60 * 60)),
            "{config:?}"
        );
    }

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
