//! The life of one server: started, watched, restarted after a crash or a change of its program, given up
//! after too many crashes, stopped.
//!
//! - A crash is detected as soon as the process or the stream has ended, and all open calls then fail with it.
//! - A server whose first start fails is not restarted, since the cause is usually permanent, until its
//!   program changes. A change of the program does not count as a crash.
//! - A server with a URL is run by somebody else, who restarts it. After it was given up, it is tried again from time
//!   to time, and its tools are offered again when it is back.
//! - Accepted: a call that was open at a crash is not repeated, since its effect is not known.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
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
use crate::lock::lock;
use crate::text::tail_of;
use crate::watch::Watched;
use crate::{Launcher, McpError, ProcessFault};

/// The wait between the end of a server's stdin and SIGTERM, and again before SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// After a server ran for this long, its crashes are counted from zero again.
const STABLE: Duration = Duration::from_secs(60);
/// Lines of stderr in a notice, and their bytes.
const LAST_LINES: usize = 5;
const MAX_LAST: usize = 600;
/// The longest wait before a restart.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Runs the server until it is stopped. A panic in our own code fails this server only.
pub(crate) async fn run(
    server: Arc<Server>,
    launcher: Option<Arc<dyn Launcher>>,
    stop: CancellationToken,
) {
    let mut life = Life {
        watched: None,
        crashes: Crashes::new(&server),
        server: server.clone(),
        launcher,
    };
    let living = AssertUnwindSafe(life.go_on().boxed()).catch_unwind();
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        _ = living => {
            tracing::error!(
                mcp.server = server.name(),
                "the task of an MCP server has panicked"
            );
            return server.abandon(ended(&server, "an internal error"));
        }
    }
    if let Some(live) = server.live() {
        live.leave(&server, ended(&server, "it was shut down"));
        live.client.shutdown().await;
    }
    server.end_process(GRACE).await;
    server.enter(ServerState::Withheld("the session has ended".into()));
}

struct Life {
    server: Arc<Server>,
    launcher: Option<Arc<dyn Launcher>>,
    watched: Option<Watched>,
    crashes: Crashes,
}

impl Life {
    /// Starts the server again and again.
    async fn go_on(&mut self) {
        if let Some(launcher) = self.launcher.clone()
            && self.server.policy.watch == Watch::Executables
        {
            let server = self.server.clone();
            let files = tokio::task::spawn_blocking(move || launcher.files(&server.config));
            self.watched = Some(Watched::new(files.await.unwrap_or_default()).await);
        }
        loop {
            let end = match start(&self.server, self.launcher.as_ref()).boxed().await {
                Ok(live) => self.serve(&live).await,
                Err(error) => Err(error),
            };
            let changed = match end {
                Ok(file) => Some(file),
                Err(error) => self.rest(error).await,
            };
            if let Some(file) = changed {
                self.program_changed(&file).await;
            }
        }
    }

