//! What a search for secrets finds.

/// Where something looks like a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::git) struct Finding {
    /// From 1.
    pub(in crate::git) line: usize,
    /// The rule's name, as the operator's configuration uses it.
    pub(in crate::git) rule: &'static str,
}
