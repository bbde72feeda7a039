//! Files that show the other processes of a machine whether the one that made them lives.
//!
//! A process locks its file for as long as it lives, and the kernel ends the lock with the process. Whether another
//! kernel holds a lock cannot always be seen in a folder that several machines share, so the first line of the file
//! names the kernel by its boot id.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The lock, which ends when this is dropped. The file stays.
#[derive(Debug)]
pub struct ProcessLock {
    _file: File,
}

/// Whether the process that made a file lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// It holds the lock.
    Alive,
    /// It has ended, or dropped its [`ProcessLock`].
    Gone,
    /// It has not completed the file: it is about to, or has ended before it could.
    Incomplete,
    /// Nothing shows it: the file was made under another kernel, or files cannot be locked there.
    Unknown,
}

impl ProcessLock {
    /// Makes the file and locks it. The note, of any number of lines, is for those who find it.
    ///
    /// # Errors
    /// When the file exists, or cannot be written or locked.
    pub fn hold(path: &Path, note: &str) -> io::Result<Self> {
        let mut file = File::create_new(path)?;
        let mut fill = || {
            // Before it says under which kernel it was made: until then it shows nothing.
            file.lock()?;
            let boot = std::fs::read_to_string(BOOT_ID)?;
            file.write_all(format!("{}\n{note}", boot.trim_end()).as_bytes())
        };
        if let Err(error) = fill() {
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
        Ok(Self { _file: file })
    }
}

/// Whether the process that made this file lives, and its note.
///
/// # Errors
/// When the file cannot be read, as one that does not exist.
pub fn look(path: &Path) -> io::Result<(Holder, String)> {
    let mut file = File::open(path)?;
    // Shared: two that look at the same moment must not take each other for the holder.
    let locked = file.try_lock_shared();
    let mut content = String::new();
    file.read_to_string(&mut content)?;
    let is_complete = content.contains('\n');
    let (boot, note) = content.split_once('\n').unwrap_or_default();
    let holder = match locked {
        Err(TryLockError::WouldBlock) => Holder::Alive,
        Ok(()) if !is_complete => Holder::Incomplete,
        Ok(()) if is_of_this_kernel(boot) => Holder::Gone,
        Ok(()) | Err(TryLockError::Error(_)) => Holder::Unknown,
    };
    Ok((holder, note.to_owned()))
}

fn is_of_this_kernel(boot: &str) -> bool {
    std::fs::read_to_string(BOOT_ID).is_ok_and(|own| own.trim_end() == boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_shows_whether_its_process_lives_as_long_as_the_kernel_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let holder = || look(&path).unwrap().0;
        assert!(look(&path).is_err());
        let lock = ProcessLock::hold(&path, "two\nlines").unwrap();
        assert_eq!(look(&path).unwrap(), (Holder::Alive, "two\nlines".into()));
        assert!(ProcessLock::hold(&path, "").is_err(), "it exists");
        drop(lock);
        // A process that another test starts at this moment has the lock until it begins.
        while holder() == Holder::Alive {
            std::thread::yield_now();
        }
        assert_eq!(look(&path).unwrap(), (Holder::Gone, "two\nlines".into()));
        for (content, expected) in [
            ("of another kernel\ntwo\nlines", Holder::Unknown),
            ("no line", Holder::Incomplete),
            ("", Holder::Incomplete),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(holder(), expected, "{content:?}");
        }
        let lock = File::open(&path).unwrap();
        lock.lock().unwrap();
        assert_eq!(holder(), Holder::Alive, "somebody writes it");
    }
}
