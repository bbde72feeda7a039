//! Whether the worker that started a jail is still there.
//!
//! It holds a lock on a file in the jail's folder for as long as it lives; the kernel ends the lock with the process.
//! Whether another kernel holds a lock cannot always be seen, so the file names the kernel by its boot id.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;

use crate::backend::WorkerState;
use crate::spare::SpareState;

const LOCK: &str = "held";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The lock, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    _lock: File,
}

/// Locks the jail in this folder. It counts from the moment at which the file has its name.
pub(super) fn hold(folder: &Path) -> io::Result<Held> {
    let part = folder.join(format!("{LOCK}.part"));
    let mut lock = File::create_new(&part)?;
    lock.write_all(std::fs::read_to_string(BOOT)?.as_bytes())?;
    lock.lock()?;
    std::fs::rename(part, folder.join(LOCK))?;
    Ok(Held { _lock: lock })
}

/// Whether somebody holds the jail in this folder. A jail has no lock while it is being started.
pub(super) fn state(folder: &Path) -> SpareState {
    let Ok(lock) = File::open(folder.join(LOCK)) else {
        return SpareState::Starting;
    };
    // Shared: two that look at the same moment must not take each other for its holder.
    match lock.try_lock_shared() {
        Ok(()) => SpareState::Abandoned,
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => SpareState::Held,
    }
}

/// Whether the worker that started the jail in this folder still has it. Nothing shows it for a jail of an earlier
/// version, for one of another kernel, and where files cannot be locked.
pub(super) fn worker(folder: &Path) -> WorkerState {
    match state(folder) {
        SpareState::Starting => WorkerState::Unknown,
        SpareState::Held => WorkerState::Alive,
        SpareState::Abandoned => {
            let boot = std::fs::read_to_string(BOOT).ok();
            let of_jail = std::fs::read_to_string(folder.join(LOCK)).ok();
            match boot.is_some() && boot == of_jail {
                true => WorkerState::Gone,
                false => WorkerState::Unknown,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lock_of_this_kernel_shows_that_a_worker_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(worker(folder.path()), WorkerState::Unknown);
        let held = hold(folder.path()).unwrap();
        assert_eq!(worker(folder.path()), WorkerState::Alive);
        drop(held);
        // A process that another test starts at this moment has the lock until it begins.
        while worker(folder.path()) == WorkerState::Alive {
            std::thread::yield_now();
        }
        assert_eq!(worker(folder.path()), WorkerState::Gone);
        std::fs::write(folder.path().join(LOCK), "of another kernel\n").unwrap();
        assert_eq!(worker(folder.path()), WorkerState::Unknown);
    }
}
