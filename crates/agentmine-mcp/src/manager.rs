//! All servers of a session: started together, watched, restarted, routed to, ended together.
//!
//! A server that fails takes only its own tools with it. The offer changes only in
//! [`Manager::refresh`], which the loop calls between model calls: within one model call the tools
//! and their names stay as they were told. What a server may do is said by [`ManagerPolicy`]; names that could
//! be taken for another's are refused (see `shadow.rs` for the rule).

mod catalog;
mod metrics;
mod notice;
mod policy;
mod route;
mod shadow;
mod status;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::{Owner, Place, ServerConfig, Transport};
use crate::lock;
use crate::supervisor::{Common, Phase, Shared, Supervisor};
use crate::watch::Watcher;

pub use catalog::Catalog;
pub(crate) use metrics::{Metrics, Outcome};
pub(crate) use notice::Notices;
pub use notice::{Notice, NoticeKind};
pub use policy::{Changed, ClientRoots, Launchers, ManagerPolicy, Watch};
pub use status::{ServerState, ServerStatus};

/// How long all servers together may take to end; then what is left is killed.
const SHUTDOWN: Duration = Duration::from_secs(12);

/// The servers of a session. Dropping it kills what it started, at once; [`Self::shutdown`] is kinder.
pub struct Manager {
    servers: BTreeMap<String, Slot>,
    policy: Arc<ManagerPolicy>,
    common: Arc<Common>,
    current: Mutex<Arc<Catalog>>,
    /// What `current` takes in, and what was told of names. One refresh at a time.
    taken_in: tokio::sync::Mutex<TakenIn>,
}

#[derive(Default)]
struct TakenIn {
    news: Option<u64>,
    told: BTreeSet<(String, String)>,
}

/// A configured server.
enum Slot {
    /// It is not started.
    Idle(Box<ServerConfig>, ServerState),
    Running(Running),
}

struct Running {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Manager {
    /// Starts all enabled servers side by side, and waits until each is ready, has failed or is past
    /// its start limit. Of two entries of one name the last counts.
    pub async fn start(
        servers: impl IntoIterator<Item = ServerConfig>,
        launchers: Launchers,
        policy: ManagerPolicy,
    ) -> Self {
        metrics::describe();
        let by_name: BTreeMap<String, ServerConfig> = servers
            .into_iter()
            .map(|server| (server.name.clone(), server))
            .collect();
        let configured: Vec<ServerConfig> = by_name.into_values().collect();
        let mut manager = Self {
            servers: BTreeMap::new(),
            policy: Arc::new(policy),
            common: Arc::default(),
            current: Mutex::default(),
            taken_in: tokio::sync::Mutex::default(),
        };
        let watcher = match manager.policy.watch {
            Watch::Executables => Watcher::new(),
            Watch::Nothing => None,
        };
        for server in &configured {
            let slot = match manager.idle(server, &configured, &launchers) {
                Some(state) => {
                    Metrics::of(server).entered(state.word());
                    Slot::Idle(Box::new(server.clone()), state)
                }
                None => Slot::Running(manager.run(server, &launchers, watcher.as_ref())),
            };
            manager.servers.insert(server.name.clone(), slot);
        }
        // Every start has its limit; this one is for a start that has come to grief in our own code.
        let limit = manager.policy.limits.start + SHUTDOWN;
        join_all(manager.running().map(|server| async move {
            let mut phases = server.shared.phases();
            let begun = phases.wait_for(|phase| !matches!(phase, Phase::Starting));
            let _ = timeout(limit, begun).await;
        }))
        .await;
        manager.refresh().await;
        manager
    }

    /// Why a server is not started, if it is not.
    fn idle(
        &self,
        server: &ServerConfig,
        all: &[ServerConfig],
        launchers: &Launchers,
    ) -> Option<ServerState> {
        if !server.enabled {
            return Some(ServerState::Disabled);
        }
        if self.policy.withheld.contains(&server.name) {
            return Some(ServerState::Withheld(
                "the session's policy withholds it".into(),
            ));
        }
        let place = match &server.transport {
            Transport::Stdio { place, .. } => Some(*place),
            Transport::Http { .. } => None,
        };
        let (kind, why) = if let Some(why) = shadow::imitates(server, all, &self.policy.fixed) {
            (NoticeKind::Shadowed, why)
        } else if server.origin.owner == Owner::Repository && place != Some(Place::Sandbox) {
            // The configuration sees to it already; this is the last gate before a process of ours.
            let why = "a repository's server runs only in the sandbox";
            (NoticeKind::LeftOut, why.to_owned())
        } else {
            let missing = match place {
                Some(Place::Worker) if launchers.worker.is_none() => {
                    "no servers run on this machine here"
                }
                Some(Place::Sandbox) if launchers.sandbox.is_none() => "there is no sandbox here",
                Some(Place::Worker | Place::Sandbox) | None => return None,
            };
            (NoticeKind::LeftOut, missing.to_owned())
        };
        self.common.notices.tell(&server.name, kind, &why);
        Some(ServerState::Withheld(why))
    }

