//! One configured server, as its own task and the manager see it.

pub(crate) mod life;
mod metrics;
mod policy;
mod seen;
mod start;
mod status;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{SetOnce, watch};
use tokio::time::{Instant, timeout};

use crate::config::ServerConfig;
use crate::lock::lock;
use crate::{Client, Greeting, McpError, Offer, ServerProcess};
use metrics::Metrics;
use seen::Seen;

pub(crate) use metrics::{CallResult, describe as describe_metrics};
pub use policy::{ClientRoots, Launchers, ManagerPolicy, Watch};
pub(crate) use status::Notices;
pub use status::{Notice, NoticeKind, ServerState, ServerStatus};

/// Time limit for reading changed lists. Then the old ones are kept until the next notification of a change:
/// a slow server must not slow down every step of a session.
const LISTING: Duration = Duration::from_secs(5);
/// After its lists were read, they are not read again for this many times as long as that took: a slow server
/// that changes its lists all the time costs a session at most a tenth of its time.
const PAUSE: u32 = 10;
/// Bytes of all servers' offers together; each also has its own limits.
const MAX_OFFERS: usize = 64 * 1024 * 1024;

/// What all servers of a manager share.
#[derive(Default)]
pub(crate) struct Common {
    pub(crate) notices: Notices,
    /// Counts what a refresh has to take in.
    pub(crate) news: AtomicU64,
    /// Bytes of all offers.
    offered: AtomicUsize,
}

impl Common {
    /// Reserves room for an offer that replaces another, if there is room.
    fn room(&self, before: usize, now: usize) -> bool {
        let exchanged = |all: usize| {
            let all = all.saturating_sub(before) + now;
            (now <= before || all <= MAX_OFFERS).then_some(all)
        };
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        self.offered.fetch_update(set, fetch, exchanged).is_ok()
    }
}

/// One configured server, started or not.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    policy: Arc<ManagerPolicy>,
    common: Arc<Common>,
    pub(crate) metrics: Metrics,
    phase: watch::Sender<Phase>,
    record: Mutex<Record>,
    /// Not owned by the task, so that the process can be killed in any state of the task.
    process: Mutex<Option<Arc<dyn ServerProcess>>>,
}

#[derive(Clone)]
struct Phase {
    state: ServerState,
    /// If it is ready.
    live: Option<Arc<Live>>,
}

/// A connection that works, or did a moment ago.
pub(crate) struct Live {
    pub(crate) client: Client,
    /// Why it no longer works.
    gone: SetOnce<McpError>,
    listed: Mutex<Listed>,
}

/// When its lists were last read.
#[derive(Clone, Copy)]
struct Listed {
    /// The count of changes that the offer includes.
    changes: u64,
    /// When the lists may be read again.
    not_before: Instant,
}

/// What is kept over restarts.
#[derive(Default)]
struct Record {
    seen: Seen,
    offer: Arc<Offer>,
    /// Bytes of the offer.
    bytes: usize,
    greeting: Option<Greeting>,
    started_in: Option<Duration>,
    restarts: u32,
    /// Of the last process that ended.
    stderr: String,
    logs: Vec<String>,
}

impl Live {
    pub(crate) fn new(client: Client) -> Self {
        let listed = Listed {
            changes: *client.changes().borrow(),
            not_before: Instant::now(),
        };
        Self {
            client,
            gone: SetOnce::new(),
            listed: Mutex::new(listed),
        }
    }

    /// Its calls fail with this error from now on.
    fn leave(&self, server: &Server, why: McpError) {
        let _ = self.gone.set(why);
        lock(&server.record).logs = self.client.logs();
    }

    /// Resolves when it no longer works.
    pub(crate) async fn gone(&self) -> McpError {
        self.gone.wait().await.clone()
    }
}

