//! What one session's gateway allows.

use std::path::PathBuf;
use std::sync::Arc;

use agentmine_runtime::config::Network;
use agentmine_runtime::live_secret::LiveSecret;
use agentmine_runtime::tls::Authority;
use async_trait::async_trait;
use url::Url;

/// What one session's gateway allows.
pub struct GatewayConfig {
    /// The repository.
    pub git: GitAccess,
    /// The web policy.
    pub network: Network,
}

/// What the sandbox may do with the one repository.
pub enum GitAccess {
    /// There is no repository: connections for git are closed at once.
    None,
    /// It may fetch. Every push is refused.
    ReadOnly(Upstream),
    /// It may fetch, and push to one branch.
    ReadWrite {
        /// Where the repository is.
        upstream: Upstream,
        /// The one branch that may be pushed to, without `refs/heads/`.
        branch: String,
        /// Upper limit of one push, in bytes.
        max_push_bytes: u64,
        /// Asked before each push.
        fence: Arc<dyn PushFence>,
    },
}

/// The right to replace the history of the one branch, as a rebase does. Every other push only adds to the branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// Only while the branch is at this commit, or at one that this session pushed in its place or on top of it.
    pub head: String,
    /// What is pushed instead must contain this commit.
    pub onto: String,
}

/// Where the repository is.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// Smart HTTP with basic authentication.
    Http {
        /// The repository's URL. A user or password in it is dropped.
        url: Url,
        /// The user name that goes with the token.
        user: String,
        /// The token. Without one, no credentials are sent.
        password: Option<LiveSecret>,
        /// A certificate authority that is trusted in addition to the system's.
        authority: Option<Authority>,
    },
    /// A repository on the worker's own disk. Its hooks do not run.
    Path(PathBuf),
}

/// What is known of the branch that a session may push to, before its first push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BranchBefore {
    /// Nothing: it may be there, or not.
    #[default]
    Unknown,
    /// It was not there.
    Absent,
    /// It was there. Since then an earlier session may still have pushed.
    Present,
    /// It was at this commit, and only others than AgentMine can have moved it.
    At(String),
}

/// Decides, right before each push goes upstream, whether the session may still push.
#[async_trait]
pub trait PushFence: Send + Sync + 'static {
    /// # Errors
    /// The reason, for the user of git, when the lease is no longer held.
    async fn check(&self) -> Result<(), String>;

    /// The same by the worker's own clock alone, at the last moment: the process may have been stalled since the
    /// answer of the store.
    ///
    /// # Errors
    /// The reason, when the lease may have ended.
    fn check_clock(&self) -> Result<(), String>;

    /// Upstream has accepted a push.
    fn accepted(&self) {}
}
