//! When a consumer ends.

/// When a consumer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerMode {
    /// When no task is waiting.
    Once,
    /// On shutdown.
    Continuous,
}
