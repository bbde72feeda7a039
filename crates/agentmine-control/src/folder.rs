//! A folder of small text files in a repository that may be hostile.
//!
//! Guaranteed: each step of the path is opened from the one before it and may not be a link, neither a folder nor a
//! file, so nothing outside the repository is read or replaced, no matter who changes it meanwhile. Only regular files of a
//! known ending are read, in the order of their names, with caps on their number and size. A file is replaced as a whole.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};

/// Files of a folder at most.
const MAX_FILES: usize = 2000;

/// A folder whose files are read.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// Which files are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// The endings of their names, with the dot.
    pub(crate) endings: &'static [&'static str],
    /// Their largest size in bytes.
    pub(crate) max_bytes: u64,
}

/// A file of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    /// Its text, or why it is not read.
    pub(crate) text: Result<String, String>,
}

impl Folder {
    /// The folder below `root` along `path`; `None` if it does not exist.
    pub(crate) fn open(root: &Path, path: &[&str]) -> io::Result<Option<Self>> {
        let mut folder = match open_at(CWD, root, OFlags::DIRECTORY) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        for name in path {
            folder = match open_at(
                &folder,
                Path::new(name),
                OFlags::DIRECTORY | OFlags::NOFOLLOW,
            ) {
                Err(rustix::io::Errno::NOENT) => return Ok(None),
                Err(error) => return Err(named(name, error)),
                Ok(folder) => folder,
            };
        }
        Ok(Some(Self(folder)))
    }

    /// The same; folders that do not exist are created.
    pub(crate) fn create(root: &Path, path: &[&str]) -> io::Result<Self> {
        let mut folder = open_at(CWD, root, OFlags::DIRECTORY)?;
        for name in path {
            match rustix::fs::mkdirat(&folder, *name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(named(name, error)),
            }
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
            folder = open_at(&folder, Path::new(name), flags).map_err(|e| named(name, e))?;
        }
        Ok(Self(folder))
    }

    /// The files of this kind, by name.
    pub(crate) fn files(&self, kind: Kind) -> io::Result<Vec<Entry>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_hidden = name.starts_with('.');
            if !is_hidden && kind.endings.iter().any(|ending| name.ends_with(ending)) {
                names.push(name);
            }
            if names.len() > MAX_FILES {
                let many = format!("it has more than {MAX_FILES} files");
                return Err(io::Error::other(many));
            }
        }
        names.sort();
        let entry = |name: String| Entry {
            text: self.read(&name, kind.max_bytes),
            name,
        };
        Ok(names.into_iter().map(entry).collect())
    }

    /// The text of a file, or why it is not read.
    pub(crate) fn read(&self, name: &str, max_bytes: u64) -> Result<String, String> {
        // A pipe would block.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match open_at(&self.0, Path::new(name), flags) {
            Ok(file) => file,
            Err(rustix::io::Errno::LOOP) => return Err("it is a link".into()),
            Err(error) => return Err(format!("it cannot be read: {error}")),
        };
        let status = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err("it is not a regular file".into());
        }
        let mut bytes = Vec::new();
        File::from(file)
            .take(max_bytes + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("it cannot be read: {error}"))?;
        if bytes.len() as u64 > max_bytes {
            return Err(format!("it is larger than {max_bytes} bytes"));
        }
        String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".into())
    }

    /// Whether there is something of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Replaces a file: a reader sees the old text or the new one. A link of that name is replaced, not followed.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let part = format!(".{name}.{}", uuid::Uuid::new_v4().simple());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let mut file = File::from(rustix::fs::openat(&self.0, &part, flags, mode)?);
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(rustix::fs::renameat(&self.0, &part, &self.0, name)?));
        if written.is_err() {
            // The error that is returned says more than a second one.
            let _ = rustix::fs::unlinkat(&self.0, &part, AtFlags::empty());
        }
        written
    }
}

fn open_at(
    folder: impl rustix::fd::AsFd,
    path: &Path,
    flags: OFlags,
) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, path, flags, Mode::empty())
}

/// The error, with the folder that it is about.
fn named(name: &str, error: rustix::io::Errno) -> io::Error {
    let why = match error {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => "is a link or not a folder".into(),
        other => format!("cannot be opened: {other}"),
    };
    io::Error::other(format!("{name} {why}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const TEXT: Kind = Kind {
        endings: &[".md"],
        max_bytes: 8,
    };

    #[test]
    fn no_link_is_followed_and_no_large_or_strange_file_is_read() {
        let root = tempfile::tempdir().unwrap();
        let secret = root.path().join("secret");
        std::fs::write(&secret, "hunter2").unwrap();
        let inner = root.path().join(".agentmine/memory");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("good.md"), "12345678").unwrap();
        std::fs::write(inner.join("large.md"), "123456789").unwrap();
        std::fs::write(inner.join("binary.md"), [0xff, 0xfe]).unwrap();
        std::fs::write(inner.join(".hidden.md"), "x").unwrap();
        std::fs::write(inner.join("other.txt"), "x").unwrap();
        std::fs::create_dir(inner.join("folder.md")).unwrap();
        symlink(&secret, inner.join("link.md")).unwrap();
        let folder = Folder::open(root.path(), &[".agentmine", "memory"])
            .unwrap()
            .unwrap();
        let seen: Vec<(String, String)> = folder
            .files(TEXT)
            .unwrap()
            .into_iter()
            .map(|entry| (entry.name, entry.text.unwrap_or_else(|why| why)))
            .collect();
        let expected = [
            ("binary.md", "it is not UTF-8 text"),
            ("folder.md", "it is not a regular file"),
            ("good.md", "12345678"),
            ("large.md", "it is larger than 8 bytes"),
            ("link.md", "it is a link"),
        ];
        assert_eq!(
            seen,
            expected.map(|(name, text)| (name.into(), text.into()))
        );
        // A link of the same name is replaced, and its target kept.
        folder.write("link.md", "new").unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "hunter2");
        assert_eq!(
            std::fs::read_to_string(inner.join("link.md")).unwrap(),
            "new"
        );
    }

    #[test]
    fn a_folder_that_is_a_link_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::create_dir(elsewhere.path().join("memory")).unwrap();
        symlink(elsewhere.path(), root.path().join(".agentmine")).unwrap();
        let path = [".agentmine", "memory"];
        for error in [
            Folder::open(root.path(), &path).unwrap_err(),
            Folder::create(root.path(), &path).unwrap_err(),
        ] {
            assert!(
                error.to_string().contains(".agentmine is a link"),
                "{error}"
            );
        }
        assert!(Folder::open(elsewhere.path(), &path).unwrap().is_none());
    }
}
