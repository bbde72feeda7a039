//! One configured server, as its own task and the manager see it.

mod life;
mod metrics;
mod notice;
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
use crate::{Client, Greeting, McpError, Offer, ServerProcess, lock};
use metrics::Metrics;
use seen::Seen;

pub(crate) use life::Supervisor;
pub(crate) use metrics::{CallResult, describe as describe_metrics};
pub(crate) use notice::Notices;
pub use notice::{Notice, NoticeKind};
pub use policy::{Changed, ClientRoots, Launchers, ManagerPolicy, Watch};
pub use status::{ServerState, ServerStatus};

/// A list that is read anew has this long. After that the old one is kept until the server says again that
/// it has changed: a slow server must not slow down every step of a session.
const LISTING: Duration = Duration::from_secs(5);
/// After its lists were read, a server is left alone this many times as long as that took: one that changes
/// its lists all the time, and is slow, costs a session at most a tenth of its time.
const PAUSE: u32 = 10;
/// Bytes of all servers' offers together; each is also bounded by itself.
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
    /// Makes room for an offer in the place of another, if there is room.
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
    /// Held here and not by the task, so that the process can be killed whatever the task does.
    process: Mutex<Option<Arc<dyn ServerProcess>>>,
}

/// What the server is doing.
#[derive(Clone)]
struct Phase {
    state: ServerState,
    /// Where it is ready.
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
    /// What the offer counts for.
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

    /// Resolves when it no longer works.
    pub(crate) async fn gone(&self) -> McpError {
        self.gone.wait().await.clone()
    }
}

impl Server {
    /// A server that is `Starting` must be given to a [`Supervisor`].
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

    /// Its task has ended, or is aborted: ends what is left of it at once.
    pub(crate) fn end(&self) {
        self.kill_process();
        match self.state() {
            ServerState::Starting | ServerState::Ready | ServerState::Restarting { .. } => {
                self.enter(ServerState::Withheld("the session has ended".into()));
            }
            ServerState::Disabled | ServerState::Withheld(_) | ServerState::Failed(_) => {}
        }
    }

    /// Its task has panicked: nobody restarts it any more.
    fn abandon(&self, error: McpError) {
        self.kill_process();
        if let Some(live) = self.live() {
            let _ = live.gone.set(error.clone());
        }
        self.notify(NoticeKind::GivenUp, &error.to_string());
        self.enter(ServerState::Failed(error));
    }

    // --- the offer ---

    /// What it offers, without refused tools. `None` where it does not run and will not.
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
                        "all it offers: with it there would be more than {MAX_OFFERS} bytes of all servers"
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

    /// Reads its lists anew if it has said that they have changed.
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
        // Also after a failure: they are read again when the server next says that they have changed.
        *lock(&live.listed) = Listed {
            changes,
            not_before: Instant::now() + began.elapsed() * PAUSE,
        };
        let reason = match listing {
            // One that has ended since may have been started again, with a newer offer.
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

    /// Waits until it can be called. An error says why it cannot.
    pub(crate) async fn ready_within(&self, limit: Duration) -> Result<Arc<Live>, String> {
        let mut phases = self.phase.subscribe();
        let settled = phases.wait_for(|phase| match &phase.state {
            ServerState::Ready => phase
                .live
                .as_ref()
                .is_some_and(|live| live.gone.get().is_none()),
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
                "the server is being started again and was not ready within {} s; it may be later",
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
        let process = lock(&self.process).take();
        if let Some(process) = process {
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
