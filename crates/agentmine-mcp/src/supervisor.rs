//! One server's life: started, watched, started again when it crashes or its program changes, given up
//! when it crashes too often, ended.
//!
//! Promised: a crash is seen as soon as its process or its stream has ended, and every call of it is
//! answered then. A server whose very first start fails is not tried again by itself, since what is
//! missing will stay so; its program's change starts it again. A change of the program is no crash.
//! Accepted: a call that was under way at a crash is not made again, since what it did is not known.

mod eras;
mod seen;
mod shared;
mod start;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::backoff::Backoff;
use futures::FutureExt as _;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::is_servers_own;
use crate::manager::NoticeKind;
use crate::watch::{Watched, Watcher};
use crate::{Launcher, McpError, ProcessFault};

pub(crate) use shared::{Common, Live, Phase, Shared, unavailable};
use start::{AFTERMATH, end_of, start};

/// What a server gets between the end of its stdin and SIGTERM, and again before SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// The longest wait before a restart.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// What ends a stretch of a server's life.
enum Event {
    Stop,
    Crashed(McpError),
    /// It did not come up.
    Failed(McpError),
    /// Its program has.
    Changed(String),
}

/// A server and what it takes to run it.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) launcher: Option<Arc<dyn Launcher>>,
    /// Where the program's files are to be watched.
    pub(crate) watcher: Option<Arc<Watcher>>,
    pub(crate) watched: Option<Watched>,
    pub(crate) stop: CancellationToken,
}

impl Supervisor {
    /// Runs it until it is told to stop. Should our own code come to grief over it, it has failed as if
    /// it had been given up.
    pub(crate) async fn run(self) {
        let shared = self.shared.clone();
        let life = AssertUnwindSafe(self.live().boxed()).catch_unwind();
        if life.await.is_err() {
            tracing::error!(
                mcp.server = shared.name(),
                "the care for an MCP server has panicked"
            );
            shared.abandon(ended(&shared, "an internal error"));
        }
    }

    async fn live(mut self) {
        let mut crashes = Crashes::new(&self.shared);
        if let (Some(watcher), Some(launcher)) = (self.watcher.take(), self.launcher.clone()) {
            let shared = self.shared.clone();
            // It reads the files.
            let watching = move || watcher.watch(launcher.files(&shared.config));
            let watched = tokio::task::spawn_blocking(watching).await;
            self.watched = watched.unwrap_or_default();
        }
        loop {
            let next = match self.stretch(&mut crashes).await {
                Event::Stop => break,
                Event::Changed(file) => {
                    self.program_changed(&file).await;
                    crashes.forget();
                    continue;
                }
                Event::Failed(error) if crashes.never_ran => {
                    self.down(error, NoticeKind::Failed).await
                }
                Event::Failed(error) | Event::Crashed(error) => match crashes.next() {
                    Some(wait) => self.again(error, wait).await,
                    None => {
                        let error = crashes.given_up(error);
                        self.down(error, NoticeKind::GivenUp).await
                    }
                },
            };
            match next {
                Event::Stop => break,
                Event::Changed(file) => {
                    self.program_changed(&file).await;
                    crashes.forget();
                }
                Event::Crashed(_) | Event::Failed(_) => {}
            }
        }
        self.shared.end_process(GRACE).await;
        self.shared.enter(Phase::Stopped);
    }

