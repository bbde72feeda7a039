//! The snapshot with which the next one is compared, whether git or the guest took it.

use std::fmt;

/// A snapshot as it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastSnapshot {
    pub(crate) commit: String,
    pub(crate) tree: String,
    pub(crate) message: String,
}

/// A snapshot whose bundle has more than `max` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) tree: String,
    pub(crate) message: String,
    pub(crate) max: u64,
}

impl std::error::Error for TooLarge {}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the snapshot's bundle has more than {} bytes", self.max)
    }
}
