//! Claiming a task: a slot waits for a wake-up and claims the row; the heartbeat extends the lease.

pub(crate) mod claimed;
pub(crate) mod freeze;
pub(crate) mod heartbeat;
pub(crate) mod slot;
