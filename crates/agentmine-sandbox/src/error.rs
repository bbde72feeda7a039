//! Errors of sandboxes.

use std::io::ErrorKind;

use agentmine_domain::Blame;
use agentmine_runtime::failpoint::OutcomeUnknown;
use agentmine_runtime::shortage::is_shortage;

/// What programs say, in lower case, about what the machine may have again in a moment.
pub(crate) const SHORTAGES: [&str; 7] = [
    "no space left on device",
    "disk quota exceeded",
    "cannot allocate memory",
    "resource temporarily unavailable",
    "too many open files",
    // While systemd or its message bus is restarted.
    "message bus",
    "connection timed out",
];

/// Why a sandbox did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine cannot be reached.
    #[error("the sandbox engine is unavailable: {0}")]
    Unavailable(String),
    /// The engine refused: no such image, no such runtime, no resources.
    #[error("the sandbox could not be created: {0}")]
    Refused(String),
    /// The guest or the tunnel ended: the sandbox is gone.
    #[error("the sandbox is gone: {0}")]
    Gone(String),
    /// The guest answered what the protocol does not allow.
    #[error("the sandbox violated the protocol: {0}")]
    Protocol(String),
    /// The guest could not do it; the sandbox still runs.
    #[error("{0}")]
    Failed(String),
}

impl From<OutcomeUnknown> for SandboxError {
    fn from(error: OutcomeUnknown) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl SandboxError {
    /// An error of the worker's machine: what is missing, full or short now may not be so at the next try. What is
    /// not allowed, or is not what it should be, stays so.
    pub(crate) fn of_machine(what: &dyn std::fmt::Display, error: &std::io::Error) -> Self {
        let text = format!("{what}: {error}");
        match error.kind() {
            ErrorKind::NotFound
            | ErrorKind::WouldBlock
            | ErrorKind::ResourceBusy
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted => Self::Unavailable(text),
            _ if is_shortage(error) || error.raw_os_error() == Some(libc::EIO) => {
                Self::Unavailable(text)
            }
            _ => Self::Refused(text),
        }
    }

    /// A later lease already has a sandbox of this name, which stays.
    pub(crate) fn superseded(name: &str) -> Self {
        Self::Unavailable(format!("{name} belongs to a later lease of the task"))
    }

    /// Whose fault it is. A sandbox that ended, ran out of memory or sent nonsense did so because of
    /// what the task ran in it.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unavailable(_) => Blame::OUTAGE,
            Self::Refused(_) => Blame::Ours,
            Self::Gone(_) | Self::Protocol(_) | Self::Failed(_) => Blame::Task,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_full_on_the_machine_is_an_outage_and_what_is_not_allowed_is_not() {
        let of = |code| {
            let error = std::io::Error::from_raw_os_error(code);
            SandboxError::of_machine(&"the folder", &error).blame()
        };
        for code in [libc::ENOENT, libc::ENOSPC, libc::EMFILE, libc::EAGAIN] {
            assert_eq!(of(code), Blame::OUTAGE, "{code}");
        }
        for code in [libc::EACCES, libc::ENOTDIR, libc::ELOOP] {
            assert_eq!(of(code), Blame::Ours, "{code}");
        }
    }

    #[test]
    fn each_error_says_whose_fault_it_is() {
        let why = String::new;
        for (error, blame) in [
            (SandboxError::Unavailable(why()), Blame::OUTAGE),
            (SandboxError::Refused(why()), Blame::Ours),
            (SandboxError::Gone(why()), Blame::Task),
            (SandboxError::Protocol(why()), Blame::Task),
            (SandboxError::Failed(why()), Blame::Task),
        ] {
            assert_eq!(error.blame(), blame, "{error}");
        }
    }
}
