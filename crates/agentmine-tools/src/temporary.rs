//! Writes a temporary file and renames it, so that no reader sees a half-written file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

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

    pub(crate) fn rename_to(mut self, name: &OsStr) -> std::io::Result<()> {
        renameat(self.dir, &self.name, self.dir, name)?;
        self.kept = true;
        Ok(())
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
