//! The end of a connection, and the reason.

use std::sync::Arc;

use tokio::sync::SetOnce;

/// Whether a connection ended because the server ended, and was not closed for something it did. Then its
/// process can say more.
pub(crate) fn is_servers_own(reason: &str) -> bool {
    reason.starts_with("it has ended") || reason.starts_with("its output cannot be read")
}

/// Shared by all users of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Ending(Arc<SetOnce<String>>);

impl Ending {
    pub(super) fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Ends the connection. The first reason is the cause of all others, and is kept.
    pub(super) fn end(&self, reason: impl Into<String>) {
        let _ = self.0.set(reason.into());
    }

    /// Resolves to the reason when the connection ends.
    pub(super) async fn wait(&self) -> &str {
        self.0.wait().await
    }
}
