//! Starts a server: process, connection and first lists, all within one time limit.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, timeout};

use super::{Live, Server};
use crate::client::is_servers_own;
use crate::config::{ServerConfig, ServerPlace, Transport};
use crate::lock::lock;
use crate::text::tail_of;
use crate::{Client, Era, Launcher, McpError, ProcessFault};

/// How long to wait for a process to end after its stdout did, to distinguish a crash from a bad connection.
pub(super) const AFTERMATH: Duration = Duration::from_millis(300);
/// The wait before each signal to a process that could not be connected.
const GRACE: Duration = Duration::from_millis(200);
/// Bytes of stderr in an error.
const MAX_STDERR: usize = 4 * 1024;
/// Commands whose era is remembered. Then all are forgotten: repositories may name ever new ones.
const MAX_ERAS: usize = 1_000;

/// A server's place, and its command or URL; not its environment, which is secret.
type Program = (Option<ServerPlace>, Vec<String>);

/// The detected eras of programs. Only a hint, which saves the probe: the next version of a program may
/// speak another one.
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

/// A failed attempt to start a server.
enum Failure {
    /// It runs but could not be connected; it might speak another era.
    Connecting(McpError),
    Final(McpError),
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
        // The remembered era may be wrong.
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

/// Starts it in the era that it is known to speak, or else detects its era. Some servers end at a request
/// that they do not know, so after a failure to connect it is started again for the other era.
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
        // The error of the first attempt is reported, which is that of the likeliest era.
        match failure {
            Failure::Connecting(error) => drop(first.get_or_insert(error)),
            Failure::Final(error) => return Err(first.unwrap_or(error)),
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
    let connected = match (&server.config.transport, launcher) {
        (Transport::Http { url, headers }, _) => {
            let connect = Client::connect_http(name, url, headers, &options);
            connect.boxed().await
        }
        (Transport::Stdio { .. }, None) => {
            let error = start_error(server, "nothing here can start it", String::new());
            return Err(Failure::Final(error));
        }
        (Transport::Stdio { .. }, Some(launcher)) => {
            let launched = launcher.launch(&server.config).await;
            let launched = launched.map_err(Failure::Final)?;
            let process = server.hold(launched.process);
            tokio::select! {
                // A connection that is made matters more than the end of the process.
                biased;
                connected = Client::connect(name.clone(), launched.stream, &options).boxed() => connected,
                // A process that it started may still hold its stdout.
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
            let error = explained(server, error, "before it was connected").await;
            return Err(Failure::Connecting(error));
        }
    };
    // Before the lists are read, so that a change in the meantime is noticed.
    let live = Arc::new(Live::new(client));
    match live.client.offer().boxed().await {
        Ok(offer) => {
            server.take_offer(offer);
            Ok(live)
        }
        Err(error) => {
            let error = explained(server, error, "before it was listed").await;
            Err(Failure::Final(error))
        }
    }
}

/// If the server has ended by itself, the reason is how its process ended.
async fn explained(server: &Server, error: McpError, when: &str) -> McpError {
    let ended = match &error {
        McpError::Connection { detail, .. } | McpError::Protocol { detail, .. } => {
            is_servers_own(detail)
        }
        McpError::Process { .. } | McpError::ToolExecution { .. } => false,
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

/// The end of a stderr, from the beginning of a line if there is one.
pub(super) fn end_of(stderr: String) -> String {
    let end = tail_of(&stderr, MAX_STDERR);
    match end.split_once('\n') {
        Some((_, lines)) if end.len() < stderr.len() && !lines.is_empty() => lines.to_owned(),
        _ => end.to_owned(),
    }
}
