//! Where issues and pull requests live: GitHub, GitLab or a local folder.
//!
//! [`Tracker`] speaks of items, labels, comments and pull requests; a GitLab merge request is a pull
//! request here, and its `iid` the number. Guaranteed: every write is idempotent or can be looked up
//! first, which lets the effects of ARCHITECTURE.md happen once. Retries happen in one place, below
//! the adapters: a caller that gets a [`TrackerError`] need not try again, and learns from
//! [`TrackerError::blame`] whose fault it is and when another try makes sense.

mod error;
mod forge;
pub mod github;
pub mod gitlab;
mod item;
pub mod local;
mod marker;
mod name;
mod objection;
mod people;
mod person_task;
mod rounds;
mod tracker;

use std::sync::Arc;

use agentmine_runtime::config::{GitHub, GitLab, Trackers};

pub use error::TrackerError;
pub use github::GitHubTracker;
pub use gitlab::GitLabTracker;
pub use item::{
    Access, Blocker, BranchRemoval, Branches, Candidate, Comment, CommentKind, GitSource, Item,
    LabelRequest, LinePlace, Moved, NewIssue, NewPullRequest, OpenPullRequest, OurIssue,
    PullRequest, RecentComment, Repository, Skipped, closed,
};
pub use local::LocalTracker;
pub use marker::{FLEET_MARKER, Marker};
pub use objection::{Objection, objection_to_request, objection_to_text, objection_to_text_of};
pub use people::{Admission, Edit, Person, Requested};
pub use person_task::for_task;
pub use rounds::{CheckMarks, Checks, OpenPull, OpenPulls, Thread};
pub use tracker::Tracker;

/// The configured trackers, in the order of the configuration. Sends no request.
///
/// # Errors
/// The fault of the first section that cannot work.
pub fn from_config(config: &Trackers) -> Result<Vec<Arc<dyn Tracker>>, TrackerError> {
    each_from_config(config).into_iter().collect()
}

/// The same, each by itself: one that cannot work does not keep the others from it. Sends no request.
#[must_use]
pub fn each_from_config(config: &Trackers) -> Vec<Result<Arc<dyn Tracker>, TrackerError>> {
    fn shared(
        tracker: Result<impl Tracker, TrackerError>,
    ) -> Result<Arc<dyn Tracker>, TrackerError> {
        Ok(Arc::new(tracker?))
    }
    let githubs = config.githubs();
    let githubs = githubs.map(|(name, it)| shared(GitHubTracker::named(name, it)));
    let gitlabs = config.gitlabs();
    let gitlabs = gitlabs.map(|(name, it)| shared(GitLabTracker::named(name, it)));
    let local = config.local.iter();
    let local = local.map(|it| shared(LocalTracker::new(it)));
    githubs.chain(gitlabs).chain(local).collect()
}

/// The host of the items of a GitHub section, as [`Tracker::host`].
///
/// # Errors
/// If its `api_url` has none.
pub fn host_of_github(config: &GitHub) -> Result<String, TrackerError> {
    github::host_of(&config.api_url)
}

/// The host of the items of a GitLab section, as [`Tracker::host`].
///
/// # Errors
/// If its `api_url` has none.
pub fn host_of_gitlab(config: &GitLab) -> Result<String, TrackerError> {
    gitlab::host_of(&config.api_url)
}
