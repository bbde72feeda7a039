//! What a sandbox occupies on the file system of its workspace.
//!
//! Counted are all files under the root, however deep, and files without a name that a process of the sandbox
//! has open. What cannot be counted is reported as hidden: a folder that its owner closed, a process that lets
//! nobody look into it, a file without a name that is only mapped. Not seen at all is an open file on its way
//! through a socket.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use agentmine_process::descendants;

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    /// Whether something could not be counted.
    pub(crate) hidden: bool,
}

/// Free space of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) bytes: u64,
    /// `None` if the file system makes them as needed.
    pub(crate) files: Option<u64>,
    pub(crate) total: u64,
    pub(crate) total_files: u64,
    pub(crate) is_writable: bool,
}

impl Free {
    /// The free space of the file system with this path.
    pub(crate) fn of(path: &Path) -> Self {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
            return Self::default();
        };
        // SAFETY: the path ends in NUL, and the struct is plain data that the call fills.
        let stat = unsafe {
            let mut stat: libc::statvfs = std::mem::zeroed();
            if libc::statvfs(path.as_ptr(), &raw mut stat) != 0 {
                return Self::default();
            }
            stat
        };
        Self {
            bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            files: (stat.f_files > 0).then_some(stat.f_favail),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            total_files: stat.f_files,
            is_writable: stat.f_flag & libc::ST_RDONLY == 0,
        }
    }

    /// Whether so little is left that the machine and its other sandboxes suffer.
    pub(crate) fn is_scarce(&self) -> bool {
        const RESERVE: u64 = 512 << 20;
        const RESERVED_FILES: u64 = 20_000;
        let few = |free: u64| free < RESERVED_FILES.min(self.total_files / 50);
        self.total > 0 && (self.bytes < RESERVE.min(self.total / 50) || self.files.is_some_and(few))
    }
}

/// Counts what is under `root`, and what the descendants of this process keep open. `trusted` are processes that
/// hide for a reason.
pub(crate) fn of(root: &Path, trusted: &[i32]) -> Usage {
    let mut usage = Usage::default();
    match File::open(root) {
        Ok(folder) => {
            let device = folder.metadata().map_or(0, |metadata| metadata.dev());
            if count_tree(folder.into(), &mut usage).is_err() {
                usage.hidden = true;
            }
            count_unlinked(device, trusted, &mut usage);
        }
        Err(_) => usage.hidden = true,
    }
    usage
}

/// A folder on the way from the top, one of whose folders is being counted.
struct Step {
    identity: (u64, u64),
    pending: Vec<CString>,
}

/// Counts a tree with one folder open at a time: it may be deeper than any path. It ends if somebody moves a
/// folder meanwhile.
fn count_tree(top: OwnedFd, usage: &mut Usage) -> io::Result<()> {
    let mut folder = top;
    let mut pending = count_folder(&folder, usage)?;
    let mut way: Vec<Step> = Vec::new();
    loop {
        if let Some(name) = pending.pop() {
            let inner = match opened(&folder, &name, libc::O_NOFOLLOW) {
                Ok(inner) => inner,
                Err(error) => {
                    usage.hidden |= error.kind() != ErrorKind::NotFound;
                    continue;
                }
            };
            let below = match count_folder(&inner, usage) {
                Ok(below) => below,
                Err(_) => {
                    usage.hidden = true;
                    continue;
                }
            };
            // A folder without folders needs no way back.
            if below.is_empty() {
                continue;
            }
            way.push(Step {
                identity: identity(&folder)?,
                pending,
            });
            (folder, pending) = (inner, below);
            continue;
        }
        let Some(step) = way.pop() else {
            return Ok(());
        };
        folder = opened(&folder, c"..", 0)?;
        if identity(&folder)? != step.identity {
            return Err(io::Error::other("a folder was moved meanwhile"));
        }
        pending = step.pending;
    }
}

/// Counts the entries of a folder, and returns the names of its folders.
fn count_folder(folder: &OwnedFd, usage: &mut Usage) -> io::Result<Vec<CString>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))? {
        let Ok(name) = CString::new(entry?.file_name().into_vec()) else {
            continue;
        };
        // SAFETY: an open folder, a string that ends in NUL, and plain data that the call fills.
        let stat = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            let (folder, flags) = (folder.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
            if libc::fstatat(folder, name.as_ptr(), &raw mut stat, flags) != 0 {
                // In a folder that may be listed and not entered.
                let gone = io::Error::last_os_error().kind() == ErrorKind::NotFound;
                usage.hidden |= !gone;
                continue;
            }
            stat
        };
        usage.files += 1;
        let is_folder = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        // Each name of a file with several names counts for its share.
        let names = if is_folder { 1 } else { stat.st_nlink.max(1) };
        usage.bytes += stat.st_blocks.cast_unsigned() * 512 / names;
        if is_folder {
            folders.push(name);
        }
    }
    Ok(folders)
}

