//! What all parts of one session share, and the sandboxes in its care.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentmine_domain::{Lease, Seq, Task, Usage};
use agentmine_runtime::config::{Config, Secret};
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::Sandbox;
use agentmine_store::Claim;
use agentmine_trackers::Tracker;
use tokio::sync::Mutex;

use crate::Deps;
use crate::claim::heartbeat::{Keeper, Rhythm};
use crate::record::journal::SessionJournal;
use crate::report::effects::Effects;
use crate::run::servers::{Servers, SessionSampling};

/// How long the end of a session waits for the store to take its servers' last news.
const LAST_NEWS: Duration = Duration::from_secs(5);

/// What all parts of one session share.
pub(crate) struct Context {
    pub(crate) deps: Arc<Deps>,
    pub(crate) task: Task,
    pub(crate) lease: Lease,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) journal: Arc<SessionJournal>,
    pub(crate) effects: Effects,
    sandboxes: Mutex<Vec<Arc<dyn Sandbox>>>,
    servers: Mutex<Option<Arc<Servers>>>,
    sampling: OnceLock<Arc<SessionSampling>>,
}

pub(crate) fn context(
    deps: Arc<Deps>,
    claim: Claim,
    tracker: Arc<dyn Tracker>,
    stop: Shutdown,
) -> Context {
    let Claim { task, lease } = claim;
    let config = &deps.config.consumer;
    let rhythm = Rhythm {
        every: Duration::from_secs(config.heartbeat_seconds),
        extend: Duration::from_secs(config.lease_seconds),
        silence: Duration::from_secs(config.heartbeat_loss_seconds),
    };
    let keeper = Arc::new(Keeper::start(
        Arc::clone(&deps.heartbeat),
        lease.clone(),
        rhythm,
        stop.killed(),
    ));
    let journal = SessionJournal {
        store: Arc::clone(&deps.store),
        lease: lease.clone(),
        keeper: Arc::clone(&keeper),
        model: deps.model.name().to_owned(),
        secrets: secrets(&deps.config),
        server_secrets: OnceLock::new(),
        usage: Mutex::new(Usage::default()),
        newest: Mutex::new(Seq(0)),
        watch: deps.watch.clone(),
    };
    let effects = Effects {
        store: Arc::clone(&deps.store),
        tracker,
        labels: deps.config.labels.clone(),
        task: task.clone(),
        lease: Some(lease.clone()),
    };
    Context {
        deps,
        task,
        lease,
        keeper,
        journal: Arc::new(journal),
        effects,
        sandboxes: Mutex::default(),
        servers: Mutex::default(),
        sampling: OnceLock::new(),
    }
}

impl Context {
    /// As people see it: `12`.
    pub(crate) fn session_name(&self) -> String {
        self.lease.session.to_string()
    }

    /// Takes a sandbox into this session's care.
    pub(crate) async fn adopt(&self, sandbox: Arc<dyn Sandbox>) {
        self.keeper.watch_over(Arc::clone(&sandbox)).await;
        self.sandboxes.lock().await.push(sandbox);
    }

    /// Takes the session's MCP servers into its care.
    pub(crate) async fn attend(&self, servers: Servers) -> Arc<Servers> {
        let servers = Arc::new(servers);
        *self.servers.lock().await = Some(Arc::clone(&servers));
        servers
    }

    /// Answers the session's servers; one for all of them, so that what they use is never lost.
    pub(crate) fn sampling(&self) -> &Arc<SessionSampling> {
        self.sampling
            .get_or_init(|| Arc::new(SessionSampling::of(self)))
    }

    /// Ends all that was started for this session: MCP servers, then sandboxes. With the lease lost
    /// another worker may have begun, and the sandbox waits for no server's grace.
    pub(crate) async fn end_all(&self) {
        let servers = self.servers.lock().await.take();
        let ended = async {
            if let Some(servers) = &servers {
                servers.shutdown().await;
            }
        };
        if self.keeper.lost() {
            tokio::join!(ended, self.remove_sandboxes());
            return;
        }
        ended.await;
        self.remove_sandboxes().await;
        // Last, for the store may be silent. What is not told now is not told at all; the session's
        // end is more than that. On the item stands its result, which no news replaces.
        let told = async {
            if let Some(servers) = &servers {
                servers.note_news(self).await?;
            }
            match self.sampling.get() {
                Some(sampling) => sampling.tell().await,
                None => Ok(()),
            }
        };
        if tokio::time::timeout(LAST_NEWS, told).await.is_err() {
            tracing::warn!("the store is silent; the last news of the MCP servers is not recorded");
        }
    }

    /// Removes one sandbox now.
    pub(crate) async fn discard(&self, name: &str) {
        let found = {
            let mut all = self.sandboxes.lock().await;
            all.iter()
                .position(|s| s.name() == name)
                .map(|at| all.remove(at))
        };
        if let Some(sandbox) = found {
            self.remove(sandbox).await;
        }
    }

    async fn remove_sandboxes(&self) {
        let all = std::mem::take(&mut *self.sandboxes.lock().await);
        for sandbox in all {
            self.remove(sandbox).await;
        }
    }

    /// spec 001 §8.1: three tries are the backend's; what is left then is the sweep's.
    async fn remove(&self, sandbox: Arc<dyn Sandbox>) {
        self.keeper.forget(sandbox.name()).await;
        if let Err(error) = sandbox.remove().await {
            metrics::counter!("agentmine_sandboxes_left_total").increment(1);
            tracing::warn!(sandbox.name = sandbox.name(), %error, "the sandbox was not removed; the sweep will try again");
            if !self.keeper.lost() {
                let _ = self
                    .note(&format!(
                        "the sandbox {} was not removed: {error}",
                        sandbox.name()
                    ))
                    .await;
            }
        }
    }
}

/// The worker's own secrets, none of which may be written down.
fn secrets(config: &Config) -> Vec<Secret> {
    let github = config
        .trackers
        .github
        .as_ref()
        .and_then(|g| g.token.clone());
    github
        .into_iter()
        .chain(config.model.api_key.clone())
        .chain(config.model.headers.values().cloned())
        .collect()
}
