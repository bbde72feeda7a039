//! That a connection has ended, and why.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Whether a connection ended by the server's own end, and not because it was cut off for what it did.
/// Then its process can say more.
pub(crate) fn is_servers_own(reason: &str) -> bool {
    reason.starts_with("it has ended") || reason.starts_with("its output cannot be read")
}

/// Shared by all that use a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    reason: Arc<OnceLock<String>>,
    ended: CancellationToken,
}

impl Ending {
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Ends the connection. The first reason is the cause of the others, and stays.
    pub(crate) fn end(&self, reason: impl Into<String>) {
        let _ = self.reason.set(reason.into());
        self.ended.cancel();
    }

    pub(crate) async fn wait(&self) -> String {
        self.ended.cancelled().await;
        self.reason().unwrap_or("it has ended").to_owned()
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.ended
    }
}
