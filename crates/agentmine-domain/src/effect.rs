//! Writes to the outside world, each of which happens once.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{UnknownName, named};

named!(
    /// What kind of outside write.
    EffectKind, "effect" {
        /// Labels set on the item.
        Label = "label",
        /// A comment made or edited.
        Comment = "comment",
        /// A branch pushed by the worker.
        Push = "push",
        /// A pull request opened.
        PullRequest = "pull_request",
    }
);

/// Names one effect within a task. `(task, kind, key)` is unique.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EffectKey {
    /// What kind.
    pub kind: EffectKind,
    /// Which one of that kind, e.g. `processing` or `progress`.
    pub key: String,
}

impl EffectKey {
    /// Names an effect.
    pub fn new(kind: EffectKind, key: impl Into<String>) -> Self {
        Self {
            kind,
            key: key.into(),
        }
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.key)
    }
}
