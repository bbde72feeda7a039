//! What undo needs of the last edits. Beyond the limits, the oldest edits are forgotten.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

/// Maximum number of edits that are remembered, for all files together.
const MAX_CHANGES: usize = 500;
/// Maximum size of the old contents that are remembered, for all files together, in bytes.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// One edit.
#[derive(Debug)]
pub(super) struct Change {
    /// The file, relative to the root, with links resolved.
    pub(super) file: PathBuf,
    pub(super) before: Before,
    /// What the edit wrote. Undo is refused if the file no longer has this content.
    pub(super) after: Fingerprint,
}

/// The state of the file before an edit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Before {
    Absent,
    Content(Vec<u8>),
}

/// Distinguishes contents. Not cryptographic: anybody who could forge one can write the file anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    len: usize,
    hash: u64,
}

impl Fingerprint {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        Self {
            len: bytes.len(),
            hash: hasher.finish(),
        }
    }
}

/// The last edits, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    changes: VecDeque<Change>,
    bytes: usize,
}

impl History {
    pub(super) fn push(&mut self, change: Change) {
        self.bytes += change.size();
        self.changes.push_back(change);
        while self.changes.len() > MAX_CHANGES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.bytes -= oldest.size();
        }
    }

    pub(super) fn last(&self, file: &Path) -> Option<&Change> {
        self.changes.iter().rev().find(|change| change.file == file)
    }

    pub(super) fn forget_last(&mut self, file: &Path) {
        let Some(at) = self.changes.iter().rposition(|change| change.file == file) else {
            return;
        };
        if let Some(change) = self.changes.remove(at) {
            self.bytes -= change.size();
        }
    }
}

impl Change {
    fn size(&self) -> usize {
        match &self.before {
            Before::Absent => 0,
            Before::Content(bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(file: &str, before: Vec<u8>) -> Change {
        Change {
            file: file.into(),
            before: Before::Content(before),
            after: Fingerprint::of(b""),
        }
    }

    #[test]
    fn oldest_edits_are_forgotten_by_count() {
        let mut history = History::default();
        history.push(change("first", vec![]));
        for _ in 0..MAX_CHANGES {
            history.push(change("other", vec![]));
        }
        assert!(history.last(Path::new("first")).is_none());
        assert_eq!(history.changes.len(), MAX_CHANGES);
    }

    #[test]
    fn oldest_edits_are_forgotten_by_size() {
        let mut history = History::default();
        for _ in 0..40 {
            history.push(change("big", vec![0; 1024 * 1024]));
        }
        assert_eq!(history.changes.len(), 32);
        for _ in 0..32 {
            history.forget_last(Path::new("big"));
        }
        assert_eq!((history.bytes, history.changes.len()), (0, 0));
    }
}
