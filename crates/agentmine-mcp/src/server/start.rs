//! Starting a server: process, connection and first lists, all within one time limit.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, timeout};

use super::{Live, Server};
use crate::client::is_servers_own;
use crate::config::{Place, ServerConfig, Transport};
use crate::{Client, Era, Launcher, McpError, ProcessFault, lock};

/// How long a process that closed its stdout may take to end, to tell a crash from a bad connection.
pub(super) const AFTERMATH: Duration = Duration::from_millis(300);
/// What a process that could not be connected gets before each signal.
const GRACE: Duration = Duration::from_millis(200);
/// Bytes of stderr in an error.
const MAX_STDERR: usize = 4 * 1024;
/// Commands whose era is remembered. After that all are forgotten: repositories may name ever new ones.
const MAX_ERAS: usize = 1_000;

/// What is started, without its environment, which is secret: its place, and its command or URL.
type Program = (Option<Place>, Vec<String>);

/// The eras that programs were found to speak, for as long as this process runs. Only a hint, which saves
/// the probe: a program's next version may speak another.
static ERAS: LazyLock<Mutex<HashMap<Program, Era>>> = LazyLock::new(Mutex::default);

fn program(server: &ServerConfig) -> Program {
    let command = match &server.transport {
        Transport::Stdio { command, .. } => command.clone(),
        Transport::Http { url, .. } => vec![url.to_string()],
    };
    (server.place(), command)
}

fn remember(program: Program, era: Era) {
    let mut eras = lock(&ERAS);
    if eras.len() >= MAX_ERAS {
        eras.clear();
    }
    eras.insert(program, era);
}

/// An attempt that failed.
struct Failure {
    error: McpError,
    /// The process was there and could not be connected; it might speak another era.
    connecting: bool,
}

/// Starts it; the server keeps its process. After an error nothing of it is left.
pub(super) async fn start(
    server: &Server,
    launcher: Option<&Arc<dyn Launcher>>,
) -> Result<Arc<Live>, McpError> {
    let limit = server.policy.limits.start;
    let began = Instant::now();
    let started = timeout(limit, in_some_era(server, launcher).boxed()).await;
    let result = started.unwrap_or_else(|_| {
        // Perhaps it was waited for in the wrong era.
        lock(&ERAS).remove(&program(&server.config));
        Err(McpError::Connection {
            server: server.name().to_owned(),
            detail: format!("it was not ready within {} s", limit.as_secs_f64()),
        })
    });
    match &result {
        Ok(live) => {
            let mut record = lock(&server.record);
            record.greeting = Some(live.client.greeting().clone());
            record.started_in = Some(began.elapsed());
        }
        Err(_) => server.end_process(GRACE).await,
    }
    result
}

/// Starts it in the era that it is known to speak, else finds out. Some servers end when they are asked
/// something they do not know, so after any failure to connect it is started again for the other era.
async fn in_some_era(
    server: &Server,
    launcher: Option<&Arc<dyn Launcher>>,
) -> Result<Arc<Live>, McpError> {
    let program = program(&server.config);
    let known = lock(&ERAS).get(&program).copied();
    let order: &[Option<Era>] = match known {
        None => &[None, Some(Era::Handshake)],
        Some(Era::Handshake) => &[Some(Era::Handshake), None],
        Some(Era::Stateless) => &[Some(Era::Stateless), None, Some(Era::Handshake)],
    };
    let mut first = None;
    for era in order {
        let failure = match attempt(server, launcher, *era).await {
            Ok(live) => {
                remember(program, live.client.greeting().era);
                return Ok(live);
            }
            Err(failure) => failure,
        };
        lock(&ERAS).remove(&program);
        server.end_process(GRACE).await;
        // The first failure is that of the era which most servers speak.
        let error = first.get_or_insert(failure.error);
        if !failure.connecting {
            return Err(error.clone());
        }
    }
    Err(first.unwrap_or_else(|| start_error(server, "it was not started", String::new())))
}

async fn attempt(
    server: &Server,
    launcher: Option<&Arc<dyn Launcher>>,
    era: Option<Era>,
) -> Result<Arc<Live>, Failure> {
    let mut options = server.policy.connect_options(&server.config);
    options.era = era;
    let name = server.name().to_owned();
    let not_connecting = |error| Failure {
        error,
        connecting: false,
    };
    let connected = match (&server.config.transport, launcher) {
        (Transport::Http { url, headers }, _) => {
            let connect = Client::connect_http(name, url, headers, &options);
            connect.boxed().await
        }
        (Transport::Stdio { .. }, None) => {
            let error = start_error(server, "nothing here can start it", String::new());
            return Err(not_connecting(error));
        }
        (Transport::Stdio { .. }, Some(launcher)) => {
            let launched = launcher.launch(&server.config).await;
            let launched = launched.map_err(not_connecting)?;
            let process = server.hold(launched.process);
            tokio::select! {
                // A connection that is made counts for more than the end of the process.
                biased;
                connected = Client::connect(name.clone(), launched.stream, &options).boxed() => connected,
                // Something that it started may still hold its stdout.
                _ = process.ended() => Err(McpError::Connection {
                    server: name,
                    detail: "it has ended".into(),
                }),
            }
        }
    };
    let client = match connected {
        Ok(client) => client,
        Err(error) => {
            return Err(Failure {
                error: explained(server, error, "before it was connected").await,
                connecting: true,
            });
        }
    };
    // Made before the lists are read, so that a change meanwhile is not missed.
    let live = Arc::new(Live::new(client));
    match live.client.offer().boxed().await {
        Ok(offer) => {
            server.take_offer(offer);
            Ok(live)
        }
        Err(error) => {
            let error = explained(server, error, "before it was listed").await;
            Err(not_connecting(error))
        }
    }
}

/// If the server has ended by itself, how its process ended is the reason.
async fn explained(server: &Server, error: McpError, when: &str) -> McpError {
    let ended = match &error {
        McpError::Connection { detail, .. } | McpError::Protocol { detail, .. } => {
            is_servers_own(detail)
        }
        McpError::Configuration { .. }
        | McpError::Process { .. }
        | McpError::ToolExecution { .. } => false,
    };
    let Some(process) = server.process().filter(|_| ended) else {
        return error;
    };
    match timeout(AFTERMATH, process.ended()).await {
        Ok(how) => start_error(server, &format!("{how}, {when}"), process.stderr().await),
        Err(_) => error,
    }
}

fn start_error(server: &Server, detail: &str, stderr: String) -> McpError {
    McpError::Process {
        server: server.name().to_owned(),
        what: ProcessFault::Start,
        detail: detail.to_owned(),
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
