//! Removes a folder that untrusted programs have filled: trees deeper than any path or stack, folders without
//! permissions, any number of files.
//!
//! One folder is open at a time, and the way back is the link to its parent, which must be the folder that it was:
//! a program that still runs cannot lead the way out by moving a folder. So memory and open files are bounded.
//! Links are not followed. This runs outside the sandbox, as a separate process: the worker outlives whatever
//! happens to it.

use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// How many names of a folder are read at once.
const BATCH: usize = 256;
/// In how many folders on the way the names of others are remembered.
const REMEMBERED: usize = 64;

/// Removes `folder` and everything in it. It is no error if there is none.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match opened(&Place::Path(folder)) {
        Ok(top) => empty(top),
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
        Err(err) => Err(err),
    }
    .and_then(|()| match std::fs::remove_dir(folder) {
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    })
    .with_context(|| format!("removing {}", folder.display()))
}

/// Where a folder is found.
enum Place<'a> {
    Path(&'a Path),
    In(&'a OwnedFd, &'a CString),
}

/// A folder on the way from the top, whose inner folder is being emptied.
struct Step {
    /// The name of the inner folder.
    name: CString,
    /// This folder: the way back leads to it, or somebody has moved the inner one.
    folder: Identity,
    /// Other folders in it that are known to have something in them.
    pending: Vec<CString>,
}

/// Device and inode.
#[derive(Debug, PartialEq, Eq)]
struct Identity(u64, u64);

fn identity(folder: &OwnedFd) -> io::Result<Identity> {
    let metadata = File::from(folder.try_clone()?).metadata()?;
    Ok(Identity(metadata.dev(), metadata.ino()))
}

fn empty(top: OwnedFd) -> io::Result<()> {
    let mut folder = top;
    let mut pending = Vec::new();
    let mut way: Vec<Step> = Vec::new();
    loop {
        if pending.is_empty() {
            pending = filled_folders(&folder)?;
        }
        if let Some(name) = pending.pop() {
            // A deep tree of wide folders is read again rather than remembered.
            let kept = match way.len() < REMEMBERED {
                true => std::mem::take(&mut pending),
                false => Vec::new(),
            };
            let inner = match opened(&Place::In(&folder, &name)) {
                Err(err) if err.kind() == ErrorKind::NotFound => {
                    pending = kept;
                    continue;
                }
                inner => inner?,
            };
            way.push(Step {
                name,
                folder: identity(&folder)?,
                pending: kept,
            });
            folder = inner;
            pending = Vec::new();
            continue;
        }
        let Some(step) = way.pop() else {
            return Ok(());
        };
        folder = opened_parent(&folder)?;
        if identity(&folder)? != step.folder {
            return Err(io::Error::other("a folder was moved meanwhile"));
        }
        unlinked(&folder, &step.name)?;
        pending = step.pending;
    }
}

/// Unlinks everything but folders with something in them, and returns some of these; none if nothing is left.
fn filled_folders(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    loop {
        let names = names(folder)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut filled = Vec::new();
        for name in names {
            if !unlinked(folder, &name)? {
                filled.push(name);
            }
        }
        if !filled.is_empty() {
            return Ok(filled);
        }
    }
}

/// The folder that this one is in. Its permissions are not changed.
fn opened_parent(folder: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: an open folder and a string that ends in NUL; the result is checked before it is owned.
    unsafe {
        let parent = libc::openat(folder.as_raw_fd(), c"..".as_ptr(), flags);
        checked(parent)?;
        Ok(OwnedFd::from_raw_fd(parent))
    }
}

/// Opens a folder for its owner, whatever its permissions are. Not through a link.
fn opened(place: &Place<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let (at, name) = match place {
        Place::Path(path) => (libc::AT_FDCWD, CString::new(path.as_os_str().as_bytes())?),
        Place::In(folder, name) => (folder.as_raw_fd(), (*name).clone()),
    };
    // SAFETY: a string that ends in NUL; the result is checked before it is owned.
    let found = unsafe {
        let found = libc::openat(at, name.as_ptr(), flags);
        checked(found)?;
        OwnedFd::from_raw_fd(found)
    };
    let itself = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    std::fs::set_permissions(&itself, Permissions::from_mode(0o700))?;
    File::open(itself).map(OwnedFd::from)
}

/// The first names in a folder.
fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let entries = std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    let name = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry?.file_name().into_vec();
        CString::new(name).map_err(io::Error::from)
    };
    entries.take(BATCH).map(name).collect()
}

/// Unlinks a file, or a folder with nothing in it. Returns whether it is gone; another process may have done it.
fn unlinked(folder: &OwnedFd, name: &CString) -> io::Result<bool> {
    let unlink = |flags| {
        // SAFETY: an open folder and a string that ends in NUL.
        match checked(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), flags) }) {
            Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
            unlinked => unlinked,
        }
    };
    match unlink(0) {
        Err(err) if err.raw_os_error() == Some(libc::EISDIR) => {}
        unlinked => return unlinked.map(|()| true),
    }
    match unlink(libc::AT_REMOVEDIR) {
        Err(err) if err.kind() == ErrorKind::DirectoryNotEmpty => Ok(false),
        unlinked => unlinked.map(|()| true),
    }
}

fn checked(returned: i32) -> io::Result<()> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Folders in each other, made from the inside: no path reaches the last one.
    fn nested(top: &Path, depth: usize) {
        let mut folder = File::open(top).unwrap();
        for _ in 0..depth {
            let inside = PathBuf::from(format!("/proc/self/fd/{}/a-long-name", folder.as_raw_fd()));
            std::fs::create_dir(&inside).unwrap();
            folder = File::open(inside).unwrap();
        }
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a");
        std::fs::create_dir(&folder).unwrap();
        nested(&folder, 3_000);
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn folders_without_permissions_and_many_files_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a");
        std::fs::create_dir_all(folder.join("b/c/d")).unwrap();
        for n in 0..BATCH + 10 {
            std::fs::write(folder.join(format!("b/{n}")), "").unwrap();
        }
        for n in 0..BATCH + 10 {
            std::fs::create_dir(folder.join(format!("b/c/{n}"))).unwrap();
        }
        for closed in ["b/c/d", "b/c", "b", ""] {
            let mode = Permissions::from_mode(0o000);
            std::fs::set_permissions(folder.join(closed), mode).unwrap();
        }
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a");
        std::fs::create_dir_all(folder.join("b")).unwrap();
        std::fs::write(root.path().join("kept"), "x").unwrap();
        symlink(root.path(), folder.join("b/up")).unwrap();
        symlink("nowhere", folder.join("broken")).unwrap();
        remove(&folder).unwrap();
        assert!(root.path().join("kept").exists() && !folder.exists());
        remove(&folder).unwrap();
        symlink(root.path(), &folder).unwrap();
        assert!(remove(&folder).is_err());
        assert!(root.path().join("kept").exists());
    }
}
