//! Waits for a signal to exit.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Returns on SIGTERM or SIGINT.
///
/// # Errors
/// When a signal handler cannot be installed.
pub(crate) async fn terminated() -> anyhow::Result<()> {
    let mut term = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}
