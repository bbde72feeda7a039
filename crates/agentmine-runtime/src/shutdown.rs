//! Shutdown: drain first, then kill.
//!
//! The first SIGTERM, SIGINT or SIGHUP starts the drain: loops stop taking work, and finish or give back what they
//! have. A second SIGTERM or SIGINT, or the end of the deadline, kills. Guaranteed: `killed` includes `draining`, so
//! a loop that waits for the drain also wakes if the process is killed at once.
//!
//! A terminal that closes may send SIGHUP several times, by the kernel and by the shell; so SIGHUP never kills. Where it
//! is ignored (`nohup`), it stays ignored.
//!
//! Accepted race: work that ends at the same instant as the deadline may see both.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const HANGUP: &str = "SIGHUP";

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

    /// With SIGTERM and SIGINT of this process, and SIGHUP unless it is ignored.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn on_signals(deadline: Duration) -> std::io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = match is_ignored(libc::SIGHUP) {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        let (sender, receiver) = mpsc::channel(2);
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    Some(()) = terminate.recv() => "SIGTERM",
                    Some(()) = interrupt.recv() => "SIGINT",
                    Some(()) = next(hangup.as_mut()) => HANGUP,
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
        while let Some(name) = signals.recv().await {
            if name != HANGUP {
                tracing::warn!(signal = name, "killed by a second signal");
                self.kill();
                return;
            }
        }
    }
}

/// Whether this process ignores the signal, by the choice of whoever started it. A handler would override that.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: zeros are a valid `sigaction`, and without a new action the call only writes to `current`.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut current) == 0
            && current.sa_sigaction == libc::SIG_IGN
    }
}

/// The next signal; never, if there is no handler.
async fn next(signal: Option<&mut Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
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
    async fn a_repeated_hangup_does_not_kill() {
        let shutdown = Shutdown::new(LONG);
        let (sender, receiver) = mpsc::channel(1);
        let obeying = tokio::spawn(shutdown.clone().obey(receiver));
        for _ in 0..3 {
            sender.send(HANGUP).await.unwrap();
        }
        drop(sender);
        obeying.await.unwrap();
        assert!(shutdown.is_draining());
        assert!(!shutdown.killed().is_cancelled());
    }

    /// The only test of this program with SIGHUP, which is the whole process's.
    #[tokio::test]
    async fn a_hangup_drains_unless_it_is_ignored() {
        // SAFETY: neither action is a function.
        let set = |action| unsafe { libc::signal(libc::SIGHUP, action) };
        // SAFETY: it has no preconditions.
        let hang_up = || unsafe { libc::raise(libc::SIGHUP) };
        set(libc::SIG_IGN);
        let under_nohup = Shutdown::on_signals(LONG).unwrap();
        assert!(is_ignored(libc::SIGHUP));
        hang_up();
        set(libc::SIG_DFL);
        let in_terminal = Shutdown::on_signals(LONG).unwrap();
        hang_up();
        in_terminal.draining().cancelled().await;
        assert!(!under_nohup.is_draining());
    }

    #[tokio::test]
    async fn a_kill_also_wakes_those_who_wait_for_the_drain() {
        let shutdown = Shutdown::new(LONG);
        shutdown.kill();
        shutdown.draining().cancelled().await;
        shutdown.killed().cancelled().await;
    }
}
