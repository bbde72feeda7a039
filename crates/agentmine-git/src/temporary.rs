//! Temporary folders that do not outlive their process for long.
//!
//! A process that is killed cannot remove its folders. Each one therefore has a lock file that its process holds;
//! every worker of the machine removes, at its start and from time to time, those that nobody holds any more.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

/// Not that of versions without lock files, whose folders are left alone.
const PREFIX: &str = "agentmine-home-";
const LOCK: &str = "held";
/// The lock file before it is locked.
const PART: &str = "part";

/// A folder that is empty for this long is not in the making: its process was killed meanwhile.
const MAKING: Duration = Duration::from_secs(600);

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

/// Makes a folder.
pub(crate) fn folder() -> io::Result<HeldFolder> {
    folder_in(&std::env::temp_dir())
}

fn folder_in(parent: &Path) -> io::Result<HeldFolder> {
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
    // Locked before it has its name, since it counts from then on.
    let part = folder.path().join(PART);
    let lock = File::create_new(&part)?;
    lock.lock()?;
    std::fs::rename(part, folder.path().join(LOCK))?;
    Ok(HeldFolder {
        folder,
        _lock: lock,
    })
}

/// Removes the temporary git folders of processes that have died. Any number of processes may do this at once.
pub fn remove_abandoned_folders() {
    remove_abandoned(&std::env::temp_dir(), MAKING);
}

/// A folder in which there is nothing yet is abandoned after `making`.
fn remove_abandoned(parent: &Path, making: Duration) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // What another user owns cannot be removed, and need not be.
        if is_ours && is_abandoned(&entry.path(), making) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

fn is_abandoned(folder: &Path, making: Duration) -> bool {
    let Ok(metadata) = std::fs::symlink_metadata(folder) else {
        return false;
    };
    // SAFETY: it has no preconditions.
    if !metadata.is_dir() || metadata.uid() != unsafe { libc::geteuid() } {
        return false;
    }
    match is_held(folder) {
        Some(held) => !held,
        None => {
            let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
            // A git process that still ran has put something into it while it was removed.
            let is_left = is_used(folder) || age.is_some_and(|age| age >= making);
            // It may have got its lock since.
            is_left && is_held(folder).is_none()
        }
    }
}

/// Whether a process has the lock; `None` if there is no lock file.
fn is_held(folder: &Path) -> Option<bool> {
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.open(folder.join(LOCK)) {
        Ok(lock) => Some(lock.try_lock().is_err()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => Some(true),
    }
}

/// Whether there was anything in it besides the lock file in the making.
fn is_used(folder: &Path) -> bool {
    let mut entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_other = |name: std::ffi::OsString| name != PART && name != LOCK;
    entries.any(|entry| is_other(entry.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder whose process was killed: the lock is gone, and the folder stays.
    fn killed(parent: &Path) -> std::path::PathBuf {
        let HeldFolder { folder, _lock } = folder_in(parent).unwrap();
        drop(_lock);
        folder.keep()
    }

    #[test]
    fn a_folder_that_nobody_holds_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let held = folder_in(parent.path()).unwrap();
        let abandoned = killed(parent.path());
        remove_abandoned(parent.path(), MAKING);
        assert!(!abandoned.exists());
        assert!(held.path().exists());
    }

    #[test]
    fn a_folder_whose_process_was_killed_before_it_held_it_is_removed_later() {
        let parent = tempfile::tempdir().unwrap();
        let held = folder_in(parent.path()).unwrap();
        let unheld = parent.path().join(format!("{PREFIX}x"));
        std::fs::create_dir(&unheld).unwrap();
        remove_abandoned(parent.path(), MAKING);
        assert!(unheld.exists(), "it may be in the making");
        remove_abandoned(parent.path(), Duration::ZERO);
        assert!(!unheld.exists());
        assert!(held.path().exists());
    }

    #[test]
    fn a_folder_that_a_process_wrote_to_while_it_was_removed_is_removed_again() {
        let parent = tempfile::tempdir().unwrap();
        let unheld = parent.path().join(format!("{PREFIX}x"));
        std::fs::create_dir_all(unheld.join("repo.git/refs")).unwrap();
        remove_abandoned(parent.path(), MAKING);
        assert!(!unheld.exists());
    }
}
