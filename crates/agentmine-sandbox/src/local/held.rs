//! Whether the worker that started a jail is still there: it holds a lock in the jail's folder for as long as it lives.

use std::io;
use std::path::Path;

use agentmine_runtime::process_lock::{Holder, ProcessLock, look};

use crate::backend::WorkerState;

const LOCK: &str = "held";

/// Locks the jail in this folder.
pub(super) fn hold(folder: &Path) -> io::Result<ProcessLock> {
    ProcessLock::hold(&folder.join(LOCK), "")
}

/// Whether the worker that started the jail in this folder still has it. A jail has no lock while it is being started,
/// and none if an earlier version started it.
pub(super) fn worker(folder: &Path) -> WorkerState {
    match look(&folder.join(LOCK)) {
        Ok((Holder::Alive, _)) => WorkerState::Alive,
        Ok((Holder::Gone, _)) => WorkerState::Gone,
        Ok((Holder::Unknown, _)) => WorkerState::Unknown,
        // A worker that was killed before it had completed the file leaves it so.
        Ok((Holder::Incomplete, _)) | Err(_) => WorkerState::Starting,
    }
}
