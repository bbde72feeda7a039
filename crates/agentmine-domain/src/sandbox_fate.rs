//! Whether a sandbox is still in use, according to its lease.

/// Whether a sandbox that was started for a task under an epoch is still in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxFate {
    /// Its lease is the current one and has not expired.
    Alive,
    /// Its task has ended, is queued, paused or leased under another epoch, or the lease has expired.
    Dead,
    /// There is no row for the task.
    Unknown,
}
