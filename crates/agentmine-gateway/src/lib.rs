//! The worker's end of the tunnel for traffic going out: git for one repository, and the web by
//! policy. The token is added here and nowhere else.

use std::sync::Arc;

use agentmine_runtime::config::{Network, Secret};
use async_trait::async_trait;
use std::path::PathBuf;
use tokio::io::{AsyncRead, AsyncWrite};
use url::Url;

/// Where the repository is.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// Smart HTTP with basic authentication.
    Http {
        url: Url,
        user: String,
        password: Option<Secret>,
    },
    /// A repository on the worker's own disk. Its hooks do not run.
    Path(PathBuf),
}

/// Asked before each push goes upstream.
#[async_trait]
pub trait Fence: Send + Sync + 'static {
    /// `Err`, in words, when the lease is no longer held.
    async fn check(&self) -> Result<(), String>;
}

/// What a session's gateway may do.
pub struct GatewayConfig {
    /// The one repository.
    pub upstream: Upstream,
    /// The one branch that may be pushed to, without `refs/heads/`.
    pub branch: String,
    /// Most bytes of one push.
    pub max_push_bytes: u64,
    /// The web policy.
    pub network: Network,
    /// Asked before each push.
    pub fence: Arc<dyn Fence>,
}

/// Something the gateway did or refused. Shown in the pull request's summary.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A push went upstream and was accepted.
    Pushed {
        branch: String,
        old: String,
        new: String,
        bytes: u64,
    },
    /// A push was refused here.
    PushRefused { reason: String },
    /// Upstream refused the worker's credentials: the session cannot succeed.
    AuthRefused { status: u16 },
    /// A web request was let through.
    WebAllowed { host: String, port: u16 },
    /// A web request was refused here.
    WebBlocked {
        host: String,
        port: u16,
        reason: String,
    },
}

/// A byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

// To be provided:
//   pub struct Gateway (Clone, cheap);
//   Gateway::new(GatewayConfig) -> anyhow::Result<Gateway>
//   gateway.remote_path() -> String            "/<nonce>/repo.git": the path part of the remote URL inside the sandbox
//   gateway.serve_git(stream: impl Stream)     async, until the stream ends; errors are answered as HTTP
//   gateway.serve_web(stream: impl Stream)     async, likewise
//   gateway.events() -> Vec<Event>             so far
//   gateway.auth_refused() -> Option<u16>
//   gateway.pushed_head() -> Option<String>    the newest accepted commit id
//   and for the worker's own facts on a pushed commit, in a clean bare repository of its own:
//   pub mod facts { pub struct BareRepo; BareRepo::new(upstream) ; .resolve(branch) -> Option<sha> (ls-remote);
//       .fetch(&[sha or branch], depth) ; .diff(base_sha, head_sha) -> Diff { files: Vec<FileStat{path, added, removed}>, patch: String (capped) } }
