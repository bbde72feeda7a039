//! Whether the worker that started a jail is still there.
//!
//! It holds a lock on a file in the jail's folder for as long as it lives; the kernel ends the lock with the process.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use crate::spare::SpareState;

const LOCK: &str = "held";

/// The lock, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    _lock: File,
}

/// Locks the jail in this folder. It counts from the moment at which the file has its name.
pub(super) fn hold(folder: &Path) -> io::Result<Held> {
    let part = folder.join(format!("{LOCK}.part"));
    let lock = File::create_new(&part)?;
    lock.lock()?;
    std::fs::rename(part, folder.join(LOCK))?;
    Ok(Held { _lock: lock })
}

/// Whether somebody holds the jail in this folder. One that has no lock is being started, or was by an earlier version, or
/// where files cannot be locked.
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
