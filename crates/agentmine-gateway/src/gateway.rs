//! The gateway of one session, as the worker uses it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::config::{BranchBefore, GatewayConfig, Rewrite};
use crate::events::{Ledger, TrafficEvent};
use crate::git::GitProxy;
use crate::mirror::Mirrors;
use crate::mirror::refs::CloneRefs;
use crate::stream::GatewayStream;
use crate::web::WebProxy;
use crate::write_timeout::WriteTimeout;
use crate::{GatewayError, http, metrics};

/// Connections of one kind served at once; more wait.
const MAX_CONNECTIONS: usize = 128;

/// How long a git client may leave a response unread.
const WRITE_STALL: Duration = Duration::from_secs(120);

/// The gateway of one session. Clones share everything.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    /// `None` where the session has no repository.
    git: Option<Arc<GitProxy>>,
    web: Arc<WebProxy>,
    ledger: Arc<Ledger>,
    git_connections: Semaphore,
    web_connections: Arc<Semaphore>,
}

impl Gateway {
    /// Makes the gateway. It connects to nothing yet.
    ///
    /// # Errors
    /// When the upstream cannot be used, the branch name is invalid, or the web policy names an
    /// unknown preset or an invalid host.
    pub fn new(config: GatewayConfig) -> Result<Self, GatewayError> {
        Self::with_mirrors(config, None)
    }

