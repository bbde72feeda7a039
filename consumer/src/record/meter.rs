//! The task's usage so far, including earlier sessions.

use std::sync::Arc;

use agentmine_domain::{Lease, Usage};
use agentmine_store::Store;
use tokio::sync::Mutex;

use crate::claim::heartbeat::Heartbeat;
use crate::error::SessionError;

/// Adds up the usage and keeps the session's row up to date.
pub(crate) struct UsageMeter {
    store: Arc<dyn Store>,
    lease: Lease,
    heartbeat: Arc<Heartbeat>,
    /// The model's name.
    model: String,
    total: Mutex<Usage>,
}

impl UsageMeter {
    /// `used` is the usage of the task's earlier sessions.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        lease: Lease,
        heartbeat: Arc<Heartbeat>,
        model: String,
        used: Usage,
    ) -> Self {
        Self {
            store,
            lease,
            heartbeat,
            model,
            total: Mutex::new(used),
        }
    }

    /// The sum so far.
    pub(crate) async fn total(&self) -> Usage {
        *self.total.lock().await
    }

    /// Adds the usage of an entry. The row is updated after model calls; tool calls are written with
    /// the next model reply.
    pub(crate) async fn count(&self, used: Usage) -> Result<(), SessionError> {
        let total = {
            let mut total = self.total.lock().await;
            *total += used;
            *total
        };
        if used.model_calls == 0 {
            return Ok(());
        }
        self.heartbeat
            .patiently(|| self.store.record_usage(&self.lease, &self.model, &total))
            .await
    }
}
