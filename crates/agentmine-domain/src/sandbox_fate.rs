//! What is known of a sandbox by the lease it belongs to.

/// What the store knows of a sandbox that was started for a task under an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxFate {
    /// Its lease is the current one, and has not run out.
    Alive,
    /// Its task is over, queued, paused or leased under another epoch, or the lease has run out.
    Dead,
    /// No row knows the task.
    Unknown,
}
