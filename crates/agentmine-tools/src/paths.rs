//! Files by path, never outside the roots (spec 004 §1 to §3).
//!
//! The kernel resolves a path in one step from an open root (`openat2`, `RESOLVE_BENEATH`), so no link leads out
//! of the root, and nobody can replace a name between a check and an open. A link that stays inside its root is
//! followed. A link that is absolute, or leads into another root, is refused like one that leads out. If the
//! call is not available (before Linux 5.6, or because of a filter in a container), the path is walked one
//! component at a time and every link is refused.
//!
//! Files of /proc, /sys and similar file systems are refused wherever they are mounted.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, mkdirat, openat, openat2,
};
use rustix::io::Errno;

use crate::kind::file_kind;
use crate::roots::AllowedRoots;

/// Maximum length of a path, in bytes.
const MAX_PATH: usize = 4096;

/// Why a path was refused. Each message says what to do next.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    #[error("{0}")]
    Malformed(String),
    #[error(
        "{path} is outside the allowed folders, or a link in it leads out of its folder: \
         give a path under {roots} (--allow-path adds a folder)"
    )]
    Outside { path: String, roots: String },
    #[error("{0} does not exist: check the path, or list its folder")]
    NotFound(String),
    #[error("{path} is a {kind}: {expected}")]
    Kind {
        path: String,
        kind: &'static str,
        expected: &'static str,
    },
    #[error("{path}: {errno}: check the path and its permissions")]
    Io { path: String, errno: Errno },
}

/// The allowed folders, held open.
#[derive(Debug)]
pub(crate) struct OpenRoots {
    /// Not empty; the start folder is the first.
    roots: Vec<Root>,
}

#[derive(Debug)]
struct Root {
    /// As given, absolute.
    shown: PathBuf,
    /// With links resolved.
    real: PathBuf,
    fd: OwnedFd,
}

/// A path under one of the roots.
#[derive(Debug, Clone, Copy)]
struct Inside<'a> {
    root: &'a Root,
    path: &'a Path,
}

/// Where a file is or can be created: its folder, held open, and its name.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) dir: OwnedFd,
    pub(crate) name: OsString,
}

impl OpenRoots {
    /// Opens the folders.
    ///
    /// # Errors
    /// When one of them is not a folder that can be opened.
    pub(crate) fn open(roots: &AllowedRoots) -> anyhow::Result<Self> {
        let all = std::iter::once(&roots.start).chain(&roots.allowed);
        let roots = all.map(Root::open).collect::<anyhow::Result<_>>()?;
        Ok(Self { roots })
    }

    /// Opens a regular file for reading, and returns its metadata.
    pub(crate) fn open_file(&self, path: &str) -> Result<(OwnedFd, Stat), PathError> {
        let (inside, seen) = self.find(path, OFlags::PATH)?;
        check_file(path, &seen)?;
        // Non-blocking, in case it has become a pipe since it was found.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = inside.open(flags).map_err(|e| self.error(path, e))?;
        let stat = check_file(path, &fd)?;
        Ok((fd, stat))
    }

    /// Opens a folder, to run a command in it.
    pub(crate) fn open_folder(&self, path: &str) -> Result<OwnedFd, PathError> {
        let (_, fd) = self.find(path, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(fd)
    }

    /// The start folder.
    pub(crate) fn start(&self) -> Result<OwnedFd, PathError> {
        self.open_folder(".")
    }

    /// Finds where a file is or can be created, and creates missing folders.
    pub(crate) fn place(&self, path: &str) -> Result<Place, PathError> {
        let name = file_name(path)?;
        // An existing file determines which root a relative path refers to.
        let existing = match self.find(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok((inside, _)) => Some(inside),
            Err(PathError::NotFound(_)) => None,
            Err(other) => return Err(other),
        };
        let inside = match existing {
            Some(inside) => inside,
            None => *self
                .candidates(path)?
                .first()
                .ok_or_else(|| self.outside(path))?,
        };
        let parent = inside.path.parent().unwrap_or(Path::new(""));
        let dir = inside.root.make(parent).map_err(|e| self.error(path, e))?;
        refuse_kernel_files(path, &dir)?;
        Ok(Place {
            dir,
            name: name.to_owned(),
        })
    }

    /// The roots, for messages.
    pub(crate) fn shown(&self) -> String {
        let shown: Vec<_> = self
            .roots
            .iter()
            .map(|root| root.shown.display().to_string())
            .collect();
        shown.join(", ")
    }

    /// Opens the path in the first root where it exists.
    fn find<'a>(
        &'a self,
        path: &'a str,
        flags: OFlags,
    ) -> Result<(Inside<'a>, OwnedFd), PathError> {
        let mut first = None;
        for inside in self.candidates(path)? {
            match inside.open(flags) {
                Ok(fd) => {
                    refuse_kernel_files(path, &fd)?;
                    return Ok((inside, fd));
                }
                Err(errno) => first = first.or(Some(errno)),
            }
        }
        Err(first.map_or_else(|| self.outside(path), |errno| self.error(path, errno)))
    }

    /// The places that a path can refer to, in the order in which they are tried.
    fn candidates<'a>(&'a self, path: &'a str) -> Result<Vec<Inside<'a>>, PathError> {
        check_path(path)?;
        let given = Path::new(path);
        let inside = self.roots.iter().filter_map(|root| {
            let path = match given.is_absolute() {
                true => root.strip(given)?,
                false => given,
            };
            Some(Inside { root, path })
        });
        Ok(inside.collect())
    }