/// Counts the open files without a name on this device.
fn count_unlinked(device: u64, trusted: &[i32], usage: &mut Usage) {
    let mut seen = HashSet::new();
    for process in descendants(std::process::id().cast_signed()) {
        let pid = process.pid();
        let hides = !trusted.contains(&pid);
        let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            usage.hidden |= hides && !process.tree().is_empty();
            continue;
        };
        for entry in open.flatten() {
            // The link of a file without a name still leads to it.
            let file = match std::fs::metadata(entry.path()) {
                Ok(file) => file,
                Err(error) => {
                    let gone = error.kind() == ErrorKind::NotFound || process.tree().is_empty();
                    usage.hidden |= hides && !gone;
                    continue;
                }
            };
            if file.dev() == device && file.nlink() == 0 && seen.insert(file.ino()) {
                usage.bytes += file.blocks() * 512;
                usage.files += 1;
            }
        }
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        usage.hidden |= mapped_without_name(&maps, device).any(|inode| !seen.contains(&inode));
    }
}

/// The inodes of mapped files without a name on this device. On some file systems a device has another number here
/// than elsewhere, and then nothing is found.
fn mapped_without_name(maps: &str, device: u64) -> impl Iterator<Item = u64> {
    let lines = maps.lines().filter(|line| line.ends_with(" (deleted)"));
    lines.filter_map(move |line| {
        let mut fields = line.split_whitespace().skip(3);
        let (major, minor) = fields.next()?.split_once(':')?;
        let number = |hex| u32::from_str_radix(hex, 16).ok();
        let of = libc::makedev(number(major)?, number(minor)?);
        let inode = fields.next()?.parse().ok()?;
        (of == device).then_some(inode)
    })
}

fn opened(folder: &OwnedFd, name: &std::ffi::CStr, more: i32) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | more;
    // SAFETY: an open folder and a string that ends in NUL; the result is checked before it is owned.
    unsafe {
        match libc::openat(folder.as_raw_fd(), name.as_ptr(), flags) {
            -1 => Err(io::Error::last_os_error()),
            inner => Ok(OwnedFd::from_raw_fd(inner)),
        }
    }
}

fn identity(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let metadata = File::from(folder.try_clone()?).metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_counts_what_it_occupies_however_deep_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let before = of(folder.path(), &[]);
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/file"), vec![1; 100_000]).unwrap();
        let shallow = of(folder.path(), &[]);
        assert!(shallow.bytes >= before.bytes + 100_000);
        assert_eq!((shallow.files, shallow.hidden), (2, false));
        let mut deep = File::open(folder.path()).unwrap();
        for _ in 0..600 {
            let inside = format!("/proc/self/fd/{}/a-name-of-some-length", deep.as_raw_fd());
            std::fs::create_dir(&inside).unwrap();
            deep = File::open(inside).unwrap();
        }
        let file = format!("/proc/self/fd/{}/file", deep.as_raw_fd());
        std::fs::write(file, vec![1; 1_000_000]).unwrap();
        let all = of(folder.path(), &[]);
        assert!(all.bytes >= shallow.bytes + 1_000_000, "{all:?}");
        assert_eq!((all.files, all.hidden), (603, false));
    }

    #[test]
    fn a_closed_folder_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        // SAFETY: takes nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        assert_eq!(of(folder.path(), &[]).hidden, !is_root);
    }

    #[test]
    fn mapped_files_without_a_name_are_found() {
        let maps = "7f00-7f01 rw-s 00000000 fe:00 1234                /workspace/x (deleted)\n\
                    7f02-7f03 rw-s 00000000 fe:00 99                  /workspace/y\n\
                    7f04-7f05 rw-s 00000000 00:01 5                   /memfd:z (deleted)\n";
        let found: Vec<u64> = mapped_without_name(maps, libc::makedev(0xfe, 0)).collect();
        assert_eq!(found, [1234]);
    }
}
