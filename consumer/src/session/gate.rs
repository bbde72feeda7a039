//! Whether the progress comment may be edited.

use tokio::sync::{Mutex, MutexGuard};

/// Whether the comment is still that of a session at work. The lock is held during an edit.
#[derive(Debug, Default)]
pub(crate) struct ProgressGate(Mutex<Gate>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Gate {
    #[default]
    Open,
    Closed,
}

impl ProgressGate {
    /// From here on the comment is not edited any more.
    pub(crate) async fn close(&self) {
        *self.0.lock().await = Gate::Closed;
    }

    /// Keeps it open while the guard lives. `None`: it is closed.
    pub(super) async fn while_open(&self) -> Option<MutexGuard<'_, Gate>> {
        let gate = self.0.lock().await;
        (*gate == Gate::Open).then_some(gate)
    }
}
