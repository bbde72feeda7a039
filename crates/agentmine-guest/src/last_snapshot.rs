//! The snapshot with which the next one is compared, whether git or the guest took it.

/// A snapshot as it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastSnapshot {
    pub(crate) commit: String,
    pub(crate) tree: String,
    pub(crate) message: String,
}
