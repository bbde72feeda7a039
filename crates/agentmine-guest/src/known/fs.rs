//! Reads a tree that hostile processes may change meanwhile: no link is followed, nothing blocks, and no file is
//! read beyond a limit. Every path is opened folder by folder, since a link into `/proc/self` would otherwise lead
//! to the guest itself.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::unsure::{Unsure, only_git};

/// What distinguishes a file from the same file after a change, as git keeps it in its index: 32 bits of each.
/// The time of change is set by the kernel, and nobody in the sandbox can set it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) changed: (u32, u32),
    pub(crate) modified: (u32, u32),
    pub(crate) inode: u32,
    pub(crate) size: u32,
}

/// The kind of a file, and whether its owner may execute it, as a tree of git knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Executable,
    Link,
    Folder,
    /// Pipes, sockets and devices; git leaves them out.
    Special,
}

/// A look at a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) kind: Kind,
    pub(crate) stat: Stat,
    pub(crate) size: u64,
    /// How many names it has.
    pub(crate) names: u64,
    /// Seconds and nanoseconds.
    pub(crate) changed: (i64, i64),
    /// Device and inode.
    pub(crate) identity: (u64, u64),
}

impl Seen {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "git's index has 32 bits of each number"
    )]
    fn of(stat: &libc::stat) -> Self {
        let kind = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG if stat.st_mode & libc::S_IXUSR != 0 => Kind::Executable,
            libc::S_IFREG => Kind::Regular,
            libc::S_IFLNK => Kind::Link,
            libc::S_IFDIR => Kind::Folder,
            _ => Kind::Special,
        };
        Self {
            kind,
            stat: Stat {
                changed: (stat.st_ctime as u32, stat.st_ctime_nsec as u32),
                modified: (stat.st_mtime as u32, stat.st_mtime_nsec as u32),
                inode: stat.st_ino as u32,
                size: stat.st_size as u32,
            },
            size: stat.st_size.cast_unsigned(),
            names: stat.st_nlink,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
            identity: (stat.st_dev, stat.st_ino),
        }
    }
}

/// The name of an entry, for a system call.
pub(crate) fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Opens the folder at the top.
pub(crate) fn open_top(path: &Path) -> io::Result<OwnedFd> {
    open(
        libc::AT_FDCWD,
        &c_name(path.as_os_str().as_bytes())?,
        libc::O_DIRECTORY,
    )
}

/// Opens a folder below `top`; an empty path is `top` itself.
pub(crate) fn open_folder(top: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let mut folder = top.try_clone_to_owned()?;
    for part in path
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty())
    {
        folder = open(folder.as_raw_fd(), &c_name(part)?, libc::O_DIRECTORY)?;
    }
    Ok(folder)
}

/// Opens a folder in a folder.
pub(crate) fn open_in(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    open(folder.as_raw_fd(), &c_name(name)?, libc::O_DIRECTORY)
}

fn open(folder: i32, name: &CStr, more: i32) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC | more;
    // SAFETY: a string that ends in NUL; the result is checked before it is owned.
    unsafe {
        match libc::openat(folder, name.as_ptr(), flags) {
            -1 => Err(io::Error::last_os_error()),
            file => Ok(OwnedFd::from_raw_fd(file)),
        }
    }
}

/// A look at an entry of a folder; `None` if there is none.
pub(crate) fn look(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Seen>> {
    let name = c_name(name)?;
    // SAFETY: an open folder, a string that ends in NUL, and plain data that the call fills.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        if libc::fstatat(folder.as_raw_fd(), name.as_ptr(), &raw mut stat, flags) == 0 {
            return Ok(Some(Seen::of(&stat)));
        }
    }
    absent_is_none(io::Error::last_os_error())
}

/// A look at what is open.
pub(crate) fn look_at(file: BorrowedFd<'_>) -> io::Result<Seen> {
    // SAFETY: an open file, and plain data that the call fills.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::fstat(file.as_raw_fd(), &raw mut stat) {
            0 => Ok(Seen::of(&stat)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn absent_is_none<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => Ok(None),
        _ => Err(error),
    }
}

