//! The usage of a session, and of its task with the earlier sessions.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Lease, Usage};
use agentmine_store::Store;
use tokio::sync::{Mutex, Notify};

use crate::claim::heartbeat::Heartbeat;
use crate::error::SessionError;

/// The row is behind by this long at most while the model takes longer.
const CALLS_DELAY: Duration = Duration::from_secs(1);

/// Adds up the usage and keeps the session's row up to date.
pub(crate) struct UsageMeter {
    store: Arc<dyn Store>,
    lease: Lease,
    heartbeat: Arc<Heartbeat>,
    /// The model's name.
    model: String,
    /// The usage of the task's earlier sessions.
    earlier: Usage,
    own: Mutex<Own>,
    /// Notified when the session's row is behind.
    behind: Notify,
}

/// The usage of the session.
#[derive(Clone, Copy)]
struct Own {
    usage: Usage,
    /// Whether the session's row does not have all of it.
    is_ahead: bool,
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
            own: Mutex::new(Own {
                usage: own,
                is_ahead: false,
            }),
            behind: Notify::new(),
        }
    }

    /// The usage of the task so far.
    pub(crate) async fn total(&self) -> Usage {
        let mut total = self.earlier;
        total += self.own.lock().await.usage;
        total
    }

    /// Records an entry with its usage: `append` gets the model and the session's usage, if that is to be written now.
    /// Calls of tools are written with the next entry of another kind, or by [`Self::write_late_calls`].
    ///
    /// # Errors
    /// Those of `append`. Then nothing is added.
    pub(crate) async fn record(
        &self,
        (used, is_call): (Usage, bool),
        append: impl AsyncFnOnce(Option<(&str, Usage)>) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let mut own = self.own.lock().await;
        let mut next = *own;
        next.usage += used;
        next.is_ahead |= used != Usage::default();
        let written = (next.is_ahead && !is_call).then_some((self.model.as_str(), next.usage));
        next.is_ahead &= is_call;
        append(written).await?;
        metrics::counter!("agentmine_cost_microdollars_total").increment(used.cost_micros);
        *own = next;
        if next.is_ahead {
            self.behind.notify_one();
        }
        Ok(())
    }

    /// Writes the calls that no other entry followed within a second, as those before a long reply.
    pub(crate) async fn write_late_calls(&self) -> Infallible {
        loop {
            self.behind.notified().await;
            tokio::time::sleep(CALLS_DELAY).await;
            if let Err(error) = self.write().await {
                tracing::debug!(%error, "the number of tool calls is not written yet");
            }
        }
    }

    /// Writes what is not in the session's row yet.
    pub(crate) async fn write(&self) -> Result<(), SessionError> {
        let mut own = self.own.lock().await;
        if !own.is_ahead {
            return Ok(());
        }
        let usage = own.usage;
        self.heartbeat
            .patiently(|| self.store.record_usage(&self.lease, &self.model, &usage))
            .await?;
        own.is_ahead = false;
        Ok(())
    }
}
