//! All servers of a session: started together, kept running, called, stopped together.
//!
//! A server that fails affects only its own tools. The offer changes only in [`Manager::refresh`], which the
//! loop calls between model calls, so tools and names stay the same during a model call. [`ManagerPolicy`]
//! sets what servers may do; names that imitate others are omitted (see `lookalikes.rs` for the rule).

mod catalog;
mod lookalikes;
mod route;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Owner, ServerConfig, ServerPlace};
use crate::lock::lock;
use crate::server::{
    Common, Launchers, ManagerPolicy, Notice, NoticeKind, Server, ServerState, ServerStatus,
    describe_metrics, life,
};
use crate::{Offer, WireTable};

pub use catalog::Catalog;

/// Time limit for stopping all servers. Then the rest is killed.
const SHUTDOWN: Duration = Duration::from_secs(12);

/// The servers of a session. Dropping it kills their processes; [`Self::shutdown`] stops them gracefully.
pub struct Manager {
    servers: BTreeMap<String, Arc<Server>>,
    policy: Arc<ManagerPolicy>,
    common: Arc<Common>,
    stop: CancellationToken,
    /// Of the servers that were started.
    tasks: TaskTracker,
    aborts: Vec<AbortHandle>,
    current: Mutex<Arc<Catalog>>,
    /// What `current` includes. The lock allows one refresh at a time.
    included: tokio::sync::Mutex<Included>,
}

#[derive(Default)]
struct Included {
    news: Option<u64>,
    /// Lookalikes that were reported, as (server, why).
    reported: BTreeSet<(String, String)>,
}

impl Manager {
    /// Starts all enabled servers concurrently, and waits until each is ready, has failed or has exceeded its
    /// start limit. Of two entries with the same name the last is used.
    pub async fn start(
        servers: impl IntoIterator<Item = ServerConfig>,
        launchers: Launchers,
        policy: ManagerPolicy,
    ) -> Self {
        describe_metrics();
        let configured: BTreeMap<String, ServerConfig> = servers
            .into_iter()
            .map(|server| (server.name.clone(), server))
            .collect();
        let mut manager = Self {
            servers: BTreeMap::new(),
            policy: Arc::new(policy),
            common: Arc::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            aborts: Vec::new(),
            current: Mutex::default(),
            included: tokio::sync::Mutex::default(),
        };
        for config in configured.values() {
            let state = manager.first_state(config, &configured, &launchers);
            manager.add(config.clone(), state, &launchers);
        }
        // Every start has its own limit; this one is in case our own code is stuck.
        let limit = manager.policy.limits.start + SHUTDOWN;
        let started = manager.servers.values().map(|server| server.started());
        let _ = timeout(limit, join_all(started)).await;
        manager.refresh().await;
        manager
    }

    /// `Starting`, or why a server is not started.
    fn first_state(
        &self,
        server: &ServerConfig,
        all: &BTreeMap<String, ServerConfig>,
        launchers: &Launchers,
    ) -> ServerState {
        if !server.enabled {
            return ServerState::Disabled;
        }
        let place = server.place();
        let imitated = lookalikes::imitates(server, all.values(), &self.policy.fixed);
        let (kind, why) = if let Some(why) = imitated {
            (NoticeKind::Shadowed, why)
        } else if server.origin.owner == Owner::Repository && place != Some(ServerPlace::Sandbox) {
            // The configuration ensures it already; this is the last check before a process is started.
            let why = "a repository's server runs only in the sandbox";
            (NoticeKind::LeftOut, why.to_owned())
        } else if place.is_none_or(|place| launchers.of(place).is_some()) {
            return ServerState::Starting;
        } else {
            let why = match place {
                Some(ServerPlace::Sandbox) => "there is no sandbox here",
                Some(ServerPlace::Worker) | None => "no servers run on this machine here",
            };
            (NoticeKind::LeftOut, why.to_owned())
        };
        self.common.notices.push(&server.name, kind, &why);
        ServerState::Withheld(why)
    }

    fn add(&mut self, config: ServerConfig, state: ServerState, launchers: &Launchers) {
        let is_started = matches!(state, ServerState::Starting);
        let launcher = config.place().and_then(|place| launchers.of(place));
        let (policy, common) = (self.policy.clone(), self.common.clone());
        let server = Arc::new(Server::new(config, policy, common, state));
        if is_started {
            let running = life::run(server.clone(), launcher.cloned(), self.stop.clone());
            self.aborts.push(self.tasks.spawn(running).abort_handle());
        }
        self.servers.insert(server.name().to_owned(), server);
    }

    /// The offers as of the last refresh.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        lock(&self.current).clone()
    }

    /// Includes changed lists, restarts, and servers that were given up. Cheap if nothing has changed. Does not
    /// wait long for a server that is slow to list.
    pub async fn refresh(&self) -> Arc<Catalog> {
        let mut included = self.included.lock().await;
        join_all(self.servers.values().map(|server| server.relist())).await;
        let news = self.common.news.load(Ordering::SeqCst);
        if included.news != Some(news) {
            included.news = Some(news);
            let catalog = Arc::new(self.gather(&mut included.reported));
            *lock(&self.current) = catalog;
        }
        self.catalog()
    }

    fn gather(&self, reported: &mut BTreeSet<(String, String)>) -> Catalog {
        let servers = self.servers.values();
        let mut offers: Vec<(&ServerConfig, Arc<Offer>)> = servers
            .filter_map(|server| Some((&server.config, server.offer()?)))
            .collect();
        offers.sort_by(|(one, _), (other, _)| lookalikes::rank(one).cmp(&lookalikes::rank(other)));
        let mut check = lookalikes::Check::new(&self.policy.fixed);
        let mut found = BTreeSet::new();
        let mut servers = BTreeMap::new();
        for (server, offer) in offers {
            let (kept, reasons) = check.keep(server, offer);
            servers.insert(server.name.clone(), kept);
            found.extend(reasons.into_iter().map(|why| (server.name.clone(), why)));
        }
        for (server, why) in found.difference(reported) {
            self.common.notices.push(server, NoticeKind::Shadowed, why);
        }
        *reported = found;
        let tools = servers.iter().flat_map(|(server, offer)| {
            let tools = offer.tools.iter();
            tools.map(move |tool| (server.clone(), tool.name.clone()))
        });
        let wire = WireTable::new(&self.policy.fixed, tools);
        Catalog { wire, servers }
    }

    /// What happened since the last call, for a session's transcript.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        self.common.notices.take()
    }

    /// The status of every configured server, by name.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        let servers = self.servers.values();
        servers.map(|server| server.status()).collect()
    }

    /// The end of the stderr of a server's current or last process; hostile text without control characters.
    /// Empty if there is none.
    pub async fn stderr(&self, server: &str) -> String {
        match self.servers.get(server) {
            Some(server) => server.stderr().await,
            None => String::new(),
        }
    }

    /// Stops all servers concurrently: closes their stdin, then sends SIGTERM, then SIGKILL. Returns when
    /// nothing of them is left, after twelve seconds at most.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(SHUTDOWN, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                deadline_ms = u64::try_from(SHUTDOWN.as_millis()).unwrap_or(u64::MAX),
                "MCP servers did not end in time and are killed"
            );
            self.kill();
        }
    }

    fn kill(&self) {
        self.aborts.iter().for_each(AbortHandle::abort);
        self.servers.values().for_each(|server| server.end());
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.kill();
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager")
            .field("servers", &self.servers.keys())
            .finish_non_exhaustive()
    }
}
