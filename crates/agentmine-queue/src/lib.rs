//! The wake-up queue: a message names a row and carries no state.
//!
//! A lost or doubled message costs time and nothing else: the row decides. What this crate promises
//! is that [`Queue::publish`] returns `Ok` only when the broker has confirmed the message and had a
//! queue for it, and that a slot which does not ask holds no message.

mod connect;
#[cfg(test)]
mod contract;
mod envelope;
mod inproc;
mod metrics;
mod rabbitmq;

use std::time::Duration;

use agentmine_domain::WakeUp;
use async_trait::async_trait;

pub use connect::{connect, inproc};

/// Why a queue did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The broker is not there. Waking goes on by polling; try again later.
    #[error("queue unavailable: {0}")]
    Unavailable(String),
    /// The broker took the message but had no queue for it (`basic.return`).
    #[error("no queue is bound for the message: {0}")]
    Unroutable(String),
    /// The broker refused the message (`basic.nack`).
    #[error("the broker refused the message: {0}")]
    Refused(String),
}

/// A message taken from the queue, held unacknowledged until one of the calls below. One that is
/// dropped without any of them goes back to the queue; so does one whose copy could not be published.
#[async_trait]
pub trait Delivery: Send {
    /// What it says, or why it cannot be read (a foreign or damaged message).
    fn wake_up(&self) -> Result<&WakeUp, String>;
    /// Done with it. `Ok` also when the connection it came by is gone: it will come again, and the
    /// row decides.
    async fn ack(self: Box<Self>) -> Result<(), QueueError>;
    /// Publishes a copy to step `step` of the retry ladder (0 is the first; past the end, the last),
    /// awaits the confirm, then acks.
    async fn retry_later(self: Box<Self>, step: usize) -> Result<(), QueueError>;
    /// Publishes a copy to the dead-letter queue with the reason, awaits the confirm, then acks.
    async fn dead_letter(self: Box<Self>, reason: &str) -> Result<(), QueueError>;
}

/// One broker.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Publishes persistent and mandatory, and waits for the confirm.
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), QueueError>;
    /// Takes exactly one message, highest priority class first, waiting at most `wait` for one.
    /// `Ok(None)`: nothing came. Nothing is prefetched for a caller that does not wait here,
    /// and dropping the call loses nothing. Without a broker it fails within a few seconds.
    async fn next(&self, wait: Duration) -> Result<Option<Box<dyn Delivery>>, QueueError>;
    /// Takes one message from the dead-letter queue without waiting, with the recorded reason.
    async fn next_dead(&self) -> Result<Option<(Box<dyn Delivery>, String)>, QueueError>;
    /// Whether the broker answers now; for `/ready`.
    async fn healthy(&self) -> Result<(), QueueError>;
    /// Closes connections in good order.
    async fn close(&self);
}
