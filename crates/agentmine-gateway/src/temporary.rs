//! Temporary folders that do not outlive their process for long.
//!
//! A process that is killed cannot remove its folders. Each one therefore has a lock file that its process holds;
//! whoever makes the next folder removes those that nobody holds any more.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "agentmine-git-";
const LOCK: &str = "held";

/// A temporary folder, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldFolder {
    folder: TempDir,
    /// Locked for as long as it is open.
    _lock: File,
}

impl HeldFolder {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Makes a folder, and removes those of processes that have died.
pub(crate) fn folder() -> io::Result<HeldFolder> {
    folder_in(&std::env::temp_dir())
}

fn folder_in(parent: &Path) -> io::Result<HeldFolder> {
    remove_abandoned(parent);
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
    // Locked before it has its name, since it counts from then on.
    let part = folder.path().join("part");
    let lock = File::create_new(&part)?;
    lock.lock()?;
    std::fs::rename(part, folder.path().join(LOCK))?;
    Ok(HeldFolder {
        folder,
        _lock: lock,
    })
}

/// A folder without its lock is in the making, or of an older version, and is left alone.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !is_ours {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else {
            continue;
        };
        match lock.try_lock() {
            // What another user owns cannot be removed, and need not be.
            Ok(()) => drop(std::fs::remove_dir_all(entry.path())),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_nobody_holds_is_removed_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let held = folder_in(parent.path()).unwrap();
        let HeldFolder { folder, _lock } = folder_in(parent.path()).unwrap();
        // As a kill does it: the lock is gone, and the folder stays.
        let abandoned = folder.keep();
        drop(_lock);
        let next = folder_in(parent.path()).unwrap();
        assert!(!abandoned.exists());
        assert!(held.path().exists() && next.path().exists());
    }
}
