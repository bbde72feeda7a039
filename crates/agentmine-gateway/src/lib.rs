//! The worker's end of the tunnel for traffic going out: git for one repository, and the web by
//! policy. The token is added here and nowhere else.
//!
//! Each stream handed to a [`Gateway`] is one connection of a sandbox, and hostile: what it may ask
//! for, how much and for how long is bounded here. A faulty stream ends; it never fails the gateway.
//! [`facts`] is the worker's own look at what was pushed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::config::{Network, Secret};
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use url::Url;

mod events;
pub mod facts;
mod git;
mod http;
mod metrics;
mod stalling;
mod web;

pub use events::TrafficEvent;

/// Connections of one kind served at once; more wait.
const MAX_CONNECTIONS: usize = 128;

/// Time that a git client may leave an answer unread.
const WRITE_STALL: Duration = Duration::from_secs(120);

/// Where the repository is.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// Smart HTTP with basic authentication.
    Http {
        /// The repository's URL. A user or password in it is dropped.
        url: Url,
        /// The user's name that goes with the token.
        user: String,
        /// The token. Without one, nothing is sent.
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

/// A byte stream.
pub trait GatewayStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> GatewayStream for T {}

/// The gateway of one session. Clones share everything.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    git: Arc<git::GitProxy>,
    web: Arc<web::WebProxy>,
    ledger: Arc<events::Ledger>,
    git_connections: Semaphore,
    web_connections: Semaphore,
}

impl Gateway {
    /// Makes the gateway. Nothing is connected to yet.
    ///
    /// # Errors
    /// When the upstream cannot be used, the branch's name is none, or the web policy names an
    /// unknown preset or a malformed host.
    pub fn new(config: GatewayConfig) -> anyhow::Result<Self> {
        metrics::describe();
        let GatewayConfig {
            upstream,
            branch,
            max_push_bytes,
            network,
            fence,
        } = config;
        let ledger = Arc::new(events::Ledger::default());
        let git = git::GitProxy::new(upstream, branch, max_push_bytes, fence, ledger.clone())?;
        let web = web::WebProxy::new(&network, ledger.clone())?;
        Ok(Self {
            inner: Arc::new(Inner {
                git: Arc::new(git),
                web: Arc::new(web),
                ledger,
                git_connections: Semaphore::new(MAX_CONNECTIONS),
                web_connections: Semaphore::new(MAX_CONNECTIONS),
            }),
        })
    }

    /// The path part of the remote's URL inside the sandbox: `/<nonce>/repo.git`.
    #[must_use]
    pub fn remote_path(&self) -> String {
        self.inner.git.prefix().to_owned()
    }

    /// Lets no push through from here on, until [`Self::unseal`]. Waits for the one that is being
    /// judged or sent, so that what upstream holds afterwards stays. A push that is still being read
    /// is not waited for: it is refused when it has been read.
    pub async fn seal(&self) {
        self.inner.git.seal().await;
    }

    /// Lets pushes through again.
    pub fn unseal(&self) {
        self.inner.git.unseal();
    }

    /// Serves git on one connection of the sandbox, until it ends. Errors are answered as HTTP.
    pub async fn serve_git(&self, stream: impl GatewayStream) {
        let Ok(_permit) = self.inner.git_connections.acquire().await else {
            return;
        };
        // A sandbox that asks and does not read must not hold what answers it for ever.
        let stream = stalling::Stalling::new(stream, WRITE_STALL);
        http::serve(stream, |request| self.inner.git.clone().handle(request)).await;
    }

    /// Serves as web proxy on one connection of the sandbox, until it ends. Errors are answered as
    /// HTTP.
    pub async fn serve_web(&self, stream: impl GatewayStream) {
        let Ok(_permit) = self.inner.web_connections.acquire().await else {
            return;
        };
        self.inner.web.serve(stream).await;
    }

    /// What was done and refused so far, oldest first. A host is told once.
    #[must_use]
    pub fn events(&self) -> Vec<TrafficEvent> {
        self.inner.ledger.events()
    }

    /// How many things were done or refused that [`Self::events`] has no room for.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.inner.ledger.dropped()
    }

    /// The HTTP status with which upstream refused the worker's credentials, if it did.
    #[must_use]
    pub fn auth_refused(&self) -> Option<u16> {
        self.inner.ledger.auth_refused()
    }

    /// The newest commit that upstream accepted from here.
    #[must_use]
    pub fn pushed_head(&self) -> Option<String> {
        self.inner.ledger.pushed_head()
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The remote path is what keeps other local users out.
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}
