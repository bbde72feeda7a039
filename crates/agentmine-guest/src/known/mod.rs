//! What the guest knows of the project since its last snapshot, so that the next one costs what has changed.
//!
//! After git has taken a snapshot, the guest reads git's index and walks the tree once. From then on it finds
//! changes itself, and writes the blobs, the trees, the commit and the bundle of a small change without a process.
//! Whatever it is not certain of ([`unsure::Unsure`]) is left to git, and learned again afterwards.
//!
//! A file counts as unchanged while its inode, size, mode, time of modification and time of change are the same;
//! no process without privileges can set the last one. A file that was changed within a tick of the clock before
//! it was read is read again next time. Where to look is known from a walk over the whole tree, as long as that
//! takes no longer than a call may cost, or else at most every [`WALK_SHARE`]th part of the time; between two
//! walks of a large tree, from the kernel's events and from what running processes have mapped.
//!
//! Accepted: in a tree too large to be walked after each call, a change through a name outside the project that the
//! file has got since the last walk is found by the next walk and not by the next snapshot.
//!
//! All of it is bounded: a walk by time and entries, a change by files and bytes. Beyond that git does it.

mod advance;
mod alone;
mod fs;
mod index;
mod learn;
mod look;
mod mapped;
mod objects;
mod pattern;
mod repository;
mod rules;
#[cfg(test)]
mod tests;
mod tree;
mod unsure;
mod watch;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) use self::alone::commit_alone;
pub(crate) use self::fs::now;
pub(crate) use self::learn::Lesson;
pub(crate) use self::repository::{Repository, Settings};
use self::rules::AllRules;
use self::tree::Folder;
use self::watch::Watch;
use crate::state::LastSnapshot;

/// A walk may take one part of so many of the time.
const WALK_SHARE: u32 = 20;
/// A walk that took no longer is done after each call.
const CHEAP: Duration = Duration::from_millis(1);
/// A walk that took longer is done in its own thread.
const SMALL: Duration = Duration::from_millis(5);
/// A walk that takes longer is left to git.
const MAX_WALK: Duration = Duration::from_secs(3);
/// Maximum number of entries that are known.
const MAX_ENTRIES: usize = 400_000;
/// With more files that have several names, each snapshot walks.
const MAX_LINKED: usize = 1000;
/// Maximum number of new or changed files in one snapshot; git is quicker for more.
const MAX_CHANGED: usize = 500;
/// Maximum size in bytes of a file whose change is stored without git, which stores only the difference.
const MAX_FILE: u64 = 256 * 1024;
/// Maximum size of all of them.
const MAX_BYTES: u64 = 4 << 20;

/// The project at the last snapshot.
#[derive(Debug)]
pub(crate) struct Project {
    top: OwnedFd,
    path: PathBuf,
    files: Folder,
    rules: AllRules,
    repository: Repository,
    last: LastSnapshot,
    /// `None` where the kernel has no events for us; then every snapshot walks.
    watch: Option<Watch>,
    /// Paths that are checked again in any case: changed too recently to be certain of.
    again: BTreeSet<Vec<u8>>,
    /// Files with more than one name: the kernel reports a change only for the name that was used.
    linked: BTreeSet<Vec<u8>>,
    /// Files that are larger than a bundle may be.
    left_out: BTreeSet<Vec<u8>>,
    entries: usize,
    walked: Instant,
    walk_took: Duration,
}

/// A snapshot that took no process.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) commit: String,
    pub(crate) bundle: Option<Vec<u8>>,
    pub(crate) left_out: Vec<String>,
}

#[cfg(test)]
impl Project {
    /// Makes the next snapshot rely on the kernel's events.
    pub(crate) fn pretend_to_be_large(&mut self) {
        self.walk_took = Duration::from_secs(1000);
        self.walked = Instant::now();
    }
}
