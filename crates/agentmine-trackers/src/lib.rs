//! Where issues and pull requests live: GitHub, a local folder, later GitLab.
//!
//! The trait speaks of items, labels, comments and pull requests; a GitLab merge request is a pull
//! request here, and its `iid` the number. Writes are idempotent or can be looked up first, so that
//! the effects of ARCHITECTURE.md happen once.

pub mod github;
pub mod local;
mod marker;

use std::path::PathBuf;
use std::sync::Arc;

use agentmine_domain::{ItemRef, TrackerKind};
use agentmine_runtime::config::{Secret, Trackers};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use url::Url;

pub use github::GitHubTracker;
pub use local::LocalTracker;

/// Why a tracker did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum TrackerError {
    /// The credentials were refused (401, 403 without a rate limit).
    #[error("{tracker} refused the credentials: {detail}. hint: {hint}")]
    Unauthorized {
        /// Which tracker.
        tracker: TrackerKind,
        /// What it said.
        detail: String,
        /// What to do about it.
        hint: String,
    },
    /// There is no such repository, item or branch, or the token may not see it (404, 410).
    #[error("{what} was not found on {tracker}")]
    NotFound {
        /// Which tracker.
        tracker: TrackerKind,
        /// What was looked for.
        what: String,
    },
    /// The tracker asked to wait; the wait was longer than this call may take.
    #[error("{tracker} asks to wait until {until}")]
    RateLimited {
        /// Which tracker.
        tracker: TrackerKind,
        /// When it may be asked again.
        until: DateTime<Utc>,
    },
    /// The tracker understood and refused (422 and the like).
    #[error("{tracker} refused: {detail}")]
    Refused {
        /// Which tracker.
        tracker: TrackerKind,
        /// What it said.
        detail: String,
    },
    /// The tracker could not be reached or answered nonsense, after retries.
    #[error("{tracker} is unavailable: {detail}")]
    Unavailable {
        /// Which tracker.
        tracker: TrackerKind,
        /// What it said.
        detail: String,
    },
}

/// An item that asks for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which item.
    pub item: ItemRef,
    /// What set it off: the newest event that put the request label on (GitHub: the `labeled`
    /// event's id), or a digest of the file and of how often the label was taken off it.
    pub trigger: String,
    /// Title.
    pub title: String,
    /// Where a person reads it.
    pub url: String,
}

/// An item as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Which item; `repo_path` is the current one.
    pub item: ItemRef,
    /// Title.
    pub title: String,
    /// Text, Markdown.
    pub body: String,
    /// Who opened it.
    pub author: String,
    /// Whether it is open.
    pub open: bool,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Who it is assigned to.
    pub assignees: Vec<String>,
    /// Where a person reads it.
    pub url: String,
    /// For a pull request: its source and target branches.
    pub branches: Option<Branches>,
}

/// The branches of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branches {
    /// Where the changes are.
    pub source: String,
    /// Where they would go.
    pub target: String,
}

/// A comment on an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The tracker's id of it.
    pub id: String,
    /// Who wrote it.
    pub author: String,
    /// Whether it was written with our own credentials.
    pub ours: bool,
    /// Text, Markdown.
    pub body: String,
    /// When.
    pub created_at: DateTime<Utc>,
}

/// Where the gateway takes a repository from. Never given to a sandbox.
#[derive(Debug, Clone)]
pub enum GitSource {
    /// Smart HTTP with basic authentication.
    Http {
        /// The repository's address, without credentials.
        url: Url,
        /// User name.
        user: String,
        /// Password or token.
        password: Option<Secret>,
    },
    /// A repository on the worker's own disk.
    Path(PathBuf),
}

/// A repository as the worker needs it.
#[derive(Debug, Clone)]
pub struct Repository {
    /// Where work on an issue starts.
    pub default_branch: String,
    /// Where the gateway takes it from.
    pub source: GitSource,
}

/// A pull request (merge request).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Its number.
    pub number: u64,
    /// Where a person reads it.
    pub url: String,
    /// Whether it is open; closed and merged ones are found too.
    pub open: bool,
}

/// A pull request to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// Source branch, in the same repository.
    pub head: String,
    /// Target branch.
    pub base: String,
    /// Title.
    pub title: String,
    /// Text, Markdown.
    pub body: String,
    /// Not ready to merge: a partial result.
    pub draft: bool,
}

/// One tracker, with its credentials.
#[async_trait]
pub trait Tracker: Send + Sync + 'static {
    /// Which adapter.
    fn kind(&self) -> TrackerKind;
    /// The host part of its items' identity.
    fn host(&self) -> &str;
    /// Whether this tracker is the one that an item belongs to.
    fn serves(&self, item: &ItemRef) -> bool {
        item.tracker == self.kind() && item.host == self.host()
    }

    /// Open items that carry the label `label`, in the configured repositories. All pages.
    async fn candidates(&self, label: &str) -> Result<Vec<Candidate>, TrackerError>;
    /// One item.
    async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError>;
    /// Comments, oldest first. All pages.
    async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError>;
    /// Adds and removes labels; other labels are untouched, an absent one is no error.
    async fn set_labels(
        &self,
        item: &ItemRef,
        add: &[String],
        remove: &[String],
    ) -> Result<(), TrackerError>;
    /// Writes the one comment of ours that carries `marker` (a hidden HTML comment that this call
    /// appends): edits it if it is there, else makes it. Returns its id.
    async fn upsert_comment(
        &self,
        item: &ItemRef,
        marker: &str,
        body: &str,
    ) -> Result<String, TrackerError>;
    /// The repository of an item.
    async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError>;
    /// A text file at a branch, at most 256 KiB; `None` if there is none.
    async fn file(
        &self,
        item: &ItemRef,
        branch: &str,
        path: &str,
    ) -> Result<Option<String>, TrackerError>;
    /// The newest pull request from this branch, open ones first, closed ones too.
    async fn find_pull_request(
        &self,
        item: &ItemRef,
        head: &str,
    ) -> Result<Option<PullRequest>, TrackerError>;
    /// Opens a pull request; one that exists already is success.
    async fn create_pull_request(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
    ) -> Result<PullRequest, TrackerError>;
    /// Gives an open pull request of ours another title and text. Whether it is a draft stays as it is.
    async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
    ) -> Result<(), TrackerError>;
    /// Whether the credentials work; for start-up. Returns our own login name.
    async fn login(&self) -> Result<String, TrackerError>;
}

/// The configured trackers, in the order of the configuration. Asks nothing of a network.
///
/// # Errors
/// What the first faulty section is refused for.
pub fn from_config(config: &Trackers) -> Result<Vec<Arc<dyn Tracker>>, TrackerError> {
    let mut trackers: Vec<Arc<dyn Tracker>> = Vec::new();
    if let Some(github) = &config.github {
        trackers.push(Arc::new(GitHubTracker::new(github)?));
    }
    if let Some(local) = &config.local {
        trackers.push(Arc::new(LocalTracker::new(local)?));
    }
    Ok(trackers)
}
