//! Why there is no gateway.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use agentmine_domain::Blame;
use agentmine_git::ViewError;
use agentmine_runtime::shortage::is_shortage;

use crate::wire::ref_name::InvalidBranch;

/// Why a gateway, or the worker's own copy of a repository, cannot be made. Nothing was contacted yet.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The repository on this machine cannot be opened.
    #[error("the repository {} cannot be opened: {}", .path.display(), .error.with_hint())]
    Repository {
        /// Where it should be.
        path: PathBuf,
        /// Why it cannot be opened.
        error: ViewError,
    },
    /// The repository has an address that git does not fetch from here.
    #[error("the repository's URL is neither http nor https")]
    Url,
    /// The client for the repository's host cannot be made, for this reason.
    #[error("{0}")]
    Client(String),
    /// The name of the branch, which is in the text, is not one.
    #[error("{0}")]
    Branch(String),
    /// The temporary folder cannot be written, or git cannot be started.
    #[error("on the worker's machine: {0}")]
    Io(#[from] io::Error),
    /// A value of the configuration of the network, which is in the text, cannot be used.
    #[error("{0}")]
    Network(String),
    /// The session's certificates for package registries cannot be made.
    #[error("{what}: {why}")]
    Certificates {
        /// What of them.
        what: &'static str,
        /// Why not.
        why: String,
    },
}

impl From<reqwest::Error> for GatewayError {
    fn from(error: reqwest::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(because) = cause {
            text += &format!(": {because}");
            cause = because.source();
        }
        Self::Client(text)
    }
}

impl From<InvalidBranch> for GatewayError {
    fn from(error: InvalidBranch) -> Self {
        Self::Branch(error.to_string())
    }
}

impl GatewayError {
    /// Whose fault it is. The worker's disk may have room again at the next attempt.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Io(error)
            | Self::Repository {
                error: ViewError::NoGit(error) | ViewError::Io(error),
                ..
            } if is_shortage(error) => Blame::OUTAGE,
            Self::Io(_)
            | Self::Repository { .. }
            | Self::Url
            | Self::Client(_)
            | Self::Branch(_)
            | Self::Network(_)
            | Self::Certificates { .. } => Blame::Ours,
        }
    }

    /// For a fault in one of the session's certificates.
    pub(crate) fn certificates(what: &'static str, why: &dyn Error) -> Self {
        Self::Certificates {
            what,
            why: why.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_an_outage_and_any_other_fault_is_ours() {
        let of = |code| io::Error::from_raw_os_error(code);
        for (error, blame) in [
            (GatewayError::from(of(libc::ENOSPC)), Blame::OUTAGE),
            (GatewayError::from(of(libc::EACCES)), Blame::Ours),
            (
                GatewayError::Repository {
                    path: "/srv/repo.git".into(),
                    error: ViewError::NoGit(of(libc::EMFILE)),
                },
                Blame::OUTAGE,
            ),
            (GatewayError::Url, Blame::Ours),
        ] {
            assert_eq!(error.blame(), blame, "{error}");
        }
    }
}
