//! The lease heartbeat: extends the lease on a dedicated connection and returns stop and pause requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_domain::Lease;
use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::config::Consumer;
use agentmine_store::{LeaseRequest, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::freeze::Freezer;
use crate::error::{Interrupt, SessionError};

/// The state of the lease as of the last heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Held,
    StopRequested,
    PauseRequested,
    Lost,
}

/// A running heartbeat. Dropping it stops the heartbeat, and the lease then expires.
pub(crate) struct Heartbeat {
    status: watch::Receiver<Status>,
    /// Why people no longer want the work, once it is known.
    withdrawn: watch::Sender<Option<String>>,
    killed: CancellationToken,
    task: JoinHandle<()>,
}

/// The interval of the heartbeat, the extension of the lease, and the tolerated silence of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    every: Duration,
    extend: Duration,
    silence: Duration,
}

impl Rhythm {
    pub(crate) fn of(config: &Consumer) -> Self {
        Self {
            every: Duration::from_secs(config.heartbeat_seconds),
            extend: Duration::from_secs(config.lease_seconds),
            silence: Duration::from_secs(config.heartbeat_loss_seconds),
        }
    }
}

impl Heartbeat {
    /// Starts the heartbeat. While the store does not answer, the sandboxes in `freezer` are frozen.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        lease: Lease,
        rhythm: Rhythm,
        freezer: Arc<Freezer>,
        killed: CancellationToken,
    ) -> Self {
        let (sender, status) = watch::channel(Status::Held);
        let task = tokio::spawn(send_heartbeats(store, lease, rhythm, sender, freezer));
        Self {
            status,
            withdrawn: watch::Sender::new(None),
            killed,
            task,
        }
    }

    /// Resolves when the session has to end.
    pub(crate) async fn interrupted(&self) -> Interrupt {
        let mut status = self.status.clone();
        let mut withdrawn = self.withdrawn.subscribe();
        tokio::select! {
            biased;
            changed = status.wait_for(|s| *s != Status::Held) => match changed.map(|s| *s) {
                Ok(Status::StopRequested) => Interrupt::Stopped("a person stopped the task".into()),
                Ok(Status::PauseRequested) => Interrupt::Paused("a person paused the task".into()),
                // The heartbeat ends only with the lease.
                Ok(Status::Lost | Status::Held) | Err(_) => Interrupt::LeaseLost,
            },
            // The sender is `self`, so this does not fail.
            Ok(reason) = withdrawn.wait_for(Option::is_some) => {
                Interrupt::Stopped(reason.clone().unwrap_or_default())
            }
            () = self.killed.clone().cancelled_owned() => Interrupt::Draining,
        }
    }

    /// Ends the session: people no longer want the work.
    pub(crate) fn withdraw(&self, reason: String) {
        self.withdrawn.send_replace(Some(reason));
    }

    /// Whether the lease is known to be lost.
    pub(crate) fn lost(&self) -> bool {
        *self.status.borrow() == Status::Lost
    }

    /// Runs `work`, unless the session has to end first.
    pub(crate) async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        tokio::select! {
            biased;
            interrupt = self.interrupted() => Err(interrupt.into()),
            done = work => done,
        }
    }

    /// Retries a call to the store while the store is unavailable and the session continues. This is
    /// the only place where a session waits for the store; the store itself retries only brief failures.
    pub(crate) async fn patiently<T, E, F>(
        &self,
        mut call: impl FnMut() -> F,
    ) -> Result<T, SessionError>
    where
        E: Into<SessionError>,
        F: Future<Output = Result<T, E>>,
    {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let error = match call().await {
                Ok(done) => return Ok(done),
                Err(error) => error.into(),
            };
            if !error.is_store_unavailable() {
                return Err(error);
            }
            tracing::debug!(%error, "the store is unavailable; the session waits");
            tokio::select! {
                biased;
                interrupt = self.interrupted() => return Err(interrupt.into()),
                () = backoff.wait() => {}
            }
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send_heartbeats(
    store: Arc<dyn Store>,
    lease: Lease,
    rhythm: Rhythm,
    status: watch::Sender<Status>,
    freezer: Arc<Freezer>,
) {
    let mut last_success = Instant::now();
    let mut frozen = false;
    let mut tick = tokio::time::interval(rhythm.every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let heartbeat = store.heartbeat(&lease, rhythm.extend);
        let answer = match tokio::time::timeout(rhythm.every, heartbeat).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::Unavailable(format!(
                "{}: the heartbeat timed out",
                store.address()
            ))),
        };
        match answer {
            Ok(request) => {
                last_success = Instant::now();
                if std::mem::take(&mut frozen) {
                    tracing::info!(task.id = %lease.task, epoch = %lease.epoch, "the store answers again; sandbox resumed");
                    freezer.thaw().await;
                }
                let now = match request {
                    LeaseRequest::Continue => Status::Held,
                    LeaseRequest::Stop => Status::StopRequested,
                    LeaseRequest::Pause => Status::PauseRequested,
                };
                status.send_if_modified(|s| std::mem::replace(s, now) != now);
            }
            Err(StoreError::Fenced(_)) => {
                tracing::warn!(task.id = %lease.task, epoch = %lease.epoch, "the lease is lost");
                status.send_replace(Status::Lost);
                return;
            }
            Err(error) if !frozen && last_success.elapsed() >= rhythm.silence => {
                tracing::error!(task.id = %lease.task, epoch = %lease.epoch, %error, "no heartbeat for too long; sandbox paused");
                metrics::counter!("agentmine_lease_silences_total").increment(1);
                frozen = true;
                freezer.freeze().await;
            }
            Err(error) => tracing::debug!(task.id = %lease.task, %error, "heartbeat failed"),
        }
    }
}