    fn run(
        &self,
        server: &ServerConfig,
        launchers: &Launchers,
        watcher: Option<&Arc<Watcher>>,
    ) -> Running {
        let (policy, common) = (self.policy.clone(), self.common.clone());
        let shared = Arc::new(Shared::new(server.clone(), policy, common));
        let launcher = match &server.transport {
            Transport::Stdio {
                place: Place::Worker,
                ..
            } => launchers.worker.clone(),
            Transport::Stdio {
                place: Place::Sandbox,
                ..
            } => launchers.sandbox.clone(),
            Transport::Http { .. } => None,
        };
        let stop = CancellationToken::new();
        let supervisor = Supervisor {
            shared: shared.clone(),
            launcher,
            watcher: watcher.cloned(),
            watched: None,
            stop: stop.clone(),
        };
        let task = tokio::spawn(supervisor.run());
        Running {
            shared,
            stop,
            task: Mutex::new(Some(task)),
        }
    }

    fn running(&self) -> impl Iterator<Item = &Running> {
        self.servers.values().filter_map(|slot| match slot {
            Slot::Running(running) => Some(running),
            Slot::Idle(..) => None,
        })
    }

    /// What servers offer, as of the last refresh.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        lock(&self.current).clone()
    }

    /// Takes in what has changed: lists that servers said had changed, restarts, servers given up.
    /// Cheap where nothing has. A server that is slow to tell its new lists is not waited for long.
    pub async fn refresh(&self) -> Arc<Catalog> {
        let mut taken_in = self.taken_in.lock().await;
        join_all(self.running().map(|server| server.shared.relist())).await;
        let news = self.common.news.load(Ordering::SeqCst);
        if taken_in.news != Some(news) {
            taken_in.news = Some(news);
            let catalog = Arc::new(self.gather(&mut taken_in.told));
            *lock(&self.current) = catalog;
        }
        self.catalog()
    }

    fn gather(&self, told: &mut BTreeSet<(String, String)>) -> Catalog {
        let mut offers: Vec<(&ServerConfig, Arc<crate::Offer>)> = self
            .running()
            .filter_map(|server| Some((&server.shared.config, server.shared.offer()?)))
            .collect();
        offers.sort_by(|(one, _), (other, _)| shadow::rank(one).cmp(&shadow::rank(other)));
        let mut judge = shadow::Judge::new(&self.policy.fixed);
        let mut faults = BTreeSet::new();
        let mut servers = BTreeMap::new();
        for (server, offer) in offers {
            let (kept, why) = judge.judge(server, &offer);
            let offer = if why.is_empty() {
                offer
            } else {
                Arc::new(kept)
            };
            servers.insert(server.name.clone(), offer);
            faults.extend(why.into_iter().map(|why| (server.name.clone(), why)));
        }
        for (server, why) in faults.difference(told) {
            self.common.notices.tell(server, NoticeKind::Shadowed, why);
        }
        *told = faults;
        let offers = servers
            .iter()
            .map(|(name, offer)| (name.as_str(), &**offer));
        let wire = shadow::wire(&self.policy.fixed, offers);
        Catalog { wire, servers }
    }

    /// What happened since this was last asked; for a session's transcript.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        self.common.notices.take()
    }

    /// Every server that is configured, by name.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        let slots = self.servers.values();
        let status = slots.map(|slot| match slot {
            Slot::Idle(config, state) => ServerStatus {
                config: (**config).clone(),
                state: state.clone(),
                greeting: None,
                started_in: None,
                restarts: 0,
                pid: None,
                logs: Vec::new(),
            },
            Slot::Running(running) => running.shared.status(),
        });
        status.collect()
    }

    /// The last of what a server's process wrote to stderr, also of one that has ended; hostile text
    /// without control characters. Empty where there is none.
    pub async fn stderr(&self, server: &str) -> String {
        match self.servers.get(server) {
            Some(Slot::Running(running)) => running.shared.stderr().await,
            Some(Slot::Idle(..)) | None => String::new(),
        }
    }

    /// Ends all servers side by side: their stdin is closed, then SIGTERM, then SIGKILL. Returns when
    /// nothing of them is left, after a dozen seconds at most.
    pub async fn shutdown(&self) {
        join_all(self.running().map(|server| async move {
            server.stop.cancel();
            let task = lock(&server.task).take();
            let Some(mut task) = task else {
                // Somebody else ends it, or has.
                let mut phases = server.shared.phases();
                let over = phases.wait_for(|phase| matches!(phase, Phase::Stopped));
                let _ = timeout(SHUTDOWN, over).await;
                return;
            };
            if timeout(SHUTDOWN, &mut task).await.is_err() {
                tracing::warn!(
                    mcp.server = server.shared.name(),
                    deadline_ms = u64::try_from(SHUTDOWN.as_millis()).unwrap_or(u64::MAX),
                    "MCP server did not end in time and is killed"
                );
                task.abort();
            }
            server.shared.kill_process();
            server.shared.enter(Phase::Stopped);
        }))
        .await;
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for slot in self.servers.values() {
            match slot {
                Slot::Idle(config, state) => Metrics::of(config).left(state.word()),
                Slot::Running(server) => {
                    if let Some(task) = lock(&server.task).take() {
                        task.abort();
                    }
                    server.shared.kill_process();
                }
            }
        }
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager")
            .field("servers", &self.servers.keys())
            .finish_non_exhaustive()
    }
}