/// The content of a regular file or of a link, and the look at it that the content belongs to.
pub(crate) fn content(
    folder: BorrowedFd<'_>,
    name: &[u8],
    seen: &Seen,
    max: u64,
) -> Result<(Vec<u8>, Seen), Unsure> {
    match seen.kind {
        Kind::Link => link(folder, name, seen),
        Kind::Regular | Kind::Executable => {
            use std::os::fd::AsFd as _;
            let file = open(folder.as_raw_fd(), &c_name(name)?, 0)?;
            let before = look_at(file.as_fd())?;
            let mut file = File::from(file);
            let mut content = Vec::new();
            if matches!(before.kind, Kind::Regular | Kind::Executable) && before.size <= max {
                content.reserve(usize::try_from(before.size).unwrap_or(0) + 1);
                (&mut file).take(max + 1).read_to_end(&mut content)?;
            }
            let after = look_at(file.as_fd())?;
            if before.stat != after.stat || content.len() as u64 != after.size {
                return only_git("a file that changes while it is read");
            }
            Ok((content, after))
        }
        Kind::Folder | Kind::Special => only_git("a file that is none"),
    }
}

fn link(folder: BorrowedFd<'_>, name: &[u8], seen: &Seen) -> Result<(Vec<u8>, Seen), Unsure> {
    let mut target = vec![0_u8; libc::PATH_MAX as usize];
    let c_name = c_name(name)?;
    // SAFETY: an open folder, a string that ends in NUL, and a buffer of the length that is given.
    let length = unsafe {
        let buffer = target.as_mut_ptr().cast();
        libc::readlinkat(folder.as_raw_fd(), c_name.as_ptr(), buffer, target.len())
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    target.truncate(length);
    match look(folder, name)? {
        Some(after) if after.stat == seen.stat => Ok((target, after)),
        _ => only_git("a link that changes while it is read"),
    }
}

/// The content of a small regular file that must not be a link; `None` if there is none.
pub(crate) fn small(
    folder: BorrowedFd<'_>,
    name: &[u8],
    max: u64,
) -> Result<Option<Vec<u8>>, Unsure> {
    let Some(seen) = look(folder, name)? else {
        return Ok(None);
    };
    match seen.kind {
        Kind::Regular | Kind::Executable if seen.size <= max => {
            content(folder, name, &seen, max).map(|(content, _)| Some(content))
        }
        _ => only_git("a file of git's that is a link or too large"),
    }
}

/// One entry of a folder: its name, and its kind where the file system says so.
pub(crate) type Entry = (Vec<u8>, Option<EntryKind>);

/// What a folder says of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Link,
    Folder,
    Special,
}

/// The entries of a folder, without itself and the one above.
pub(crate) fn entries(folder: BorrowedFd<'_>) -> io::Result<Vec<Entry>> {
    use std::os::unix::ffi::OsStringExt as _;
    let mut all = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))? {
        let entry = entry?;
        let kind = entry.file_type().ok().map(|kind| {
            if kind.is_dir() {
                EntryKind::Folder
            } else if kind.is_symlink() {
                EntryKind::Link
            } else if kind.is_file() {
                EntryKind::File
            } else {
                EntryKind::Special
            }
        });
        all.push((entry.file_name().into_vec(), kind));
    }
    Ok(all)
}

/// The time now, for comparison with a time of change.
pub(crate) fn now() -> (i64, i64) {
    // SAFETY: plain data that the call fills.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        (now.tv_sec, now.tv_nsec)
    }
}

/// The longest time for which the kernel gives the same time of change to two changes, doubled.
const TICK: i64 = 20_000_000;

/// Whether a change after `time` may have left the time of change as it is.
pub(crate) fn is_fresh(changed: (i64, i64), time: (i64, i64)) -> bool {
    let nanos =
        |(seconds, nanos): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    nanos(changed) + i128::from(TICK) >= nanos(time)
}