    /// The same, with new clones from a mirror where there is one.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_mirrors(
        config: GatewayConfig,
        mirrors: Option<&Mirrors>,
    ) -> Result<Self, GatewayError> {
        metrics::describe();
        let GatewayConfig { git, network } = config;
        let ledger = Arc::new(Ledger::default());
        let git = GitProxy::new(git, network.push.clone(), mirrors, ledger.clone())?.map(Arc::new);
        let web = Arc::new(WebProxy::new(&network, ledger.clone())?);
        Ok(Self {
            inner: Arc::new(Inner {
                git,
                web,
                ledger,
                git_connections: Semaphore::new(MAX_CONNECTIONS),
                web_connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            }),
        })
    }

    /// The path part of the remote's URL inside the sandbox: `/<nonce>/repo.git`. `None` where the
    /// session has no repository.
    #[must_use]
    pub fn remote_path(&self) -> Option<&str> {
        self.inner.git.as_ref().map(|git| git.prefix())
    }

    /// What a new clone of this branch alone would get, by the host's own list for the session's token at this moment. `None` if the host does
    /// not answer, does not speak version 2 of git's protocol or has no such branch, and for a repository on this machine.
    pub async fn clone_refs(&self, branch: &str) -> Option<CloneRefs> {
        self.inner.git.as_ref()?.clone_refs(branch).await
    }

    /// The certificate authority of this session as PEM, if its sandbox must trust one: package registries
    /// are read through it.
    #[must_use]
    pub fn authority(&self) -> Option<String> {
        self.inner.web.authority()
    }

    /// Refuses every push from now on, until [`Self::unseal`]. Waits for a push that is being checked
    /// or sent, so that what upstream holds afterwards stays. A push that is still being read is not
    /// waited for: it is refused once it has been read.
    pub async fn seal(&self) {
        if let Some(git) = &self.inner.git {
            git.seal().await;
        }
    }

    /// Asks the repository's host whether the worker may push, so that a token that may only read is found before any work
    /// ([`Self::auth_refused`]).
    pub async fn try_credentials(&self) {
        if let Some(git) = &self.inner.git {
            git.try_credentials().await;
        }
    }

    /// What was seen of the branch before any push from here. From now on a push that would create one that was there is refused,
    /// since somebody removed it, and one on top of anything else shows that somebody pushed ([`Self::others_pushed`]).
    pub async fn branch_was(&self, before: BranchBefore) {
        if let Some(git) = &self.inner.git {
            git.branch_was(before).await;
        }
    }

    /// Whether a push from here was on top of one of somebody else.
    #[must_use]
    pub fn others_pushed(&self) -> bool {
        self.inner.ledger.others_pushed()
    }

    /// A push that creates the branch must contain this commit, which the work began from. From an older commit, the
    /// branch could have older versions of protected files, such as workflows, and the forge would run them.
    pub async fn require_start(&self, commit: &str) {
        if let Some(git) = &self.inner.git {
            git.require_start(commit).await;
        }
    }

    /// From now on a push may replace the history of the branch, within these bounds. The right ends with the first
    /// commit of somebody else on the branch, and when the repository's host refuses such a push.
    pub async fn allow_rewrite(&self, rewrite: Rewrite) {
        if let Some(git) = &self.inner.git {
            git.allow_rewrite(rewrite).await;
        }
    }

    /// The commit that a push may replace now: the one that the branch must be at.
    pub async fn rewritable(&self) -> Option<String> {
        match &self.inner.git {
            Some(git) => git.rewritable().await,
            None => None,
        }
    }

    /// Allows pushes again.
    pub fn unseal(&self) {
        if let Some(git) = &self.inner.git {
            git.unseal();
        }
    }

    /// Serves git on one connection of the sandbox, until it ends. Errors become HTTP responses.
    pub async fn serve_git(&self, stream: impl GatewayStream) {
        let Some(git) = &self.inner.git else { return };
        let Ok(_permit) = self.inner.git_connections.acquire().await else {
            return;
        };
        // A sandbox that asks and does not read must not occupy a connection for ever.
        let stream = WriteTimeout::new(stream, WRITE_STALL);
        http::serve(stream, |request| git.clone().handle(request)).await;
    }

    /// Serves as a web proxy on one connection of the sandbox, until it ends. Errors become HTTP
    /// responses.
    pub async fn serve_web(&self, stream: impl GatewayStream) {
        let connections = Arc::clone(&self.inner.web_connections);
        let Ok(permit) = connections.acquire_owned().await else {
            return;
        };
        self.inner.web.serve(stream, permit).await;
    }

    /// What was allowed and refused so far: pushes, oldest first; then each web host once, the refused ones
    /// first, and by the number of requests.
    #[must_use]
    pub fn events(&self) -> Vec<TrafficEvent> {
        self.inner.ledger.events()
    }

    /// What is new since the last call, one line each: refused pushes, and web hosts.
    #[must_use]
    pub fn news(&self) -> Vec<String> {
        self.inner.ledger.news()
    }

    /// Waits until so many web requests to one host were refused, or could not be forwarded, after the call. Returns a
    /// line that says which host, and why.
    pub async fn often_in_vain(&self, times: u64) -> String {
        self.inner.ledger.often_in_vain(times).await
    }

    /// How many pushes [`Self::events`] had no room for.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.inner.ledger.dropped()
    }

    /// The HTTP status with which upstream refused the worker's credentials, if it did.
    #[must_use]
    pub fn auth_refused(&self) -> Option<u16> {
        self.inner.ledger.auth_refused()
    }

    /// Why the repository's host refuses every request until a person changes something, if it did and has not answered
    /// since: it requires single sign-on, has blocked the account or the repository, or redirects to another host or a login.
    #[must_use]
    pub fn host_refusal(&self) -> Option<String> {
        self.inner.ledger.host_refusal()
    }

    /// How the repository's host failed last, if it has not answered since: it cannot be reached, the
    /// connection broke, or it responded with an error such as 503.
    #[must_use]
    pub fn host_failure(&self) -> Option<String> {
        self.inner.ledger.host_failure()
    }

    /// Whom the commits that upstream accepted from this session name as authors and committers, as `NAME <ADDRESS>`: the
    /// first hundred.
    #[must_use]
    pub fn identities(&self) -> Vec<String> {
        self.inner.ledger.identities()
    }

    /// The newest commit that upstream accepted from this session.
    #[must_use]
    pub fn pushed_head(&self) -> Option<String> {
        self.inner.ledger.pushed_head()
    }

    /// Waits until the sandbox begins a push, and again until upstream accepts it. What came since the last call counts;
    /// several count as one. For one caller at a time. A push that begins may be refused, or send nothing.
    pub async fn pushing(&self) {
        self.inner.ledger.pushing().await;
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The nonce in the remote path keeps other local users out, so it is not printed.
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}
