//! The project at the last snapshot, and the limits of what is known of it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::repository::Repository;
use super::rules::AllRules;
use super::tree::Folder;
use super::watch::Watch;
use crate::last_snapshot::LastSnapshot;

/// A walk may take one part of so many of the time.
pub(super) const WALK_SHARE: u32 = 20;
/// A walk that took no longer is done after each call.
pub(super) const CHEAP: Duration = Duration::from_millis(1);
/// A walk that took longer is done in its own thread.
pub(super) const SMALL: Duration = Duration::from_millis(5);
/// A walk that takes longer is left to git.
pub(super) const MAX_WALK: Duration = Duration::from_secs(3);
/// Maximum number of entries that are known.
pub(super) const MAX_ENTRIES: usize = 400_000;
/// With more files that have several names, each snapshot walks.
pub(super) const MAX_LINKED: usize = 1000;
/// Maximum number of new or changed files in one snapshot; git is quicker for more.
pub(super) const MAX_CHANGED: usize = 500;
/// Of a file of more bytes only the difference is stored, or git stores it.
pub(super) const MAX_FILE: u64 = 256 * 1024;
/// Maximum size of all of them.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// The project at the last snapshot.
#[derive(Debug)]
pub(crate) struct Project {
    pub(super) top: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) files: Folder,
    pub(super) rules: AllRules,
    pub(super) repository: Repository,
    pub(super) last: LastSnapshot,
    /// `None` where the kernel has no events for us; then every snapshot walks.
    pub(super) watch: Option<Watch>,
    /// Paths that are checked again in any case: changed too recently to be certain of.
    pub(super) again: BTreeSet<Vec<u8>>,
    /// Files with more than one name: the kernel reports a change only for the name that was used.
    pub(super) linked: BTreeSet<Vec<u8>>,
    /// Files that are larger than a bundle may be.
    pub(super) left_out: BTreeSet<Vec<u8>>,
    pub(super) entries: usize,
    pub(super) walked: Instant,
    pub(super) walk_took: Duration,
}

/// A snapshot that took no process.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) commit: String,
    pub(crate) bundle: Option<Vec<u8>>,
    /// Paths of what it lacks.
    pub(crate) left_out: Vec<Vec<u8>>,
}

#[cfg(test)]
impl Project {
    /// Makes the next snapshot rely on the kernel's events.
    pub(crate) fn pretend_to_be_large(&mut self) {
        self.walk_took = Duration::from_secs(1000);
        self.walked = Instant::now();
    }
}
