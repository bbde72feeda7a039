//! Shutdown: drain first, then kill.
//!
//! The first SIGTERM or SIGINT starts the drain: loops stop taking work, and finish or give back what they
//! have. A second signal, or the end of the deadline, kills. Guaranteed: `killed` includes `draining`, so
//! a loop that waits for the drain also wakes if the process is killed at once.
//!
//! Accepted race: work that ends at the same instant as the deadline may see both.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The two events of a shutdown. Clones share them.
#[derive(Debug, Clone)]
pub struct Shutdown {
    draining: CancellationToken,
    killed: CancellationToken,
}

impl Shutdown {
    /// Without signals, for tests and for fleets inside another process. `deadline` is the time from
    /// [`Shutdown::drain`] to the kill.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        metrics::describe_gauge!(
            "agentmine_draining",
            "1 from the first signal to the end of the process: it takes no new work."
        );
        metrics::gauge!("agentmine_draining").set(0.0);
        let killed = CancellationToken::new();
        let shutdown = Self {
            draining: killed.child_token(),
            killed,
        };
        tokio::spawn(shutdown.clone().enforce(deadline));
        shutdown
    }

    /// With SIGTERM and SIGINT of this process.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn on_signals(deadline: Duration) -> std::io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (sender, receiver) = mpsc::channel(2);
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    Some(()) = terminate.recv() => "SIGTERM",
                    Some(()) = interrupt.recv() => "SIGINT",
                    else => return,
                };
                if sender.send(name).await.is_err() {
                    return;
                }
            }
        });
        let shutdown = Self::new(deadline);
        tokio::spawn(shutdown.clone().obey(receiver));
        Ok(shutdown)
    }

    /// Cancelled when no more work may be taken.
    #[must_use]
    pub fn draining(&self) -> CancellationToken {
        self.draining.clone()
    }

    /// Cancelled when everything must end now.
    #[must_use]
    pub fn killed(&self) -> CancellationToken {
        self.killed.clone()
    }

    /// Whether the drain has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Starts the drain and its deadline.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Kills at once.
    pub fn kill(&self) {
        self.killed.cancel();
    }

    async fn enforce(self, deadline: Duration) {
        self.draining.cancelled().await;
        metrics::gauge!("agentmine_draining").set(1.0);
        let over = self
            .killed
            .run_until_cancelled(tokio::time::sleep(deadline));
        if over.await.is_some() {
            tracing::warn!(
                deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
                "the drain exceeded its deadline, killing"
            );
            self.kill();
        }
    }

    async fn obey(self, mut signals: mpsc::Receiver<&'static str>) {
        if let Some(name) = signals.recv().await {
            tracing::info!(signal = name, "draining, taking no new work");
            self.drain();
        }
        if let Some(name) = signals.recv().await {
            tracing::warn!(signal = name, "killed by a second signal");
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn drain_begins_first_and_the_deadline_kills() {
        let shutdown = Shutdown::new(Duration::from_secs(30));
        shutdown.drain();
        let begun = tokio::time::Instant::now();
        assert!(shutdown.is_draining());
        assert!(!shutdown.killed().is_cancelled());
        shutdown.killed().cancelled().await;
        assert_eq!(begun.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_killed_before_a_drain() {
        let shutdown = Shutdown::new(Duration::ZERO);
        tokio::time::sleep(LONG).await;
        assert!(!shutdown.is_draining());
        assert!(!shutdown.killed().is_cancelled());
    }

    #[tokio::test]
    async fn first_signal_drains_and_second_kills() {
        let shutdown = Shutdown::new(LONG);
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(shutdown.clone().obey(receiver));
        sender.send("SIGTERM").await.unwrap();
        shutdown.draining().cancelled().await;
        assert!(!shutdown.killed().is_cancelled());
        sender.send("SIGINT").await.unwrap();
        shutdown.killed().cancelled().await;
    }

    #[tokio::test]
    async fn a_kill_also_wakes_those_who_wait_for_the_drain() {
        let shutdown = Shutdown::new(LONG);
        shutdown.kill();
        shutdown.draining().cancelled().await;
        shutdown.killed().cancelled().await;
    }
}
