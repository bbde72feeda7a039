//! `/live`, `/ready` and `/metrics`.
//!
//! `/live` reports that the process runs and that none of its main loops is stalled ([`crate::liveness`]); a
//! service that is away does not make it fail, since a restart would not help. `/ready` reports whether it can work, and if not, why: all
//! registered checks run at the same time, each under `CHECK_LIMIT`, and a draining process is not
//! ready. Everybody who can connect sees the reasons: a check must not put a secret into its error.
//!
//! On a loopback address, only requests whose `Host` names this machine are answered: a web page in a browser of this
//! machine reaches nothing by a name that it rebinds.

mod limited_listener;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::{TcpListener, TcpSocket};

use self::limited_listener::LimitedListener;
use crate::exit::{Exit, Failure};
use crate::liveness;
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// Time limit of one check.
const CHECK_LIMIT: Duration = Duration::from_secs(2);
/// Time limit of a connection, which is longer than any answer takes.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// The setting of the address of `/live`, `/ready` and `/metrics`.
const HEALTH_KEY: &str = "http.listen";
/// Connections that are open at once.
const MAX_CONNECTIONS: usize = 64;

type CheckFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
type Check = Arc<dyn Fn() -> CheckFuture + Send + Sync>;

/// The checks of `/ready`. Clones share them: a component may register its own while the server runs.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Vec<(&'static str, Check)>>>,
}

impl Health {
    /// No checks: always ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a check of `subject` under a name, and replaces the former check of that name.
    pub fn check<S, F, Fut>(&self, name: &'static str, subject: &Arc<S>, check: F)
    where
        S: Send + Sync + 'static,
        F: Fn(Arc<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let subject = Arc::clone(subject);
        let check: Check = Arc::new(move || Box::pin(check(Arc::clone(&subject))));
        let mut checks = self.lock();
        checks.retain(|(known, _)| *known != name);
        checks.push((name, check));
    }

    /// Runs all checks. The results are in the order of registration.
    async fn report(&self) -> Report {
        let checks = self.lock().clone();
        // Each in its own task: they run concurrently, and a panic is one failed check.
        let running: Vec<_> = checks
            .into_iter()
            .map(|(name, check)| {
                let limited = tokio::time::timeout(CHECK_LIMIT, async move { check().await });
                (name, tokio::spawn(limited))
            })
            .collect();
        let mut results = Vec::with_capacity(running.len());
        for (name, task) in running {
            let reason = match task.await {
                Ok(Ok(Ok(()))) => None,
                Ok(Ok(Err(error))) => Some(format!("{error:#}")),
                Ok(Err(_)) => Some(format!("no answer in {} s", CHECK_LIMIT.as_secs())),
                Err(_) => Some("the check crashed".to_owned()),
            };
            results.push(CheckResult { name, reason });
        }
        Report {
            ready: results.iter().all(|result| result.reason.is_none()),
            checks: results,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(&'static str, Check)>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.lock().iter().map(|(name, _)| *name))
            .finish()
    }
}

/// The response of `/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Report {
    /// Whether every check passed.
    ready: bool,
    checks: Vec<CheckResult>,
}

/// One check of a [`Report`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct CheckResult {
    name: &'static str,
    /// Why it failed; absent if it passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone)]
struct Served {
    health: Health,
    metrics: Metrics,
    shutdown: Shutdown,
}

/// Serves on `listen` (`address:port`; port 0 selects a free port) until the process is killed, which
/// makes a drain observable. Returns the address that was bound.
///
/// # Errors
/// If the address cannot be bound.
pub async fn serve(
    listen: &str,
    health: Health,
    metrics: Metrics,
    shutdown: Shutdown,
) -> Result<SocketAddr> {
    let listener = bind(listen)
        .await
        .map_err(|error| not_bound(listen, HEALTH_KEY, error))?;
    let address = listener.local_addr()?;
    let killed = shutdown.killed();
    let app = Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/metrics", get(render))
        .layer(from_fn(move |request, next| {
            named_as_here(address, request, next)
        }))
        .with_state(Served {
            health,
            metrics,
            shutdown,
        });
    tokio::spawn(async move {
        let listener = LimitedListener::new(listener, MAX_CONNECTIONS, CONNECTION_LIMIT);
        let server = axum::serve(listener, app).into_future();
        if let Some(Err(error)) = killed.run_until_cancelled(server).await {
            tracing::error!(error = %error, "the health server stopped");
        }
    });
    tracing::info!(http.address = %address, "serving /live, /ready and /metrics");
    Ok(address)
}

/// Serves what others send, such as webhooks, until the process is killed; `key` is the setting that names `listen`.
/// Returns the address that was bound.
///
/// # Errors
/// If the address cannot be bound.
pub async fn serve_router(
    listen: &str,
    key: &str,
    app: Router,
    shutdown: &Shutdown,
) -> Result<SocketAddr> {
    let listener = bind(listen)
        .await
        .map_err(|error| not_bound(listen, key, error))?;
    let address = listener.local_addr()?;
    let killed = shutdown.killed();
    let closing = |mut response: Response| async {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        response
    };
    let app = app.layer(map_response(closing));
    tokio::spawn(async move {
        let listener = LimitedListener::new(listener, MAX_CONNECTIONS / 2, CONNECTION_LIMIT);
        let server = axum::serve(listener, app).into_future();
        if let Some(Err(error)) = killed.run_until_cancelled(server).await {
            tracing::error!(error = %error, "a server stopped");
        }
    });
    tracing::info!(http.address = %address, setting = key, "listening");
    Ok(address)
}

/// Why nothing listens on the address that the setting `key` names, and what to do about it.
fn not_bound(listen: &str, key: &str, error: io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse if key == HEALTH_KEY => Some(
            "another process uses this port; a producer and a consumer on one machine need different ones: set \
             AGENTMINE_HTTP_LISTEN for one of them",
        ),
        io::ErrorKind::AddrInUse => Some("another process uses this port: choose another one"),
        io::ErrorKind::AddrNotAvailable => {
            Some("name an address of this machine, or 0.0.0.0 for all of them")
        }
        io::ErrorKind::PermissionDenied => Some("choose a port of 1024 or above"),
        _ => None,
    };
    let failure = Failure::new(Exit::Other, format!("cannot listen on `{listen}` ({key})"));
    let failure = match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    };
    failure.because(error)
}