    fn outside(&self, path: &str) -> PathError {
        PathError::Outside {
            path: path.to_owned(),
            roots: self.shown(),
        }
    }

    fn error(&self, path: &str, errno: Errno) -> PathError {
        match errno {
            // The kernel's errors for a path that would leave the root.
            Errno::XDEV | Errno::LOOP => self.outside(path),
            Errno::NOENT => PathError::NotFound(path.to_owned()),
            errno => PathError::Io {
                path: path.to_owned(),
                errno,
            },
        }
    }
}

impl Root {
    fn open(path: &PathBuf) -> anyhow::Result<Self> {
        let shown = std::path::absolute(path)?;
        let what = || format!("the folder {} cannot be opened", shown.display());
        let real = shown.canonicalize().with_context(what)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, &real, flags, Mode::empty()).with_context(what)?;
        Ok(Self { shown, real, fd })
    }

    fn strip<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let inside = path.strip_prefix(&self.shown);
        inside.or_else(|_| path.strip_prefix(&self.real)).ok()
    }

    /// Opens a folder below, and creates it if necessary.
    fn make(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let inside = Inside { root: self, path };
        match inside.open(flags) {
            Err(Errno::NOENT) => {}
            outcome => return outcome,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::NOENT);
        };
        let parent = self.make(parent)?;
        match mkdirat(&parent, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&parent, name, flags, Mode::empty())
    }
}

impl Inside<'_> {
    fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = match self.path.as_os_str().is_empty() {
            true => Path::new("."),
            false => self.path,
        };
        let flags = flags | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        // The kernel returns EAGAIN if a name was replaced while it resolved the path.
        for _ in 0..64 {
            match openat2(&self.root.fd, path, flags, Mode::empty(), how) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM) => return walk(self.root.fd.as_fd(), path, flags),
                outcome => return outcome,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Opens a path below a folder, one component at a time, without following links.
fn walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut ahead: Vec<&OsStr> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => ahead.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Errno::XDEV);
            }
        }
    }
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some((last, folders)) = ahead.split_last() else {
        return openat(root, c".", flags, Mode::empty());
    };
    let mut here: Option<OwnedFd> = None;
    for folder in folders {
        let below = here.as_ref().map_or(root, AsFd::as_fd);
        here = Some(openat(below, *folder, step, Mode::empty()).map_err(no_link)?);
    }
    let below = here.as_ref().map_or(root, AsFd::as_fd);
    let fd = openat(below, *last, flags | OFlags::NOFOLLOW, Mode::empty())?;
    // O_PATH opens a link instead of refusing it.
    if !flags.contains(OFlags::NOFOLLOW)
        && FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::Symlink
    {
        return Err(Errno::LOOP);
    }
    Ok(fd)
}

/// The kernel reports a link in place of a folder as "not a directory".
fn no_link(errno: Errno) -> Errno {
    match errno {
        Errno::NOTDIR => Errno::LOOP,
        other => other,
    }
}

fn check_path(path: &str) -> Result<(), PathError> {
    if path.is_empty() || path.contains('\0') || path.len() > MAX_PATH {
        return Err(PathError::Malformed(format!(
            "path is empty, contains a NUL character or is longer than {MAX_PATH} bytes: give the path \
             of a file, absolute or relative"
        )));
    }
    Ok(())
}

fn file_name(path: &str) -> Result<&OsStr, PathError> {
    check_path(path)?;
    let name = match path.ends_with('/') || path.ends_with("/.") {
        true => None,
        false => Path::new(path).file_name(),
    };
    name.ok_or_else(|| {
        PathError::Malformed(format!(
            "{path} is the name of a folder: give the path of a file in it"
        ))
    })
}

fn check_file(path: &str, fd: &OwnedFd) -> Result<Stat, PathError> {
    let stat = fstat(fd).map_err(|errno| PathError::Io {
        path: path.to_owned(),
        errno,
    })?;
    let (kind, expected) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(stat),
        FileType::Directory => ("folder", "give the path of a file in it"),
        other => (file_kind(other), "give the path of a regular file"),
    };
    Err(PathError::Kind {
        path: path.to_owned(),
        kind,
        expected,
    })
}

/// The kernel's own file systems contain secrets of processes and settings of the machine.
fn refuse_kernel_files(path: &str, fd: &OwnedFd) -> Result<(), PathError> {
    // proc, sysfs, debugfs, tracefs, securityfs, cgroup, cgroup2, bpf, configfs, efivarfs, selinuxfs.
    const REFUSED: [u64; 11] = [
        0x9fa0,
        0x6265_6572,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0x0027_e0eb,
        0x6367_7270,
        0xcafe_4a11,
        0x6265_6570,
        0xde5e_81e4,
        0xf97c_ff8c,
    ];
    let stat = fstatfs(fd).map_err(|errno| PathError::Io {
        path: path.to_owned(),
        errno,
    })?;
    let magic = stat.f_type as u64 & 0xffff_ffff;
    match REFUSED.contains(&magic) {
        true => Err(PathError::Kind {
            path: path.to_owned(),
            kind: "kernel file (/proc, /sys or similar)",
            expected: "give the path of a regular file",
        }),
        false => Ok(()),
    }
}
