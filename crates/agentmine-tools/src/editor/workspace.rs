//! Files by path, never outside the root.
//!
//! A path is walked one component at a time, each opened relative to the folder before it without following
//! links. A link's target is then walked the same way, an absolute one only if it is under the root. `..` goes
//! back to the folder that the walk came through. So no step depends on a name that another process may have
//! replaced meanwhile. This does not use `openat2`, because the kernel's `RESOLVE_BENEATH` refuses an absolute
//! link that stays inside.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, accessat, fchmod, fchown, fstat,
    mkdirat, openat, readlinkat, unlinkat,
};
use rustix::io::Errno;

use super::error::{EditError, MAX_FILE};
use crate::kind::file_kind;
use crate::temporary::{Survives, Temporary};

/// The same limit as the kernel's.
const MAX_LINKS: usize = 40;

#[derive(Debug)]
pub(super) struct Workspace {
    root: PathBuf,
    /// The root with links resolved, since links inside may use this path.
    real_root: PathBuf,
    base: Base,
}

/// Where relative paths start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// At `project` under the root if that is a folder, otherwise at the root: the layout of a sandbox.
    Project,
    Root,
}

/// What a path leads to.
#[derive(Debug)]
pub(super) struct Found {
    /// Relative to the root, with links resolved: identifies the file in the history.
    pub(super) key: PathBuf,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    File(FileAt),
    Directory(OwnedFd),
    Missing(MissingAt),
    /// A device, pipe or socket, and which of them.
    Special(&'static str),
}

/// A regular file.
#[derive(Debug)]
pub(super) struct FileAt {
    dir: OwnedFd,
    name: OsString,
}

/// A path that does not exist: the folders to create, and the name of the file.
#[derive(Debug)]
pub(super) struct MissingAt {
    dir: OwnedFd,
    parents: Vec<OsString>,
    name: OsString,
}

/// A file's content, with its mode and owner at that time.
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) stat: Stat,
}

impl Workspace {
    pub(super) fn open(root: PathBuf, base: Base) -> anyhow::Result<Self> {
        let shown = root.display().to_string();
        let real_root = root
            .canonicalize()
            .with_context(|| format!("the root {shown} cannot be opened"))?;
        anyhow::ensure!(real_root.is_dir(), "the root {shown} is not a folder");
        let root = std::path::absolute(root)?;
        Ok(Self {
            root,
            real_root,
            base,
        })
    }

    /// What an edit here has to survive.
    pub(super) fn survives(&self) -> Survives {
        match self.base {
            Base::Project => Survives::Kill,
            Base::Root => Survives::PowerLoss,
        }
    }

    /// Finds what a path leads to.
    pub(super) fn resolve(&self, path: &str) -> Result<Found, EditError> {
        if Path::new(path).is_absolute() {
            let inside = self
                .strip_root(Path::new(path))
                .ok_or_else(|| self.outside(path))?;
            return self.walk(path, inside);
        }
        let base = match self.base {
            Base::Root => Path::new(""),
            Base::Project => match self.walk(path, Path::new("project"))?.what {
                What::Directory(_) => Path::new("project"),
                What::File(_) | What::Missing(_) | What::Special(_) => Path::new(""),
            },
        };
        self.walk(path, &base.join(path))
    }

    fn walk(&self, shown: &str, inside: &Path) -> Result<Found, EditError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &self.real_root, flags, Mode::empty())
            .map_err(|e| EditError::io(shown, e))?;
        let mut walk = Walk {
            root,
            folders: Vec::new(),
        };
        let mut ahead = components(inside);
        let mut links = 0;
        while let Some(step) = ahead.pop_front() {
            if step == ".." {
                walk.folders.pop().ok_or_else(|| self.outside(shown))?;
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = match openat(walk.here(), &step, flags, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return walk.missing(shown, step, ahead),
                Err(errno) => return Err(EditError::io(shown, errno)),
            };
            let stat = fstat(&fd).map_err(|errno| EditError::io(shown, errno))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => walk.folders.push((step, fd)),
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(EditError::io(shown, Errno::LOOP));
                    }
                    let target =
                        readlinkat(&fd, c"", Vec::new()).map_err(|e| EditError::io(shown, e))?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    let mut steps = if target.is_absolute() {
                        walk.folders.clear();
                        let inside = self.strip_root(&target);
                        components(inside.ok_or_else(|| self.outside(shown))?)
                    } else {
                        components(&target)
                    };
                    steps.append(&mut ahead);
                    ahead = steps;
                }
                _ if !ahead.is_empty() => return Err(EditError::io(shown, Errno::NOTDIR)),
                FileType::RegularFile => return walk.file(shown, step),
                other => return Ok(walk.found(step, What::Special(file_kind(other)))),
            }
        }
        walk.directory(shown)
    }

    fn strip_root<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let inside = path.strip_prefix(&self.root);
        inside.or_else(|_| path.strip_prefix(&self.real_root)).ok()
    }

    fn outside(&self, path: &str) -> EditError {
        EditError::Outside {
            path: path.to_owned(),
            root: self.root.display().to_string(),
        }
    }
}

/// The folders that a walk came through.
struct Walk {
    root: OwnedFd,
    folders: Vec<(OsString, OwnedFd)>,
}

