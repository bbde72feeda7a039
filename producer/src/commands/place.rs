//! Where commands may be written.

use std::collections::BTreeSet;

use agentmine_domain::{ItemKind, ItemRef};

/// Tasks that may be over and are still commanded.
pub(super) const NEWEST: u32 = 100;

/// A repository that commands may be written in.
#[derive(Debug)]
pub(super) struct Place {
    /// One of its items.
    pub(super) item: ItemRef,
    /// Whether it is checked in each interval.
    pub(super) live: bool,
    /// The numbers of the pull requests that tasks opened, or are for.
    pub(super) pulls: BTreeSet<u64>,
}

impl Place {
    pub(super) fn of(item: ItemRef) -> Self {
        Self {
            item,
            live: false,
            pulls: BTreeSet::new(),
        }
    }

    pub(super) fn pulls(&self) -> Vec<ItemRef> {
        let pull = |number: &u64| ItemRef {
            kind: ItemKind::PullRequest,
            number: *number,
            ..self.item.clone()
        };
        self.pulls.iter().map(pull).collect()
    }
}
