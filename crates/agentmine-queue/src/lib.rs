//! The wake-up queue: a message names a row and carries no state.
//!
//! A lost or duplicated message costs time and nothing else: the row decides. Guaranteed:
//! [`Queue::publish`] returns `Ok` only if the broker has confirmed the message and had a queue for it,
//! and a slot that is not waiting in [`Queue::next`] holds no message.

mod connect;
#[cfg(test)]
mod contract;
mod envelope;
mod error;
mod inproc;
mod lane;
mod metrics;
mod queue;
mod rabbitmq;

pub use connect::{connect, inproc};
pub use error::QueueError;
pub use queue::{Delivery, Queue, QueueDepth};
