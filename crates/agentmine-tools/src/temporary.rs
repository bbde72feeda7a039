//! Writes a temporary file and gives it the other one's name, so that no reader sees a half-written file.
//!
//! A rename over a file also makes ext4 write the new content out at once, so that neither is lost when the machine
//! loses power. That takes several times as long as all the rest. An exchange of two names is as atomic for every
//! reader, and the content is written out with everything else; it is for files that do not outlive the machine's
//! next start anyway.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// What the content of a replaced file has to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survives {
    /// A loss of power: a person's own files.
    PowerLoss,
    /// Only the death of processes: the files of a sandbox. After a loss of power no sandbox is used again; its task
    /// continues from the last checkpoint, in another one.
    Kill,
}

/// A file with a temporary name. It is removed unless it is renamed.
pub(crate) struct Temporary<'a> {
    dir: &'a OwnedFd,
    name: String,
    file: File,
    kept: bool,
}

impl<'a> Temporary<'a> {
    pub(crate) fn make(dir: &'a OwnedFd, bytes: &[u8], mode: Mode) -> std::io::Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let pid = std::process::id();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (name, fd) = loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let name = format!(".agentmine-{pid}-{number}.tmp");
            match openat(dir, &name, flags, mode) {
                Ok(fd) => break (name, fd),
                // Left behind by an earlier process with the same pid.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        let mut temporary = Self {
            dir,
            name,
            file: fd.into(),
            kept: false,
        };
        temporary.file.write_all(bytes)?;
        Ok(temporary)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn rename_to(mut self, name: &OsStr) -> std::io::Result<()> {
        renameat(self.dir, &self.name, self.dir, name)?;
        self.kept = true;
        Ok(())
    }

    /// Replaces the file of this name.
    pub(crate) fn replace(self, name: &OsStr, survives: Survives) -> std::io::Result<()> {
        match survives {
            Survives::PowerLoss => self.rename_to(name),
            Survives::Kill => self.exchange_with(name),
        }
    }

    fn exchange_with(mut self, name: &OsStr) -> std::io::Result<()> {
        match self.exchange(name) {
            Ok(()) => {}
            // Some file systems do not know the flag, or the file was removed meanwhile.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::NOENT) => {
                return self.rename_to(name);
            }
            Err(errno) => return Err(errno.into()),
        }
        match unlinkat(self.dir, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            // A folder has taken the file's place meanwhile: it goes back there.
            Err(errno) => {
                self.exchange(name)?;
                return Err(errno.into());
            }
        }
        self.kept = true;
        Ok(())
    }

    fn exchange(&self, name: &OsStr) -> Result<(), Errno> {
        renameat_with(self.dir, &self.name, self.dir, name, RenameFlags::EXCHANGE)
    }

    pub(crate) fn rename_to_new(mut self, name: &OsStr) -> std::io::Result<()> {
        match renameat_with(self.dir, &self.name, self.dir, name, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // Some file systems do not know the flag.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                match statat(self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => renameat(self.dir, &self.name, self.dir, name)?,
                    Ok(_) => return Err(Errno::EXIST.into()),
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(errno) => return Err(errno.into()),
        }
        self.kept = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let _ = unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn temporary(folder: &Path, survives: Survives) -> std::io::Result<()> {
        let dir: OwnedFd = File::open(folder)?.into();
        Temporary::make(&dir, b"new", Mode::RUSR | Mode::WUSR)?.replace("a".as_ref(), survives)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }

    const BOTH: [Survives; 2] = [Survives::PowerLoss, Survives::Kill];

    #[test]
    fn replaced_file_has_the_new_content_and_nothing_else_is_left() {
        for survives in BOTH {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("a"), "old").unwrap();
            temporary(folder.path(), survives).unwrap();
            assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"new");
            assert_eq!(names(folder.path()), ["a"], "{survives:?}");
        }
    }

    #[test]
    fn file_that_was_removed_meanwhile_is_there_again() {
        for survives in BOTH {
            let folder = tempfile::tempdir().unwrap();
            temporary(folder.path(), survives).unwrap();
            assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"new");
            assert_eq!(names(folder.path()), ["a"], "{survives:?}");
        }
    }

    #[test]
    fn folder_that_took_the_place_of_the_file_stays() {
        for survives in BOTH {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("a")).unwrap();
            fs::write(folder.path().join("a/kept"), "mine").unwrap();
            temporary(folder.path(), survives).unwrap_err();
            assert_eq!(fs::read(folder.path().join("a/kept")).unwrap(), b"mine");
            assert_eq!(names(folder.path()), ["a"], "{survives:?}");
        }
    }

    #[test]
    fn link_that_took_the_place_of_the_file_is_replaced_and_not_followed() {
        for survives in BOTH {
            let folder = tempfile::tempdir().unwrap();
            let elsewhere = tempfile::NamedTempFile::new().unwrap();
            std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("a")).unwrap();
            temporary(folder.path(), survives).unwrap();
            assert!(!folder.path().join("a").is_symlink());
            assert_eq!(fs::read(elsewhere.path()).unwrap(), b"");
            assert_eq!(names(folder.path()), ["a"], "{survives:?}");
        }
    }
}
