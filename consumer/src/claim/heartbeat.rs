//! The lease heartbeat: extends the lease on a dedicated connection and returns stop and pause requests.
//!
//! The worker knows by its own clock until when the lease certainly holds: `heartbeat_loss_seconds` after it sent
//! the last heartbeat that was answered, which is less than the lease lasts. After that the session is stalled:
//! the sandboxes are frozen, and nothing is sent to a tracker, a git host, or a server on the worker.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::Lease;
use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::config::Consumer;
use agentmine_runtime::permit::{BootInstant, Permit, PermitGrant};
use agentmine_store::{LeaseRequest, Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::freeze::Freezer;
use crate::error::{Interrupt, SessionError};

/// The reason of a request in the row. The row says more, and is read when the session ends.
const STOPPED: &str = "a person stopped the task";
const PAUSED: &str = "a person paused the task";

/// How long a worker that has to end at once still tries to close a lease.
const LAST_WRITE: Duration = Duration::from_secs(5);

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
    /// Why the session ends by what people did to the item, once it is known.
    withdrawn: watch::Sender<Option<Interrupt>>,
    killed: CancellationToken,
    certainty: Certainty,
    task: JoinHandle<()>,
}

/// Whether the lease certainly holds.
#[derive(Clone)]
pub(crate) struct Certainty {
    permit: Permit,
    beats: watch::Receiver<()>,
}

impl Certainty {
    /// The proof for each request.
    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Resolves when the lease may have ended.
    pub(crate) async fn lapsed(&self) {
        self.permit.lapsed().await;
    }

    /// Resolves at once if the lease certainly holds, else when it has been extended. Never resolves once it
    /// is lost.
    pub(crate) async fn restored(&self) {
        let mut beats = self.beats.clone();
        while self.permit.check().is_err() {
            if beats.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
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
    /// Starts the heartbeat for a lease that was requested at `since`. While the store does not answer, the
    /// sandboxes in `freezer` are frozen.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        (lease, since): (Lease, BootInstant),
        rhythm: Rhythm,
        freezer: Arc<Freezer>,
        killed: CancellationToken,
    ) -> Self {
        let (sender, status) = watch::channel(Status::Held);
        let (beats, beaten) = watch::channel(());
        let grant = PermitGrant::new(since, rhythm.silence);
        let certainty = Certainty {
            permit: grant.permit(),
            beats: beaten,
        };
        let frozen = freeze_in_silence(certainty.clone(), lease.clone(), freezer);
        let signals = Signals {
            status: sender,
            beats,
        };
        let sent = send_heartbeats(store, lease, rhythm, grant, signals);
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = sent => {}
                () = frozen => {}
            }
        });
        Self {
            status,
            withdrawn: watch::Sender::new(None),
            killed,
            certainty,
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
                Ok(Status::StopRequested) => Interrupt::Stopped(STOPPED.into()),
                Ok(Status::PauseRequested) => Interrupt::Paused(PAUSED.into()),
                // The heartbeat ends only with the lease.
                Ok(Status::Lost | Status::Held) | Err(_) => Interrupt::LeaseLost,
            },
            // The sender is `self`, so this does not fail.
            Ok(interrupt) = withdrawn.wait_for(Option::is_some) => {
                interrupt.clone().unwrap_or(Interrupt::LeaseLost)
            }
            () = self.killed.clone().cancelled_owned() => Interrupt::Draining,
        }
    }

    /// Ends the session by what people did to the item.
    pub(crate) fn withdraw(&self, interrupt: Interrupt) {
        self.withdrawn.send_replace(Some(interrupt));
    }

    /// Whether the lease certainly holds at a moment.
    pub(crate) fn certainty(&self) -> &Certainty {
        &self.certainty
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

    /// Retries a call to the store while the store is unavailable and the session continues, and an effect while
    /// the lease may have ended. This is the only place where a session waits for the store; the store itself
    /// retries only brief failures.
    pub(crate) async fn patiently<T, E, F>(
        &self,
        call: impl FnMut() -> F,
    ) -> Result<T, SessionError>
    where
        E: Into<SessionError>,
        F: Future<Output = Result<T, E>>,
    {
        let interrupted = async { Some(self.interrupted().await) };
        retried(call, interrupted).await
    }

    /// Makes the last write of a session, which requests of people and a drain do not interrupt: retries while
    /// the store is unavailable and the lease is not known to be lost. Once the worker is to be gone at once, it
    /// has [`LAST_WRITE`].
    pub(crate) async fn in_any_case<T, E, F>(
        &self,
        call: impl FnMut() -> F,
    ) -> Result<T, SessionError>
    where
        E: Into<SessionError>,
        F: Future<Output = Result<T, E>>,
    {
        let mut status = self.status.clone();
        // An error too: the heartbeat ends only with the lease.
        let lost = status.wait_for(|s| *s == Status::Lost);
        let too_late = async {
            self.killed.cancelled().await;
            tokio::time::sleep(LAST_WRITE).await;
        };
        let ends = async {
            tokio::select! {
                biased;
                _ = lost => Some(Interrupt::LeaseLost),
                () = too_late => None,
            }
        };
        retried(call, ends).await
    }
}

