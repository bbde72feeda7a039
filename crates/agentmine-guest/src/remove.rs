//! Removes a folder that untrusted programs have filled: trees deeper than any path or stack, folders without
//! permissions, any number of files.
//!
//! One folder is open at a time, and the way back is the link to its parent, so memory and open files are
//! bounded. Links are not followed. The programs must have ended. This runs outside the sandbox, as a process of
//! its own: the worker outlives whatever happens to it.

use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// How many names of a folder are read at once.
const BATCH: usize = 256;

/// Removes `folder` and everything in it. It is no error if there is none.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match opened(&Place::Path(folder)) {
        Ok(top) => empty(top),
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(()),
        Err(err) => Err(err),
    }
    .and_then(|()| std::fs::remove_dir(folder))
    .with_context(|| format!("removing {}", folder.display()))
}

/// Where a folder is found.
enum Place<'a> {
    Path(&'a Path),
    In(&'a OwnedFd, &'a CString),
}

fn empty(top: OwnedFd) -> io::Result<()> {
    let mut folder = top;
    // The names of the folders between the top and this one.
    let mut way = Vec::new();
    loop {
        if let Some(name) = first_folder(&folder)? {
            folder = opened(&Place::In(&folder, &name))?;
            way.push(name);
            continue;
        }
        let Some(name) = way.pop() else {
            return Ok(());
        };
        folder = opened(&Place::In(&folder, &c"..".to_owned()))?;
        // SAFETY: an open folder and a string that ends in NUL.
        checked(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) })?;
    }
}

/// Unlinks what is no folder, up to the first folder.
fn first_folder(folder: &OwnedFd) -> io::Result<Option<CString>> {
    loop {
        let names = names(folder)?;
        if names.is_empty() {
            return Ok(None);
        }
        for name in names {
            if !unlinked(folder, &name)? {
                return Ok(Some(name));
            }
        }
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

/// Unlinks what is no folder. Returns whether it did.
fn unlinked(folder: &OwnedFd, name: &CString) -> io::Result<bool> {
    // SAFETY: an open folder and a string that ends in NUL.
    match checked(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }) {
        Ok(()) => Ok(true),
        Err(err) if err.raw_os_error() == Some(libc::EISDIR) => Ok(false),
        Err(err) => Err(err),
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
