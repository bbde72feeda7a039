//! One server's life: started, watched, started again after a crash or a change of its program, given up
//! after too many crashes, ended.
//!
//! - A crash is seen as soon as the process or the stream has ended, and every open call then fails with it.
//! - A server whose very first start fails is not tried again, since what is missing will stay missing,
//!   until its program changes. A change of the program is not a crash.
//! - Accepted: a call that was open at a crash is not made again, since its effect is not known.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::backoff::Backoff;
use futures::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::start::{AFTERMATH, end_of, start};
use super::{Live, NoticeKind, Server, ServerState, Watch};
use crate::client::is_servers_own;
use crate::watch::Watched;
use crate::{Launcher, McpError, ProcessFault, lock};

/// What a server gets between the end of its stdin and SIGTERM, and again before SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// The longest wait before a restart.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// What ends a stretch of a server's life.
enum End {
    Stop,
    /// It crashed, or did not start.
    Down(McpError),
    /// The wait after a crash is over.
    Again,
    /// This file of its program has changed.
    Changed(PathBuf),
}

/// Keeps a server running.
pub(crate) struct Supervisor {
    server: Arc<Server>,
    launcher: Option<Arc<dyn Launcher>>,
    watched: Option<Watched>,
    stop: CancellationToken,
    crashes: Crashes,
}

impl Supervisor {
    pub(crate) fn new(
        server: Arc<Server>,
        launcher: Option<Arc<dyn Launcher>>,
        stop: CancellationToken,
    ) -> Self {
        let policy = &server.policy;
        let crashes = Crashes {
            most: server.config.max_restarts.unwrap_or(policy.max_restarts),
            stable_after: policy.stable_after,
            waits: Backoff::new(policy.restart_backoff, MAX_WAIT),
            has_run: false,
            running_since: None,
        };
        Self {
            server,
            launcher,
            watched: None,
            stop,
            crashes,
        }
    }

    /// Runs the server until it is stopped. A panic in our own code fails this server only.
    pub(crate) async fn run(self) {
        let server = self.server.clone();
        let life = AssertUnwindSafe(self.live().boxed()).catch_unwind();
        if life.await.is_err() {
            tracing::error!(
                mcp.server = server.name(),
                "the task of an MCP server has panicked"
            );
            server.abandon(ended(&server, "an internal error"));
        }
    }

    async fn live(mut self) {
        self.watch().await;
        loop {
            let end = match self.stretch().await {
                End::Down(error) => self.rest(error).await,
                other => other,
            };
            match end {
                End::Stop => break,
                End::Changed(file) => self.program_changed(&file).await,
                End::Again | End::Down(_) => {}
            }
        }
        self.server.end_process(GRACE).await;
        let over = ServerState::Withheld("the session has ended".into());
        self.server.enter(over);
    }

    async fn watch(&mut self) {
        let Some(launcher) = self.launcher.clone() else {
            return;
        };
        if self.server.policy.watch == Watch::Executables {
            let server = self.server.clone();
            let files = tokio::task::spawn_blocking(move || launcher.files(&server.config));
            self.watched = Some(Watched::new(files.await.unwrap_or_default()).await);
        }
    }

    /// From a start to whatever ends it.
    async fn stretch(&mut self) -> End {
        let server = self.server.clone();
        let live = tokio::select! {
            biased;
            () = self.stop.cancelled() => return End::Stop,
            started = start(&server, self.launcher.as_ref()).boxed() => match started {
                Ok(live) => live,
                Err(error) => return End::Down(error),
            },
        };
        if self.crashes.has_run {
            server.notify(NoticeKind::Restarted, "it is running again");
        }
        tracing::info!(
            mcp.server = server.name(),
            mcp.protocol = live.client.greeting().protocol,
            "MCP server is ready"
        );
        self.crashes.begin();
        server.enter_with(ServerState::Ready, Some(live.clone()));
        let end = tokio::select! {
            biased;
            () = self.stop.cancelled() => End::Stop,
            error = crashed(&server, &live) => End::Down(error),
            file = changed(&mut self.watched) => End::Changed(file),
        };
        let gone = match &end {
            End::Down(error) => error.clone(),
            End::Stop | End::Again => ended(&server, "it was shut down"),
            End::Changed(_) => ended(
                &server,
                "it is started again, since its program has changed",
            ),
        };
        // First, since calls wait for it.
        let _ = live.gone.set(gone.clone());
        lock(&server.record).logs = live.client.logs();
        if !matches!(end, End::Stop) {
            server.enter(ServerState::Restarting { after: gone });
        }
        live.client.shutdown().await;
        end
    }

