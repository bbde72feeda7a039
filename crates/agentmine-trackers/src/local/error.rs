//! The errors of the local tracker.

use std::io::ErrorKind;
use std::path::Path;

use agentmine_domain::TrackerKind;

use crate::error::TrackerError;

pub(super) fn refused(detail: impl Into<String>) -> TrackerError {
    TrackerError::refused(TrackerKind::Local, detail)
}

pub(super) fn invalid(detail: impl Into<String>) -> TrackerError {
    TrackerError::invalid(TrackerKind::Local, detail)
}

pub(super) fn unavailable(detail: impl Into<String>) -> TrackerError {
    TrackerError::unavailable(TrackerKind::Local, detail)
}

pub(super) fn io(path: &Path, error: &std::io::Error) -> TrackerError {
    let hint = remedy(error);
    unavailable(format!("{}: {error}. hint: {hint}", path.display()))
}

/// What a person can do about a file that cannot be used.
pub(super) fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "let the user that runs this read and write there"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on its disk",
        _ => "check its folder and its disk, then repeat the command",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_on_this_machine_comes_with_a_hint() {
        for (kind, words) in [
            (ErrorKind::PermissionDenied, "hint: let the user"),
            (ErrorKind::ReadOnlyFilesystem, "hint: let the user"),
            (ErrorKind::StorageFull, "hint: make room"),
            (ErrorKind::Other, "hint: check its folder"),
        ] {
            let error: std::io::Error = kind.into();
            let text = io(Path::new("/r/.agentmine/lock"), &error).to_string();
            assert!(text.starts_with("local is unavailable: /r/"), "{text}");
            assert!(text.contains(words), "{text}");
        }
    }
}
