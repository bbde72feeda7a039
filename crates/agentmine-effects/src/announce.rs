//! Announces recorded tasks on the queue.

use std::time::{Duration, Instant};

use agentmine_domain::WakeUp;
use agentmine_queue::Queue;
use agentmine_runtime::failpoint::Guard;
use agentmine_store::{Publish, RelayError, Store};
use async_trait::async_trait;

/// How many wake-ups are published in one transaction.
const BATCH: u32 = 100;

/// After this long the next call continues, so that each makes progress however slow the broker is.
const TIME: Duration = Duration::from_secs(30);

struct ToQueue<'a>(&'a dyn Queue);

#[async_trait]
impl Publish for ToQueue<'_> {
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), String> {
        match self.0.publish(wake_up).await {
            Err(error) if !Guard::Outbox.is_off() => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Publishes the pending entries of the outbox, as many as half a minute allows, and returns their number. An entry is removed only after
/// the broker has confirmed it, so a wake-up can be published twice but not lost.
///
/// # Errors
/// Returns an error if the store or the queue failed; what was not published stays in the outbox.
pub async fn announce(store: &dyn Store, queue: &dyn Queue) -> Result<u64, RelayError> {
    let begun = Instant::now();
    let mut total = 0;
    loop {
        let sent = store.relay_outbox(BATCH, &ToQueue(queue)).await?;
        total += sent;
        if sent < u64::from(BATCH) || begun.elapsed() >= TIME {
            return Ok(total);
        }
    }
}