    async fn program_changed(&mut self, file: &std::path::Path) {
        let server = &self.server;
        let text = format!(
            "its program has changed and it is started again: {}",
            file.display()
        );
        tracing::info!(
            mcp.server = server.name(),
            "the program of an MCP server has changed"
        );
        server.notify(NoticeKind::Changed, &text);
        let after = ended(server, "its program has changed");
        server.enter(ServerState::Restarting { after });
        server.end_process(GRACE).await;
        self.crashes.forget();
    }

    /// After a crash: waits for the next start, or gives it up until its program changes.
    async fn rest(&mut self, error: McpError) -> End {
        let server = self.server.clone();
        let (kind, error, wait) = match self.crashes.next_wait() {
            Some(wait) => (NoticeKind::Crashed, error, Some(wait)),
            None if self.crashes.has_run => {
                let error = self.crashes.given_up(server.name(), error);
                (NoticeKind::GivenUp, error, None)
            }
            None => (NoticeKind::Failed, error, None),
        };
        tracing::warn!(
            mcp.server = server.name(),
            mcp.error = error.code(),
            mcp.detail = loggable(&error),
            restart_in_ms = wait.and_then(|wait| u64::try_from(wait.as_millis()).ok()),
            "MCP server is down"
        );
        server.notify(kind, &with_stderr(&error));
        if wait.is_some() {
            let after = error.clone();
            server.enter(ServerState::Restarting { after });
        }
        server.end_process(Duration::ZERO).await;
        if wait.is_none() {
            server.enter(ServerState::Failed(error));
        }
        let waiting = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => End::Stop,
            file = changed(&mut self.watched) => End::Changed(file),
            () = waiting => {
                lock(&server.record).restarts += 1;
                server.metrics.restarted();
                End::Again
            }
        }
    }
}

/// Resolves when a connection or the process behind it has ended, with how it ended or why it was cut off.
async fn crashed(server: &Server, live: &Live) -> McpError {
    let process = server.process();
    let mut over = pin!(async {
        match &process {
            Some(process) => process.ended().await,
            None => std::future::pending().await,
        }
    });
    let how = tokio::select! {
        biased;
        // How a process ended matters only where it was not cut off.
        reason = live.client.ended() => match timeout(AFTERMATH, &mut over).await {
            Ok(how) if is_servers_own(&reason) => how,
            _ => return ended(server, &reason),
        },
        how = &mut over => how,
    };
    McpError::Process {
        server: server.name().to_owned(),
        what: ProcessFault::Ended,
        detail: how,
        stderr: end_of(server.stderr().await),
    }
}

/// Resolves when a file of its program has changed.
async fn changed(watched: &mut Option<Watched>) -> PathBuf {
    match watched {
        Some(watched) => watched.changed().await,
        None => std::future::pending().await,
    }
}

fn ended(server: &Server, why: &str) -> McpError {
    McpError::Protocol {
        server: server.name().to_owned(),
        detail: why.to_owned(),
    }
}

/// The part of an error that contains no words of the server.
fn loggable(error: &McpError) -> Option<&str> {
    match error {
        McpError::Process {
            what: ProcessFault::Start | ProcessFault::Ended,
            detail,
            ..
        } => Some(detail),
        McpError::Process {
            what: ProcessFault::GivenUp,
            ..
        }
        | McpError::Configuration { .. }
        | McpError::Connection { .. }
        | McpError::Protocol { .. }
        | McpError::ToolExecution { .. } => None,
    }
}

/// An error with the last line of stderr, which usually says most.
fn with_stderr(error: &McpError) -> String {
    let last = match error {
        McpError::Process { stderr, .. } => stderr.trim_end().lines().last(),
        _ => None,
    };
    match last {
        Some(line) => format!("{error}; last line of its stderr: {line}"),
        None => error.to_string(),
    }
}

/// How often it crashed lately.
struct Crashes {
    most: u32,
    stable_after: Duration,
    waits: Backoff,
    has_run: bool,
    running_since: Option<Instant>,
}

impl Crashes {
    fn begin(&mut self) {
        self.has_run = true;
        self.running_since = Some(Instant::now());
    }

    fn forget(&mut self) {
        self.waits.reset();
        self.running_since = None;
    }

    /// It crashed: how long to wait before the next start; `None` where there is to be none.
    fn next_wait(&mut self) -> Option<Duration> {
        let ran = self.running_since.take().map(|since| since.elapsed());
        if ran.is_some_and(|ran| ran >= self.stable_after) {
            self.waits.reset();
        }
        (self.has_run && self.waits.failures() < self.most).then(|| self.waits.delay())
    }

    fn given_up(&self, server: &str, last: McpError) -> McpError {
        let times = self.waits.failures() + 1;
        let detail = format!("it went down {times} times in a row; the last time: {last}");
        let stderr = match last {
            McpError::Process { stderr, .. } => stderr,
            _ => String::new(),
        };
        McpError::Process {
            server: server.to_owned(),
            what: ProcessFault::GivenUp,
            detail,
            stderr,
        }
    }
}