/// `[::]` listens on both families, whatever `net.ipv6.bindv6only` is. Where the kernel has no IPv6, `0.0.0.0` is used
/// instead.
async fn bind(listen: &str) -> io::Result<TcpListener> {
    let address = listen.parse::<SocketAddr>().ok();
    let Some(address) = address.filter(|it| it.is_ipv6() && it.ip().is_unspecified()) else {
        return TcpListener::bind(listen).await;
    };
    match bind_both_families(address) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

fn bind_both_families(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    // As `TcpListener::bind` does.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// Refuses a request to a loopback address by a name that is not of this machine.
async fn named_as_here(address: SocketAddr, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let is_here = host.is_none_or(|host| host.to_str().is_ok_and(is_of_this_machine));
    if !address.ip().is_loopback() || is_here {
        let mut response = next.run(request).await;
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        return response;
    }
    let reported = "this address answers to localhost and loopback addresses only\n";
    (StatusCode::MISDIRECTED_REQUEST, reported).into_response()
}

/// Whether `HOST[:PORT]` is `localhost` or a loopback address.
fn is_of_this_machine(host: &str) -> bool {
    let Ok(url) = url::Url::parse(&format!("http://{host}/")) else {
        return false;
    };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

async fn live() -> Response {
    match liveness::standing_still() {
        stuck if stuck.is_empty() => "ok\n".into_response(),
        stuck => (StatusCode::SERVICE_UNAVAILABLE, stuck.join("\n") + "\n").into_response(),
    }
}

async fn ready(State(served): State<Served>) -> Response {
    let mut report = served.health.report().await;
    if served.shutdown.is_draining() {
        report.ready = false;
        report.checks.push(CheckResult {
            name: "drain",
            reason: Some("the process is draining and takes no new work".to_owned()),
        });
    }
    let status = if report.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(report)).into_response()
}

async fn render(State(served): State<Served>) -> Response {
    let kind = (
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    );
    ([kind], served.metrics.render()).into_response()
}

#[cfg(test)]
mod tests;
