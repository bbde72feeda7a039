//! The errors of the local tracker.

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
    unavailable(format!("{}: {error}", path.display()))
}
