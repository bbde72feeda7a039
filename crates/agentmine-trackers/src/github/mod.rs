//! GitHub and GitHub Enterprise over REST: wire types and endpoints over `crate::forge`.
//!
//! Guaranteed: a write is either idempotent or looked up before it is sent again, and is sent only while its
//! permit holds.

mod access;
mod api;
mod app;
mod app_client;
mod branches;
mod candidates;
mod checks;
mod comments;
mod dashboard;
mod fault;
mod files;
mod graphql;
mod graphql_calls;
mod items;
mod key_file;
mod moved;
mod noreply;
mod organizations;
mod owners;
mod permissions;
mod protection;
mod pulls;
mod recent;
mod reviews;
mod rounds;
mod search;
mod waits;
mod who;
mod wire;

#[cfg(test)]
mod tests;

use agentmine_domain::{ItemRef, RepositoryRef, TrackerKind};
use agentmine_runtime::config::{GitHub, GitHubWhoMayStart};
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::error::TrackerError;
use crate::forge::{Lists, RequestLimits, Section, forge_tracker};
use crate::item::{
    Access, Blocker, BranchRemoval, Candidate, Comment, Item, LabelRequest, Moved, NewIssue,
    NewPullRequest, OpenPullRequest, OurIssue, PullRequest, RecentComment, Repository, Skipped,
};
use crate::marker::Marker;
use crate::people::{Admission, Edit, Person, Requested};
use crate::rounds::{Checks, OpenPull, OpenPulls, Thread};
use crate::tracker::Tracker;
pub(crate) use api::host_of;
use api::{Api, Credentials};
use candidates::Scan;
pub use graphql::GRAPHQL_TEXTS;
use reviews::ReadReviews;

/// GitHub with one token, or as an App.
#[derive(Debug)]
pub struct GitHubTracker {
    api: Api,
    scan: Scan,
    /// The lists of open pull requests.
    open: Lists<OpenPull>,
    /// The lists of the newest comments.
    recent: Lists<RecentComment>,
    dashboards: bool,
    /// What was read of reviews.
    reviews: ReadReviews,
    who: GitHubWhoMayStart,
}

impl GitHubTracker {
    /// Checks the configuration; sends no request yet.
    ///
    /// # Errors
    /// [`TrackerError::Unauthorized`] without a token, [`TrackerError::Invalid`] if the configuration
    /// names nothing to scan or a malformed repository.
    pub fn new(config: &GitHub) -> Result<Self, TrackerError> {
        Self::named(None, config)
    }

    /// The same for the section `trackers.more.github.NAME`, which is then named in messages.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn named(name: Option<&str>, config: &GitHub) -> Result<Self, TrackerError> {
        let section = Section::of("github", name);
        Self::in_section(config, section, RequestLimits::default())
    }

    #[cfg(test)]
    fn with_limits(config: &GitHub, limits: RequestLimits) -> Result<Self, TrackerError> {
        Self::in_section(config, Section::of("github", None), limits)
    }

    fn in_section(
        config: &GitHub,
        section: Section,
        limits: RequestLimits,
    ) -> Result<Self, TrackerError> {
        Ok(Self {
            api: Api::new(config, section.clone(), limits)?,
            scan: Scan::new(config, &section)?,
            open: Lists::default(),
            recent: Lists::default(),
            dashboards: config.dashboard_issue,
            reviews: ReadReviews::default(),
            who: config.who_may_start.clone(),
        })
    }
}

forge_tracker! { GitHubTracker {
    fn kind(&self) -> TrackerKind {
        TrackerKind::GitHub
    }

    fn searches(&self) -> bool {
        self.scan.searches()
    }

    async fn moved_to(&self, item: &ItemRef) -> Result<Moved, TrackerError> {
        self.api.moved_to(item, |path| self.scan.contains(path)).await
    }

    async fn recent_comments(&self, of: &ItemRef) -> Result<Vec<RecentComment>, TrackerError> {
        self.api.recent_comments(&self.recent, of).await
    }

    async fn recent_reviews(&self, pulls: &[ItemRef]) -> Result<Vec<RecentComment>, TrackerError> {
        let open = &self.open;
        self.api.recent_reviews(open, &self.reviews, pulls).await
    }

    async fn noreply(&self, person: &Person) -> Result<Option<String>, TrackerError> {
        self.api.noreply(person).await
    }

    async fn is_us(&self, person: &Person) -> Result<bool, TrackerError> {
        let own = self.api.own_login().await?;
        Ok(self.api.is_ours(&person.login, &own))
    }

    async fn open_pulls(&self, repos: &[ItemRef]) -> Result<OpenPulls, TrackerError> {
        self.api.open_pulls(&self.open, repos).await
    }

    async fn checks_of_branch(&self, pull: &ItemRef, branch: &str) -> Result<Checks, TrackerError> {
        self.api.checks(pull, branch).await
    }

    async fn login(&self) -> Result<String, TrackerError> {
        // Asked again each time: a token that was revoked since is noticed.
        self.api.ask_login().await
    }

    async fn own_login(&self) -> Result<String, TrackerError> {
        self.api.own_login().await
    }

    async fn close(&self) {
        if let Credentials::App(app) = &self.api.credentials {
            app.close().await;
        }
    }

    async fn access(&self) -> Result<Access, TrackerError> {
        let (repositories, organizations) = self.scan.configured();
        self.api.access(repositories, organizations).await
    }
}}