impl Walk {
    fn here(&self) -> BorrowedFd<'_> {
        self.folders
            .last()
            .map_or(self.root.as_fd(), |(_, fd)| fd.as_fd())
    }

    fn key(&self) -> PathBuf {
        self.folders.iter().map(|(name, _)| name).collect()
    }

    fn found(&self, name: OsString, what: What) -> Found {
        Found {
            key: self.key().join(name),
            what,
        }
    }

    fn into_here(mut self) -> OwnedFd {
        self.folders.pop().map_or(self.root, |(_, fd)| fd)
    }

    fn file(self, shown: &str, name: OsString) -> Result<Found, EditError> {
        if shown.ends_with('/') {
            return Err(EditError::io(shown, Errno::NOTDIR));
        }
        Ok(Found {
            key: self.key().join(&name),
            what: What::File(FileAt {
                dir: self.into_here(),
                name,
            }),
        })
    }

    fn directory(self, shown: &str) -> Result<Found, EditError> {
        let key = self.key();
        let here = self.into_here();
        // Opened for reading, as a listing needs it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&here, c".", flags, Mode::empty()).map_err(|e| EditError::io(shown, e))?;
        Ok(Found {
            key,
            what: What::Directory(dir),
        })
    }

    fn missing(
        self,
        shown: &str,
        first: OsString,
        rest: VecDeque<OsString>,
    ) -> Result<Found, EditError> {
        let mut names: Vec<OsString> = std::iter::once(first).chain(rest).collect();
        let mut key = self.key();
        key.extend(&names);
        let name = match names.pop() {
            Some(name) if name != ".." && names.iter().all(|name| name != "..") => name,
            // `..` in a folder that does not exist leads nowhere.
            _ => return Err(EditError::NotFound(shown.to_owned())),
        };
        Ok(Found {
            key,
            what: What::Missing(MissingAt {
                dir: self.into_here(),
                parents: names,
                name,
            }),
        })
    }
}

impl FileAt {
    pub(super) fn read(&self, shown: &str) -> Result<Content, EditError> {
        // Non-blocking, in case it has become a pipe since it was found.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.dir, &self.name, flags, Mode::empty())
            .map_err(|e| EditError::io(shown, e))?;
        let stat = fstat(&fd).map_err(|errno| EditError::io(shown, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            other => {
                return Err(EditError::Special {
                    path: shown.to_owned(),
                    kind: file_kind(other),
                });
            }
        }
        // One read for the content and one for its end.
        let size = usize::try_from(stat.st_size).unwrap_or(0).min(MAX_FILE);
        let mut bytes = Vec::with_capacity(size + 1);
        File::from(fd)
            .take(MAX_FILE as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| EditError::io(shown, source))?;
        if bytes.len() > MAX_FILE {
            return Err(EditError::TooLarge {
                path: shown.to_owned(),
            });
        }
        Ok(Content { bytes, stat })
    }

    /// Replaces the file, with the mode and, if permitted, the owner of `old`.
    pub(super) fn write(
        &self,
        shown: &str,
        bytes: &[u8],
        old: &Stat,
        survives: Survives,
    ) -> Result<(), EditError> {
        // A rename would bypass the file's own permissions.
        accessat(&self.dir, &self.name, Access::WRITE_OK, AtFlags::empty())
            .map_err(|errno| EditError::io(shown, errno))?;
        let attempt = || -> std::io::Result<()> {
            let temporary = Temporary::make(&self.dir, bytes, Mode::RUSR | Mode::WUSR)?;
            let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            let _ = fchown(temporary.file(), Some(uid), Some(gid));
            fchmod(temporary.file(), Mode::from_raw_mode(old.st_mode))?;
            temporary.replace(&self.name, survives)
        };
        attempt().map_err(|source| EditError::io(shown, source))
    }

    pub(super) fn remove(&self, shown: &str) -> Result<(), EditError> {
        unlinkat(&self.dir, &self.name, AtFlags::empty())
            .map_err(|errno| EditError::io(shown, errno))
    }
}

impl MissingAt {
    /// Creates the file and its parents.
    pub(super) fn create(self, shown: &str, bytes: &[u8]) -> Result<(), EditError> {
        let mut dir = self.dir;
        for parent in &self.parents {
            let all = Mode::RWXU | Mode::RWXG | Mode::RWXO;
            match mkdirat(&dir, parent, all) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(EditError::io(shown, errno)),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            dir =
                openat(&dir, parent, flags, Mode::empty()).map_err(|e| EditError::io(shown, e))?;
        }
        let readable = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
        let attempt = || Temporary::make(&dir, bytes, readable)?.rename_to_new(&self.name);
        attempt().map_err(|source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AlreadyExists => EditError::Exists(shown.to_owned()),
            _ => EditError::io(shown, source),
        })
    }
}

/// The steps of a path below the root: names and `..`.
fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// A name that can be displayed: invalid UTF-8 is replaced, control characters are escaped.
pub(super) fn shown_name(name: &OsStr) -> String {
    let name = String::from_utf8_lossy(name.as_bytes());
    match name.chars().any(char::is_control) {
        true => name.escape_debug().to_string(),
        false => name.into_owned(),
    }
}