/// Retries a call to the store while the store is unavailable, until `ends` resolves: to the reason, or to `None`
/// for the error of the call.
async fn retried<T, E, F>(
    mut call: impl FnMut() -> F,
    ends: impl Future<Output = Option<Interrupt>>,
) -> Result<T, SessionError>
where
    E: Into<SessionError>,
    F: Future<Output = Result<T, E>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    tokio::pin!(ends);
    loop {
        let error = match call().await {
            Ok(done) => return Ok(done),
            Err(error) => error.into(),
        };
        if !error.passes_with_a_heartbeat() {
            return Err(error);
        }
        tracing::debug!(%error, "the store is unavailable; the session waits");
        tokio::select! {
            biased;
            reason = &mut ends => return Err(reason.map_or(error, SessionError::from)),
            () = backoff.wait() => {}
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the heartbeat reports to the session.
struct Signals {
    status: watch::Sender<Status>,
    /// Changes with each heartbeat that extended the lease.
    beats: watch::Sender<()>,
}

/// Extends the lease until it is lost. The permit lapses with this future.
async fn send_heartbeats(
    store: Arc<dyn Store>,
    lease: Lease,
    rhythm: Rhythm,
    grant: PermitGrant,
    signals: Signals,
) {
    let mut tick = tokio::time::interval(rhythm.every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let sent = BootInstant::now();
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
                grant.extend(sent, rhythm.silence);
                signals.beats.send_replace(());
                let now = match request {
                    LeaseRequest::Continue => Status::Held,
                    LeaseRequest::Stop => Status::StopRequested,
                    LeaseRequest::Pause => Status::PauseRequested,
                };
                signals
                    .status
                    .send_if_modified(|s| std::mem::replace(s, now) != now);
            }
            Err(StoreError::Fenced(_)) => {
                // The session may just have closed it itself; one that lost it warns.
                tracing::debug!(task.id = %lease.task, epoch = %lease.epoch, "the lease is no longer held");
                signals.status.send_replace(Status::Lost);
                return;
            }
            Err(error) => tracing::debug!(task.id = %lease.task, %error, "heartbeat failed"),
        }
    }
}

/// Freezes the sandboxes whenever the permit has lapsed, until the lease is extended again. Never resolves.
async fn freeze_in_silence(certainty: Certainty, lease: Lease, freezer: Arc<Freezer>) {
    loop {
        certainty.lapsed().await;
        tracing::error!(task.id = %lease.task, epoch = %lease.epoch, "no heartbeat for too long; the session is suspended");
        metrics::counter!("agentmine_lease_silences_total").increment(1);
        freezer.freeze().await;
        certainty.restored().await;
        tracing::info!(task.id = %lease.task, epoch = %lease.epoch, "the store is available again; the session continues");
        freezer.thaw().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A heartbeat that last returned this status.
    fn heartbeat(now: Status, killed: CancellationToken) -> (Heartbeat, watch::Sender<Status>) {
        let (sender, status) = watch::channel(now);
        let grant = PermitGrant::new(BootInstant::now(), Duration::from_secs(60));
        let (_, beats) = watch::channel(());
        let certainty = Certainty {
            permit: grant.permit(),
            beats,
        };
        let heartbeat = Heartbeat {
            status,
            withdrawn: watch::Sender::new(None),
            killed,
            certainty,
            task: tokio::spawn(async {}),
        };
        (heartbeat, sender)
    }

    fn away() -> StoreError {
        StoreError::Unavailable("the server is starting up".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_failure_of_the_store_does_not_keep_an_interrupted_session_from_closing_its_lease()
     {
        for (status, killed) in [
            (Status::StopRequested, false),
            (Status::PauseRequested, false),
            (Status::Held, true),
        ] {
            let token = CancellationToken::new();
            if killed {
                token.cancel();
            }
            let (heartbeat, _sender) = heartbeat(status, token);
            let mut failures = 2;
            let closed = heartbeat.in_any_case(|| {
                failures -= 1;
                let answer = match failures {
                    0.. => Err(away()),
                    _ => Ok(()),
                };
                async { answer }
            });
            assert!(closed.await.is_ok(), "{status:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_not_closed_for_ever_once_it_is_lost_or_the_worker_has_to_go() {
        let unanswered = async || Err::<(), _>(away());
        let (lost, _sender) = heartbeat(Status::Lost, CancellationToken::new());
        let error = lost.in_any_case(unanswered).await.unwrap_err();
        assert!(error.is_lease_lost(), "{error}");
        let killed = CancellationToken::new();
        killed.cancel();
        let (held, _sender) = heartbeat(Status::Held, killed);
        let begun = tokio::time::Instant::now();
        held.in_any_case(unanswered).await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), LAST_WRITE.as_secs());
    }
}