impl Server {
    /// A server that is `Starting` must be given to [`life::run`].
    pub(crate) fn new(
        config: ServerConfig,
        policy: Arc<ManagerPolicy>,
        common: Arc<Common>,
        state: ServerState,
    ) -> Self {
        let metrics = Metrics::of(&config);
        metrics.entered(&state);
        Self {
            config,
            policy,
            common,
            metrics,
            phase: watch::Sender::new(Phase { state, live: None }),
            record: Mutex::default(),
            process: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    fn notify(&self, kind: NoticeKind, text: &str) {
        self.common.notices.push(self.name(), kind, text);
    }

    fn state(&self) -> ServerState {
        self.phase.borrow().state.clone()
    }

    fn live(&self) -> Option<Arc<Live>> {
        self.phase.borrow().live.clone()
    }

    fn enter(&self, state: ServerState) {
        self.enter_with(state, None);
    }

    fn enter_with(&self, state: ServerState, live: Option<Arc<Live>>) {
        self.metrics.entered(&state);
        let before = self.phase.send_replace(Phase { state, live });
        self.metrics.left(&before.state);
        self.common.news.fetch_add(1, Ordering::SeqCst);
    }

    /// Resolves when the first start has succeeded or failed.
    pub(crate) async fn started(&self) {
        let mut phases = self.phase.subscribe();
        let begun = phases.wait_for(|phase| !matches!(phase.state, ServerState::Starting));
        let _ = begun.await;
    }

    /// Whether it is meant to run.
    pub(crate) fn is_used(&self) -> bool {
        match self.state() {
            ServerState::Disabled | ServerState::Withheld(_) => false,
            ServerState::Starting
            | ServerState::Ready
            | ServerState::Restarting { .. }
            | ServerState::Failed(_) => true,
        }
    }

    /// Its task has ended or was aborted: kills what is left of it.
    pub(crate) fn end(&self) {
        self.kill_process();
        match self.state() {
            ServerState::Starting | ServerState::Ready | ServerState::Restarting { .. } => {
                self.enter(ServerState::Withheld("the session has ended".into()));
            }
            ServerState::Disabled | ServerState::Withheld(_) | ServerState::Failed(_) => {}
        }
    }

    /// Its task has panicked, so it is not restarted.
    fn abandon(&self, error: McpError) {
        self.kill_process();
        if let Some(live) = self.live() {
            live.leave(self, error.clone());
        }
        self.notify(NoticeKind::GivenUp, &error.to_string());
        self.enter(ServerState::Failed(error));
    }

    // --- the offer ---

    /// Its offer without refused tools. `None` if it neither runs nor is being restarted.
    pub(crate) fn offer(&self) -> Option<Arc<Offer>> {
        match self.state() {
            ServerState::Ready | ServerState::Restarting { .. } => {
                Some(lock(&self.record).offer.clone())
            }
            ServerState::Disabled
            | ServerState::Withheld(_)
            | ServerState::Starting
            | ServerState::Failed(_) => None,
        }
    }

    pub(crate) fn take_offer(&self, offer: Offer) {
        let notices = {
            let mut record = lock(&self.record);
            let (mut offer, notices) = record.seen.take(offer, self.policy.changed_descriptions);
            if *record.offer != offer {
                let (before, mut now) = (record.bytes, offer.bytes());
                if !self.common.room(before, now) {
                    let why = format!(
                        "everything it offers, because all servers together would offer more than {MAX_OFFERS} bytes"
                    );
                    offer = Offer {
                        left_out: vec![why],
                        ..Offer::default()
                    };
                    now = offer.bytes();
                    self.common.room(before, now);
                }
                record.bytes = now;
                record.offer = Arc::new(offer);
                self.common.news.fetch_add(1, Ordering::SeqCst);
            }
            notices
        };
        for (kind, text) in notices {
            self.notify(kind, &text);
        }
    }

    /// Reads its lists again if it has notified us of a change.
    pub(crate) async fn relist(&self) {
        let Some(live) = self.live() else {
            return;
        };
        let changes = *live.client.changes().borrow();
        let listed = *lock(&live.listed);
        let began = Instant::now();
        if listed.changes == changes || began < listed.not_before {
            return;
        }
        let listing = timeout(LISTING, Box::pin(live.client.offer())).await;
        // Also after a failure: then they are read again at the next notification.
        *lock(&live.listed) = Listed {
            changes,
            not_before: Instant::now() + began.elapsed() * PAUSE,
        };
        let reason = match listing {
            // It may have been restarted since, with a newer offer.
            Ok(_) if live.client.closed() => return,
            Ok(Ok(offer)) => return self.take_offer(offer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("there was no answer within {} s", LISTING.as_secs()),
        };
        tracing::warn!(
            mcp.server = self.name(),
            "the changed lists of an MCP server cannot be read"
        );
        let text = format!(
            "what it offers has changed and could not be read; the old lists are kept: {reason}"
        );
        self.notify(NoticeKind::Changed, &text);
    }

    // --- calls ---

    /// Waits until it can be called. An error is the reason why it cannot.
    pub(crate) async fn ready_within(&self, limit: Duration) -> Result<Arc<Live>, String> {
        let mut phases = self.phase.subscribe();
        let works = |live: &Arc<Live>| live.gone.get().is_none();
        let settled = phases.wait_for(|phase| match &phase.state {
            ServerState::Ready => phase.live.as_ref().is_some_and(works),
            ServerState::Starting | ServerState::Restarting { .. } => false,
            ServerState::Disabled | ServerState::Withheld(_) | ServerState::Failed(_) => true,
        });
        match timeout(limit, settled).await {
            Ok(Ok(phase)) => match &phase.live {
                Some(live) => Ok(live.clone()),
                None => Err(self.unavailable(&phase.state)),
            },
            Ok(Err(_)) => Err("the session has ended".into()),
            Err(_) => Err(format!(
                "the server is being restarted and was not ready within {} s; try again later",
                limit.as_secs_f64()
            )),
        }
    }

    fn unavailable(&self, state: &ServerState) -> String {
        let why = match state {
            ServerState::Disabled => "it is disabled".to_owned(),
            ServerState::Withheld(why) => why.clone(),
            ServerState::Starting | ServerState::Restarting { .. } | ServerState::Ready => {
                "it is being started".to_owned()
            }
            ServerState::Failed(error) => error.to_string(),
        };
        format!("the MCP server {:?} is not running: {why}", self.name())
    }

    // --- the process ---

    fn hold(&self, process: Box<dyn ServerProcess>) -> Arc<dyn ServerProcess> {
        let process: Arc<dyn ServerProcess> = process.into();
        *lock(&self.process) = Some(process.clone());
        process
    }

    fn process(&self) -> Option<Arc<dyn ServerProcess>> {
        lock(&self.process).clone()
    }

    /// Ends the process, if there is one, and returns when nothing of it is left.
    async fn end_process(&self, grace: Duration) {
        if let Some(process) = self.process() {
            process.stop(grace).await;
            let stderr = process.stderr().await;
            lock(&self.record).stderr = stderr;
            lock(&self.process).take();
        }
    }

    /// Kills the process, if there is one, without waiting.
    fn kill_process(&self) {
        if let Some(process) = lock(&self.process).take() {
            process.kill();
        }
    }

    // --- for people ---

    pub(crate) async fn stderr(&self) -> String {
        match self.process() {
            Some(process) => process.stderr().await,
            None => lock(&self.record).stderr.clone(),
        }
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let Phase { state, live } = self.phase.borrow().clone();
        let record = lock(&self.record);
        ServerStatus {
            config: self.config.clone(),
            state,
            greeting: record.greeting.clone(),
            started_in: record.started_in,
            restarts: record.restarts,
            pid: self.process().and_then(|process| process.pid()),
            logs: live.map_or_else(|| record.logs.clone(), |live| live.client.logs()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.metrics.left(&self.state());
    }
}