    /// From a start to whatever ends it.
    async fn stretch(&mut self, crashes: &mut Crashes) -> Event {
        let shared = self.shared.clone();
        let live = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Event::Stop,
            started = start(&shared, self.launcher.as_ref()).boxed() => match started {
                Ok(live) => live,
                Err(error) => return Event::Failed(error),
            },
        };
        if !crashes.never_ran {
            shared.tell(NoticeKind::Restarted, "it is running again");
        }
        tracing::info!(
            mcp.server = shared.name(),
            mcp.protocol = live.client.greeting().protocol,
            "MCP server is ready"
        );
        crashes.running();
        shared.enter(Phase::Ready(live.clone()));
        let event = tokio::select! {
            biased;
            () = self.stop.cancelled() => Event::Stop,
            error = crashed(&shared, &live) => Event::Crashed(error),
            file = changed(&mut self.watched) => Event::Changed(file),
        };
        // Calls first: they wait.
        let gone = match &event {
            Event::Crashed(error) | Event::Failed(error) => error.clone(),
            Event::Stop => ended(&shared, "it was shut down"),
            Event::Changed(_) => ended(
                &shared,
                "it is started again, since its program has changed",
            ),
        };
        live.gone.send_replace(Some(gone.clone()));
        shared.keep_logs(&live);
        if !matches!(event, Event::Stop) {
            shared.enter(Phase::Restarting(gone));
        }
        live.client.shutdown().await;
        event
    }

    async fn program_changed(&self, file: &str) {
        let shared = &self.shared;
        let text = format!("its program has changed and it is started again: {file}");
        tracing::info!(
            mcp.server = shared.name(),
            "the program of an MCP server has changed"
        );
        shared.tell(NoticeKind::Changed, &text);
        shared.enter(Phase::Restarting(ended(shared, "its program has changed")));
        shared.end_process(GRACE).await;
    }

    /// It crashed, and will be started again after a wait.
    async fn again(&mut self, error: McpError, wait: Duration) -> Event {
        let shared = self.shared.clone();
        tracing::warn!(
            mcp.server = shared.name(),
            mcp.error = error.code(),
            mcp.detail = loggable(&error),
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "MCP server is down and will be started again"
        );
        shared.tell(NoticeKind::Crashed, &told(&error));
        shared.enter(Phase::Restarting(error.clone()));
        shared.end_process(Duration::ZERO).await;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Event::Stop,
            file = changed(&mut self.watched) => Event::Changed(file),
            () = tokio::time::sleep(wait) => {
                shared.count_restart();
                Event::Crashed(error)
            }
        }
    }

    /// It is not started again, unless its program changes.
    async fn down(&mut self, error: McpError, kind: NoticeKind) -> Event {
        let shared = self.shared.clone();
        tracing::warn!(
            mcp.server = shared.name(),
            mcp.error = error.code(),
            mcp.detail = loggable(&error),
            "MCP server is inactive"
        );
        shared.tell(kind, &told(&error));
        shared.end_process(Duration::ZERO).await;
        shared.enter(Phase::Failed(error));
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Event::Stop,
            file = changed(&mut self.watched) => Event::Changed(file),
        }
    }
}

/// Resolves when a connection or the process behind it has ended, with how, or why it was cut off.
async fn crashed(shared: &Shared, live: &Live) -> McpError {
    let process = shared.process();
    let mut over = pin!(async {
        match &process {
            Some(process) => process.ended().await,
            None => std::future::pending().await,
        }
    });
    let how = tokio::select! {
        biased;
        // A process that ends because it was cut off is no news; why it was is.
        reason = live.client.ended() => match timeout(AFTERMATH, &mut over).await {
            Ok(how) if is_servers_own(&reason) => how,
            _ => return ended(shared, &reason),
        },
        how = &mut over => how,
    };
    let stderr = match &process {
        Some(process) => process.stderr().await,
        None => String::new(),
    };
    McpError::Process {
        server: shared.name().to_owned(),
        what: ProcessFault::Ended,
        detail: how,
        stderr: end_of(stderr),
    }
}

/// Resolves when a file of its program has changed.
async fn changed(watched: &mut Option<Watched>) -> String {
    match watched {
        Some(watched) => Path::display(&watched.changed().await).to_string(),
        None => std::future::pending().await,
    }
}

fn ended(shared: &Shared, why: &str) -> McpError {
    McpError::Protocol {
        server: shared.name().to_owned(),
        detail: why.to_owned(),
    }
}

/// As much of an error as holds no word of the server.
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

/// An error with the last line of stderr, which mostly tells most.
fn told(error: &McpError) -> String {
    let stderr = match error {
        McpError::Process { stderr, .. } => stderr.trim_end(),
        _ => "",
    };
    match stderr.lines().last() {
        Some(line) => format!("{error}; its last words: {line}"),
        None => error.to_string(),
    }
}

/// How often it crashed lately.
struct Crashes {
    server: String,
    most: u32,
    stable_after: Duration,
    waits: Backoff,
    never_ran: bool,
    began: Option<Instant>,
}

impl Crashes {
    fn new(shared: &Shared) -> Self {
        let policy = &shared.policy;
        Self {
            server: shared.name().to_owned(),
            most: shared.config.max_restarts.unwrap_or(policy.max_restarts),
            stable_after: policy.stable_after,
            waits: Backoff::new(policy.restart_backoff, MAX_WAIT),
            never_ran: true,
            began: None,
        }
    }

    fn running(&mut self) {
        self.never_ran = false;
        self.began = Some(Instant::now());
    }

    fn forget(&mut self) {
        self.waits.reset();
        self.began = None;
    }

    /// It crashed: how long to wait before the next start; `None` where there is to be none.
    fn next(&mut self) -> Option<Duration> {
        let ran = self.began.take().map(|began| began.elapsed());
        if ran.is_some_and(|ran| ran >= self.stable_after) {
            self.waits.reset();
        }
        (self.waits.failures() < self.most).then(|| self.waits.delay())
    }

    fn given_up(&self, last: McpError) -> McpError {
        let times = self.waits.failures() + 1;
        let detail = format!("it went down {times} times in a row; the last time: {last}");
        let stderr = match last {
            McpError::Process { stderr, .. } => stderr,
            _ => String::new(),
        };
        McpError::Process {
            server: self.server.clone(),
            what: ProcessFault::GivenUp,
            detail,
            stderr,
        }
    }
}
