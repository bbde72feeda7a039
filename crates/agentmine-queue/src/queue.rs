//! The seam: what producer, consumer and sweep ask of a queue.

use std::time::Duration;

use agentmine_domain::WakeUp;
use async_trait::async_trait;

use crate::error::QueueError;

/// A message that was taken and is not acknowledged until one of the calls below. If it is dropped
/// without any of them, or its copy cannot be published, it returns to the queue.
#[async_trait]
pub trait Delivery: Send {
    /// Its content, or why it cannot be read (a foreign or damaged message).
    fn wake_up(&self) -> Result<&WakeUp, String>;
    /// Removes it from the queue. `Ok` also if its connection is lost: the message then comes again, and
    /// the row decides.
    async fn ack(self: Box<Self>) -> Result<(), QueueError>;
    /// Publishes a copy to step `step` of the retry ladder (0 is the first; past the end, the last step
    /// is used), waits for the confirm, then acknowledges.
    async fn retry_later(self: Box<Self>, step: usize) -> Result<(), QueueError>;
    /// Publishes a copy with the reason to the dead-letter queue, waits for the confirm, then
    /// acknowledges.
    async fn dead_letter(self: Box<Self>, reason: &str) -> Result<(), QueueError>;
}

/// How many messages wait in one queue of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDepth {
    /// The queue's name on the broker.
    pub name: String,
    /// Messages that nobody has taken.
    pub messages: u64,
}

/// A queue on one broker.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Publishes persistent and mandatory, and waits for the confirm.
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), QueueError>;
    /// Takes exactly one message, takeovers first, then the highest priority class; waits at most `wait` for one.
    /// `Ok(None)` if none came. Nothing is prefetched for a caller that is not waiting here, and dropping
    /// the call loses nothing. Without a broker it fails within a few seconds.
    async fn next(&self, wait: Duration) -> Result<Option<Box<dyn Delivery>>, QueueError>;
    /// Takes one message and its recorded reason from the dead-letter queue, without waiting.
    async fn next_dead(&self) -> Result<Option<(Box<dyn Delivery>, String)>, QueueError>;
    /// Whether the broker answers now; for `/ready`. One that accepts no messages, because it is short of memory or disk, still
    /// gives those that it has, and tasks are found by polling: it counts as healthy.
    async fn healthy(&self) -> Result<(), QueueError>;
    /// How many messages wait: in the lanes in the order in which they are taken, in the steps of the retry ladder,
    /// and among the dead letters.
    async fn depths(&self) -> Result<Vec<QueueDepth>, QueueError>;
    /// Closes the connections properly.
    async fn close(&self);
}
