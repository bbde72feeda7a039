//! Keeps a lease: a heartbeat on a connection of its own, and what it brings back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_agent::Halt;
use agentmine_domain::Lease;
use agentmine_sandbox::{Sandbox, SandboxError};
use agentmine_store::{LeaseRequest, Store, StoreError};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How the lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Held,
    StopRequested,
    PauseRequested,
    Lost,
}

/// A running heartbeat. Dropping it ends the heartbeat; the lease then runs out by itself.
pub(crate) struct Keeper {
    standing: watch::Receiver<Standing>,
    sandboxes: Sandboxes,
    killed: CancellationToken,
    beat: JoinHandle<()>,
}

/// The sandboxes of this session. One stands still while it is held, or while the store is silent.
#[derive(Default)]
struct Watched {
    sandboxes: Vec<(Arc<dyn Sandbox>, Hold)>,
    silent: bool,
}

/// Whether the result of a sandbox's work is being measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Held,
    Free,
}

type Sandboxes = Arc<Mutex<Watched>>;

/// How often and how long, from configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    pub(crate) every: Duration,
    pub(crate) extend: Duration,
    pub(crate) silence: Duration,
}

impl Keeper {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        lease: Lease,
        rhythm: Rhythm,
        killed: CancellationToken,
    ) -> Self {
        let (sender, standing) = watch::channel(Standing::Held);
        let sandboxes = Sandboxes::default();
        let beat = tokio::spawn(beat(store, lease, rhythm, sender, Arc::clone(&sandboxes)));
        Self {
            standing,
            sandboxes,
            killed,
            beat,
        }
    }

    /// Names a sandbox to be frozen while the store is silent.
    pub(crate) async fn watch_over(&self, sandbox: Arc<dyn Sandbox>) {
        self.sandboxes
            .lock()
            .await
            .sandboxes
            .push((sandbox, Hold::Free));
    }

    /// Forgets a sandbox that is about to be removed.
    pub(crate) async fn forget(&self, name: &str) {
        self.sandboxes
            .lock()
            .await
            .sandboxes
            .retain(|(s, _)| s.name() != name);
    }

    /// Freezes a sandbox until it is released, whatever the store does meanwhile.
    pub(crate) async fn hold(&self, name: &str) -> Result<(), SandboxError> {
        let mut watched = self.sandboxes.lock().await;
        let silent = watched.silent;
        for (sandbox, hold) in watched
            .sandboxes
            .iter_mut()
            .filter(|(s, _)| s.name() == name)
        {
            if *hold == Hold::Free && !silent {
                sandbox.pause().await?;
            }
            *hold = Hold::Held;
        }
        Ok(())
    }

    /// Lets a held sandbox go on, unless the store is silent.
    pub(crate) async fn release(&self, name: &str) -> Result<(), SandboxError> {
        let mut watched = self.sandboxes.lock().await;
        let silent = watched.silent;
        for (sandbox, hold) in watched
            .sandboxes
            .iter_mut()
            .filter(|(s, _)| s.name() == name)
        {
            if *hold == Hold::Held && !silent {
                sandbox.unpause().await?;
            }
            *hold = Hold::Free;
        }
        Ok(())
    }

    /// Resolves when the session has to end.
    pub(crate) async fn halted(&self) -> Halt {
        let mut standing = self.standing.clone();
        tokio::select! {
            biased;
            changed = standing.wait_for(|s| *s != Standing::Held) => match changed.map(|s| *s) {
                Ok(Standing::StopRequested) => Halt::Cancelled("somebody stopped the task".into()),
                Ok(Standing::PauseRequested) => Halt::Paused("somebody set the task aside".into()),
                // The heartbeat ends only with the lease.
                Ok(Standing::Lost | Standing::Held) | Err(_) => Halt::LeaseLost,
            },
            () = self.killed.clone().cancelled_owned() => Halt::Draining,
        }
    }

    /// Whether the lease is known to be gone.
    pub(crate) fn lost(&self) -> bool {
        *self.standing.borrow() == Standing::Lost
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.beat.abort();
    }
}

async fn beat(
    store: Arc<dyn Store>,
    lease: Lease,
    rhythm: Rhythm,
    standing: watch::Sender<Standing>,
    sandboxes: Sandboxes,
) {
    let mut last_success = Instant::now();
    let mut frozen = false;
    let mut tick = tokio::time::interval(rhythm.every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let answer = match tokio::time::timeout(
            rhythm.every,
            store.heartbeat(&lease, rhythm.extend),
        )
        .await
        {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::Unavailable(
                "the heartbeat had no answer".into(),
            )),
        };
        match answer {
            Ok(request) => {
                last_success = Instant::now();
                if std::mem::take(&mut frozen) {
                    tracing::info!(task.id = %lease.task, epoch = %lease.epoch, "the store answers again; sandbox resumed");
                    thaw(&sandboxes).await;
                }
                let now = match request {
                    LeaseRequest::Continue => Standing::Held,
                    LeaseRequest::Stop => Standing::StopRequested,
                    LeaseRequest::Pause => Standing::PauseRequested,
                };
                standing.send_if_modified(|s| std::mem::replace(s, now) != now);
            }
            Err(StoreError::Fenced(_)) => {
                tracing::warn!(task.id = %lease.task, epoch = %lease.epoch, "the lease is lost");
                standing.send_replace(Standing::Lost);
                return;
            }
            Err(error) if !frozen && last_success.elapsed() >= rhythm.silence => {
                tracing::error!(task.id = %lease.task, epoch = %lease.epoch, %error, "no heartbeat for too long; sandbox paused");
                metrics::counter!("agentmine_lease_silences_total").increment(1);
                frozen = true;
                freeze(&sandboxes).await;
            }
            Err(error) => tracing::debug!(task.id = %lease.task, %error, "heartbeat failed"),
        }
    }
}

async fn freeze(sandboxes: &Sandboxes) {
    let mut watched = sandboxes.lock().await;
    watched.silent = true;
    for (sandbox, _) in watched
        .sandboxes
        .iter()
        .filter(|(_, hold)| *hold == Hold::Free)
    {
        if let Err(error) = sandbox.pause().await {
            tracing::warn!(sandbox.name = sandbox.name(), %error, "could not be paused");
        }
    }
}

async fn thaw(sandboxes: &Sandboxes) {
    let mut watched = sandboxes.lock().await;
    watched.silent = false;
    for (sandbox, _) in watched
        .sandboxes
        .iter()
        .filter(|(_, hold)| *hold == Hold::Free)
    {
        if let Err(error) = sandbox.unpause().await {
            tracing::warn!(sandbox.name = sandbox.name(), %error, "could not be resumed");
        }
    }
}
