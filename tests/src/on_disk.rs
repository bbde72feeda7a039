//! Folders on a disk. `tests/run` keeps temporary folders in memory where it can, and there a sandbox has no file system of
//! fixed size, and what a program writes counts as its memory.

use std::io;

use tempfile::TempDir;

/// A temporary folder on a disk, whatever `TMPDIR` is.
///
/// # Errors
/// If `/var/tmp` cannot be written.
pub fn folder() -> io::Result<TempDir> {
    tempfile::tempdir_in("/var/tmp")
}
