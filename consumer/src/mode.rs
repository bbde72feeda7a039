//! The mode of a consumer. Below both the slots, which end by it, and what starts them.

/// When a consumer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerMode {
    /// When no task is waiting.
    Once,
    /// On shutdown.
    Continuous,
}