    /// Serves until its program changes, in which file, or until it crashes.
    async fn serve(&mut self, live: &Arc<Live>) -> Result<PathBuf, McpError> {
        let server = &self.server;
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
            error = crashed(server, live) => Err(error),
            file = changed(&mut self.watched) => Ok(file),
        };
        let after = match &end {
            Ok(_) => ended(server, "it is restarted, since its program has changed"),
            Err(error) => error.clone(),
        };
        // First, since calls wait for the reason.
        live.leave(server, after.clone());
        server.enter(ServerState::Restarting { after });
        live.client.shutdown().await;
        end
    }

    async fn program_changed(&mut self, file: &Path) {
        let server = &self.server;
        tracing::info!(
            mcp.server = server.name(),
            "the program of an MCP server has changed"
        );
        let file = file.display();
        let text = format!("its program has changed and it is restarted: {file}");
        server.notify(NoticeKind::Changed, &text);
        let after = ended(server, "its program has changed");
        server.enter(ServerState::Restarting { after });
        server.end_process(GRACE).await;
        self.crashes.forget();
    }

    /// After a crash: waits for the next start, or, if there is to be none, for a change of the program, and
    /// returns the changed file.
    async fn rest(&mut self, error: McpError) -> Option<PathBuf> {
        let server = &self.server;
        let (kind, error, wait) = match self.crashes.next_wait() {
            Some(wait) => (NoticeKind::Crashed, error, Some(wait)),
            None if self.crashes.has_run => {
                let error = self.crashes.given_up(server.name(), error);
                (NoticeKind::GivenUp, error, None)
            }
            None => (NoticeKind::Failed, error, None),
        };
        // If it was down before, this was an attempt to reach it again, and changes nothing.
        let is_news = !matches!(server.state(), ServerState::Failed(_));
        if is_news {
            tracing::warn!(
                mcp.server = server.name(),
                mcp.error = error.code(),
                mcp.detail = loggable(&error),
                restart_in_ms = wait.and_then(|wait| u64::try_from(wait.as_millis()).ok()),
                "MCP server is down"
            );
            server.notify(kind, &with_stderr(&error));
        }
        if wait.is_some() {
            let after = error.clone();
            server.enter(ServerState::Restarting { after });
        }
        server.end_process(Duration::ZERO).await;
        if wait.is_none() && is_news {
            server.enter(ServerState::Failed(error));
        }
        let wait = wait.or_else(|| self.crashes.next_attempt(server));
        let wait = wait.map(sleep);
        tokio::select! {
            biased;
            file = changed(&mut self.watched) => Some(file),
            () = or_never(wait) => {
                lock(&server.record).restarts += 1;
                server.metrics.restarted();
                None
            }
        }
    }
}

async fn or_never<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Resolves when a file of its program has changed.
async fn changed(watched: &mut Option<Watched>) -> PathBuf {
    or_never(watched.as_mut().map(Watched::changed)).await
}

/// Resolves when a connection or its process has ended: with how it ended, or why it was closed.
async fn crashed(server: &Server, live: &Live) -> McpError {
    let process = server.process();
    let mut over = pin!(or_never(process.as_ref().map(|process| process.ended())));
    let how = tokio::select! {
        biased;
        // How a process ended matters only if its connection was not closed for something it did.
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
        | McpError::Connection { .. }
        | McpError::Protocol { .. }
        | McpError::ToolExecution { .. } => None,
    }
}

/// An error with the last lines of stderr, which usually show the cause.
fn with_stderr(error: &McpError) -> String {
    let McpError::Process { stderr, .. } = error else {
        return error.to_string();
    };
    let lines: Vec<&str> = stderr
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ");
    match tail_of(&last, MAX_LAST) {
        "" => error.to_string(),
        tail => format!("{error}; the end of its stderr: {tail}"),
    }
}

/// The recent crashes.
struct Crashes {
    max: u32,
    waits: Backoff,
    has_run: bool,
    running_since: Option<Instant>,
    /// Whether it was given up since it last ran for a while.
    was_given_up: bool,
    /// Whether it was reached after that, and went down at once. Its tools would come and go, so it stays away.
    flaps: bool,
}

impl Crashes {
    fn new(server: &Server) -> Self {
        let policy = &server.policy;
        Self {
            max: server.config.max_restarts.unwrap_or(policy.max_restarts),
            waits: Backoff::new(policy.restart_backoff, MAX_WAIT),
            has_run: false,
            running_since: None,
            was_given_up: false,
            flaps: false,
        }
    }

    fn begin(&mut self) {
        self.has_run = true;
        self.running_since = Some(Instant::now());
    }

    fn forget(&mut self) {
        self.waits.reset();
        self.running_since = None;
    }

    /// The wait before the next start after a crash; `None`: it is not started again.
    fn next_wait(&mut self) -> Option<Duration> {
        let ran = self.running_since.take().map(|since| since.elapsed());
        if ran.is_some_and(|ran| ran >= STABLE) {
            self.waits.reset();
            self.was_given_up = false;
        }
        self.flaps |= ran.is_some() && self.was_given_up;
        (self.has_run && self.waits.failures() < self.max).then(|| self.waits.delay())
    }

    /// The wait before another attempt to reach a server that was given up; `None`: there is none.
    fn next_attempt(&mut self, server: &Server) -> Option<Duration> {
        let is_elsewhere = server.config.place().is_none();
        self.was_given_up = true;
        (is_elsewhere && self.has_run && self.max > 0 && !self.flaps).then(|| self.waits.delay())
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
