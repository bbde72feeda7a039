//! Errors of reading upstream's repository.

use std::os::unix::process::ExitStatusExt as _;

use agentmine_domain::Blame;
use agentmine_runtime::shortage::is_shortage;

use crate::git_process::Output;
use crate::printable::printable;
use crate::upstream::UpstreamError;
use crate::wire::ref_name::InvalidBranch;

/// Why upstream's repository could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Upstream refused the worker's credentials; the HTTP status.
    #[error("the repository's host refused the worker's credentials (HTTP {0})")]
    Auth(u16),
    /// Upstream refuses every request until a person changes something, which the text names.
    #[error("{0}")]
    Refused(String),
    /// No such repository, commit or branch.
    #[error("not found: {0}")]
    NotFound(String),
    /// Upstream could not be reached or did not respond in time, or the worker's disk is full. A retry may succeed.
    #[error("{0}")]
    Network(String),
    /// What was pushed exceeds the limits on memory, time or depth of a git process.
    #[error("what was pushed exceeds a limit: {0}")]
    TooLarge(String),
    /// Git failed in another way.
    #[error("git failed: {0}")]
    Git(String),
}

impl FactsError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotFound(_) | Self::TooLarge(_) => Blame::Task,
            Self::Network(_) => Blame::OUTAGE,
            // A token and its permissions are the operator's configuration.
            Self::Auth(_) | Self::Refused(_) | Self::Git(_) => Blame::Ours,
        }
    }
}

impl From<UpstreamError> for FactsError {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::Auth(status) => Self::Auth(status),
            UpstreamError::NotFound => Self::NotFound("the repository".into()),
            UpstreamError::Refused(what) => Self::Refused(what),
            UpstreamError::Rejected(what) => Self::Git(what),
            UpstreamError::Network(what) => Self::Network(what),
        }
    }
}

impl From<std::io::Error> for FactsError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::TimedOut => Self::Network(error.to_string()),
            _ if is_shortage(&error) => Self::Network(on_worker(&error.to_string())),
            _ => Self::Git(error.to_string()),
        }
    }
}

impl From<InvalidBranch> for FactsError {
    fn from(error: InvalidBranch) -> Self {
        Self::NotFound(error.to_string())
    }
}

/// What the worker's machine has no room for.
fn on_worker(why: &str) -> String {
    format!("git failed on the worker's machine: {why}")
}

/// Whether a git command failed at one of its limits.
pub(super) fn exceeded(output: &Output) -> Option<FactsError> {
    const SIGNS: [&str; 5] = [
        "out of memory",
        "Out of memory",
        "over limit",
        "maximum allowed tree depth",
        "memory exhausted",
    ];
    let line = |line: &&str| SIGNS.iter().any(|sign| line.contains(sign));
    if let Some(line) = output.stderr.lines().find(line) {
        return Some(FactsError::TooLarge(printable(line)));
    }
    let signal = output.status.signal()?;
    Some(FactsError::TooLarge(format!(
        "git was ended by signal {signal}"
    )))
}

/// Classifies a failed git command by its messages: git's exit code does not distinguish these.
pub(super) fn failure(output: &Output) -> FactsError {
    let text = output.stderr.trim();
    let last = text
        .lines()
        .rev()
        .find(|line| line.starts_with("fatal:") || line.starts_with("error:"))
        .unwrap_or(text);
    let said = printable(last);
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if has(&[
        "No space left on device",
        "Disk quota exceeded",
        "Read-only file system",
    ]) {
        FactsError::Network(on_worker(&said))
    } else if has(&[
        "error: 401",
        "Authentication failed",
        "could not read Username",
    ]) {
        FactsError::Auth(401)
    } else if has(&["error: 403"]) {
        FactsError::Auth(403)
    } else if has(&[
        "not found",
        "couldn't find remote ref",
        "not our ref",
        "does not appear to be a git repository",
        "bad object",
        "Not a valid",
        "no such remote ref",
        "unknown revision",
        "invalid object name",
    ]) {
        FactsError::NotFound(said)
    } else if has(&[
        "Could not resolve host",
        "Failed to connect",
        "Couldn't connect",
        "unable to access",
        "timed out",
        "early EOF",
        "hung up unexpectedly",
        "RPC failed",
    ]) {
        FactsError::Network(said)
    } else {
        FactsError::Git(said)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;
    use crate::wire::ref_name::branch_ref;

    #[test]
    fn each_error_says_whose_fault_it_is() {
        for (error, blame) in [
            (FactsError::Auth(403), Blame::Ours),
            (FactsError::from(UpstreamError::NotFound), Blame::Task),
            (branch_ref("a b").unwrap_err().into(), Blame::Task),
            (Error::from(ErrorKind::TimedOut).into(), Blame::OUTAGE),
            (Error::from(ErrorKind::NotFound).into(), Blame::Ours),
            (Error::from(ErrorKind::StorageFull).into(), Blame::OUTAGE),
            (Error::from_raw_os_error(libc::EMFILE).into(), Blame::OUTAGE),
        ] {
            assert_eq!(error.blame(), blame, "{error}");
        }
    }

    #[test]
    fn a_full_disk_under_git_is_an_outage_that_names_the_worker() {
        let output = Output {
            status: std::process::ExitStatus::from_raw(128 << 8),
            stdout: Vec::new(),
            cut: false,
            stderr: "error: unable to write file objects/pack/x: No space left on device\n\
                     fatal: unable to access 'x'\n"
                .into(),
        };
        let error = failure(&output);
        assert_eq!(error.blame(), Blame::OUTAGE);
        assert!(
            error.to_string().contains("the worker's machine"),
            "{error}"
        );
    }
}
