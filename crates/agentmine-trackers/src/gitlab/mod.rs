//! GitLab over REST, from 16.7 and without paid features: wire types and endpoints over `crate::forge`. GraphQL only saves
//! requests (`marks`).
//!
//! Guaranteed: a write is either idempotent or looked up before it is sent again, and is sent only while its
//! permit holds; no text of AgentMine runs as a quick action; confidential issues and internal notes are not read, since
//! a merge request is more public than they are.

mod access;
mod api;
mod branches;
mod candidates;
mod checks;
mod dashboard;
mod files;
mod items;
mod lists;
mod marks;
mod merge_requests;
mod news;
mod notes;
mod own;
mod protection;
mod recent;
mod rounds;
mod waits;
mod who;
mod wire;

#[cfg(test)]
mod tests;

use agentmine_domain::{ItemRef, RepositoryRef, TrackerKind};
use agentmine_runtime::config::{GitLab, GitLabWhoMayStart};
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::error::TrackerError;
use crate::forge::{RequestLimits, Section, forge_tracker, noreply};
use crate::item::{
    Access, Blocker, BranchRemoval, Candidate, Comment, Item, LabelRequest, NewIssue,
    NewPullRequest, OpenPullRequest, OurIssue, PullRequest, RecentComment, Repository, Skipped,
};
use crate::marker::Marker;
use crate::people::{Admission, Edit, Person, Requested};
use crate::rounds::{CheckMarks, Checks, OpenPulls, Thread};
use crate::tracker::Tracker;
use api::Api;
pub(crate) use api::host_of;
use candidates::Scan;
use news::News;
use own::OwnMergeRequests;

/// GitLab with one token.
#[derive(Debug)]
pub struct GitLabTracker {
    api: Api,
    scan: Scan,
    own: OwnMergeRequests,
    news: News,
    dashboards: bool,
    who: GitLabWhoMayStart,
}

impl GitLabTracker {
    /// Checks the configuration; sends no request yet.
    ///
    /// # Errors
    /// [`TrackerError::Unauthorized`] without a token, [`TrackerError::Invalid`] if the configuration
    /// names nothing to scan or an authority file without a certificate.
    pub fn new(config: &GitLab) -> Result<Self, TrackerError> {
        Self::named(None, config)
    }

    /// The same for the section `trackers.more.gitlab.NAME`, which is then named in messages.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn named(name: Option<&str>, config: &GitLab) -> Result<Self, TrackerError> {
        let section = Section::of("gitlab", name);
        Self::in_section(config, section, RequestLimits::default())
    }

    #[cfg(test)]
    fn with_limits(config: &GitLab, limits: RequestLimits) -> Result<Self, TrackerError> {
        Self::in_section(config, Section::of("gitlab", None), limits)
    }

    fn in_section(
        config: &GitLab,
        section: Section,
        limits: RequestLimits,
    ) -> Result<Self, TrackerError> {
        Ok(Self {
            api: Api::new(config, section.clone(), limits)?,
            scan: Scan::new(config, &section)?,
            own: OwnMergeRequests::default(),
            news: News::default(),
            dashboards: config.dashboard_issue,
            who: config.who_may_start.clone(),
        })
    }
}

forge_tracker! { GitLabTracker {
    fn kind(&self) -> TrackerKind {
        TrackerKind::GitLab
    }

    async fn with_news(&self, places: Vec<ItemRef>) -> Result<Vec<ItemRef>, TrackerError> {
        self.news.among(&self.api, self.scan.groups(), places).await
    }

    async fn recent_comments(&self, of: &ItemRef) -> Result<Vec<RecentComment>, TrackerError> {
        self.api.recent_comments(of).await
    }

    async fn noreply(&self, person: &Person) -> Result<Option<String>, TrackerError> {
        let id = person.id;
        Ok(id.and_then(|id| noreply(id, '-', &person.login, &self.api.host)))
    }

    async fn confidential(&self, of: &ItemRef, numbers: &[u64]) -> Result<Vec<u64>, TrackerError> {
        self.api.confidential(of, numbers).await
    }

    async fn is_us(&self, person: &Person) -> Result<bool, TrackerError> {
        self.api.is_us(person).await
    }

    async fn open_pulls(&self, repos: &[ItemRef]) -> Result<OpenPulls, TrackerError> {
        self.own.read(&self.api, repos).await
    }

    async fn check_marks(&self) -> Result<CheckMarks, TrackerError> {
        self.api.check_marks().await
    }

    async fn checks_of_branch(&self, pull: &ItemRef, branch: &str) -> Result<Checks, TrackerError> {
        self.api.checks_of_branch(pull, branch).await
    }

    async fn login(&self) -> Result<String, TrackerError> {
        // Asked again each time: a token that was revoked since is noticed.
        Ok(self.api.ask_user().await?.username)
    }

    async fn own_login(&self) -> Result<String, TrackerError> {
        Ok(self.api.me().await?.username)
    }

    async fn access(&self) -> Result<Access, TrackerError> {
        self.api.access(self.scan.projects()).await
    }
}}
