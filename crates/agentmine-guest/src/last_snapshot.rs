//! The last snapshot.

/// A snapshot as it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastSnapshot {
    pub(crate) commit: String,
    pub(crate) tree: String,
    pub(crate) message: String,
}
