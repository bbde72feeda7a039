//! Starting a server: process, connection, first lists, all within one limit.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, timeout};

use super::eras::Key;
use super::shared::{Live, Shared};
use crate::client::is_servers_own;
use crate::config::Transport;
use crate::{Client, Era, Launcher, McpError, ProcessFault, ServerProcess};

/// How long a process that closed its stdout may take to end, to tell a crash from a bad connection.
pub(super) const AFTERMATH: Duration = Duration::from_millis(300);
/// What a process that would not connect gets before each signal.
const GRACE: Duration = Duration::from_millis(200);
/// Bytes of stderr in an error.
const MAX_STDERR: usize = 4 * 1024;

/// A start that failed.
struct Failure {
    error: McpError,
    /// It was met by the server's process, and might speak another era.
    connecting: bool,
}

/// Starts it, and leaves its process with `shared`. On an error nothing of it is left.
pub(super) async fn start(
    shared: &Shared,
    launcher: Option<&Arc<dyn Launcher>>,
) -> Result<Arc<Live>, McpError> {
    let limit = shared.policy.limits.start;
    let began = Instant::now();
    let started = timeout(limit, in_some_era(shared, launcher).boxed()).await;
    let result = started.unwrap_or_else(|_| {
        // Perhaps it was waited for in the wrong era.
        Key::of(&shared.config).forget();
        Err(McpError::Connection {
            server: shared.name().to_owned(),
            detail: format!("it was not ready within {} s", limit.as_secs_f64()),
        })
    });
    match &result {
        Ok(live) => shared.connected(live.client.greeting(), began.elapsed()),
        Err(_) => shared.end_process(GRACE).await,
    }
    result
}

/// Starts it in the era it is known to speak; else it is found out. There are servers that end when
/// they are asked something they do not know, so whatever fails is tried again by the older handshake.
async fn in_some_era(
    shared: &Shared,
    launcher: Option<&Arc<dyn Launcher>>,
) -> Result<Arc<Live>, McpError> {
    let key = Key::of(&shared.config);
    let known = key.era();
    let order: &[Option<Era>] = match known {
        None => &[None, Some(Era::Handshake)],
        Some(Era::Handshake) => &[Some(Era::Handshake), None],
        Some(Era::Stateless) => &[Some(Era::Stateless), None, Some(Era::Handshake)],
    };
    let mut first = None;
    for era in order {
        let failure = match attempt(shared, launcher, *era).await {
            Ok(live) => {
                key.remember(live.client.greeting().era);
                return Ok(live);
            }
            Err(failure) => failure,
        };
        if known.is_some() {
            key.forget();
        }
        shared.end_process(GRACE).await;
        if !failure.connecting {
            return Err(first.unwrap_or(failure.error));
        }
        // The first failure is the one by which a server that works would have been known.
        first.get_or_insert(failure.error);
    }
    Err(first.unwrap_or_else(|| McpError::Connection {
        server: shared.name().to_owned(),
        detail: "it was not started".into(),
    }))
}

async fn attempt(
    shared: &Shared,
    launcher: Option<&Arc<dyn Launcher>>,
    era: Option<Era>,
) -> Result<Arc<Live>, Failure> {
    let mut options = shared.policy.connect_options(&shared.config);
    options.era = era;
    let name = shared.name();
    let started = |error| Failure {
        error,
        connecting: false,
    };
    let server = name.to_owned();
    let connected = match (&shared.config.transport, launcher) {
        (Transport::Http { url, headers }, _) => {
            let (url, headers) = (url.clone(), headers.clone());
            let connect =
                async move { Client::connect_http(server, &url, &headers, &options).await };
            connect.boxed().await
        }
        (Transport::Stdio { .. }, None) => {
            return Err(started(start_error(
                name,
                "nothing here can start it".into(),
                String::new(),
            )));
        }
        (Transport::Stdio { .. }, Some(launcher)) => {
            let launched = launcher.launch(&shared.config).await.map_err(started)?;
            let process = shared.hold(launched.process);
            let stream = launched.stream;
            let connect = async move { Client::connect(server, stream, &options).await };
            tokio::select! {
                // What is connected already is worth more than the news of its end.
                biased;
                connected = connect.boxed() => connected,
                // Something that it started may still hold its stdout.
                _ = process.ended() => Err(McpError::Connection {
                    server: name.to_owned(),
                    detail: "it has ended".into(),
                }),
            }
        }
    };
    let process = shared.process();
    let client = match connected {
        Ok(client) => client,
        Err(error) => {
            let error = explained(name, error, process.as_ref(), "before it was connected").await;
            return Err(Failure {
                error,
                connecting: true,
            });
        }
    };
    // Before the lists are read, so that a change meanwhile is not missed.
    let live = Arc::new(Live::new(client));
    match live.client.offer().boxed().await {
        Ok(offer) => {
            shared.take_offer(offer);
            Ok(live)
        }
        Err(error) => {
            let error = explained(name, error, process.as_ref(), "before it was listed").await;
            Err(started(error))
        }
    }
}

/// If the server has ended by itself, how its process did is the reason.
async fn explained(
    name: &str,
    error: McpError,
    process: Option<&Arc<dyn ServerProcess>>,
    when: &str,
) -> McpError {
    let by_itself = match &error {
        McpError::Connection { detail, .. } | McpError::Protocol { detail, .. } => {
            is_servers_own(detail)
        }
        McpError::Configuration { .. }
        | McpError::Process { .. }
        | McpError::ToolExecution { .. } => false,
    };
    let Some(process) = process.filter(|_| by_itself) else {
        return error;
    };
    match timeout(AFTERMATH, process.ended()).await {
        Ok(how) => start_error(name, format!("{how}, {when}"), process.stderr().await),
        Err(_) => error,
    }
}

fn start_error(name: &str, detail: String, stderr: String) -> McpError {
    McpError::Process {
        server: name.to_owned(),
        what: ProcessFault::Start,
        detail,
        stderr: end_of(stderr),
    }
}

/// The end of what was written to stderr, from the beginning of a line where there is one.
pub(super) fn end_of(stderr: String) -> String {
    let mut from = stderr.len().saturating_sub(MAX_STDERR);
    while !stderr.is_char_boundary(from) {
        from += 1;
    }
    let end = stderr.get(from..).unwrap_or_default();
    match end.split_once('\n') {
        Some((_, lines)) if from > 0 && !lines.is_empty() => lines.to_owned(),
        _ => end.to_owned(),
    }
}
