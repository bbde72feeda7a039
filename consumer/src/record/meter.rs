//! The usage of a session, and of its task with the earlier sessions.

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
    /// The usage of the task's earlier sessions.
    earlier: Usage,
    own: Mutex<Usage>,
}

impl UsageMeter {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        lease: Lease,
        heartbeat: Arc<Heartbeat>,
        model: String,
        earlier: Usage,
        own: Usage,
    ) -> Self {
        Self {
            store,
            lease,
            heartbeat,
            model,
            earlier,
            own: Mutex::new(own),
        }
    }

    /// The usage of the task so far.
    pub(crate) async fn total(&self) -> Usage {
        let mut total = self.earlier;
        total += *self.own.lock().await;
        total
    }

    /// Adds the usage of an entry to the session's row.
    pub(crate) async fn count(&self, used: Usage) -> Result<(), SessionError> {
        if used == Usage::default() {
            return Ok(());
        }
        metrics::counter!("agentmine_cost_microdollars_total").increment(used.cost_micros);
        let own = {
            let mut own = self.own.lock().await;
            *own += used;
            *own
        };
        self.heartbeat
            .patiently(|| self.store.record_usage(&self.lease, &self.model, &own))
            .await
    }
}
