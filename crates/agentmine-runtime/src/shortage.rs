//! Which I/O errors are a shortage of the machine.

use std::io::{Error, ErrorKind};

/// Whether a file could not be written or opened because the machine has no disk, memory or open files left for it. That is no
/// fault of the task, and may have ended at the next attempt.
#[must_use]
pub fn is_shortage(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::OutOfMemory => true,
        _ => matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_a_shortage_and_a_missing_file_is_not() {
        let is = |code| is_shortage(&Error::from_raw_os_error(code));
        for code in [
            libc::ENOSPC,
            libc::EDQUOT,
            libc::EROFS,
            libc::ENOMEM,
            libc::EMFILE,
            libc::ENFILE,
        ] {
            assert!(is(code), "{code}");
        }
        for code in [libc::ENOENT, libc::EACCES, libc::EIO, libc::ETIMEDOUT] {
            assert!(!is(code), "{code}");
        }
    }
}
