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
mod files;
mod graphql;
mod items;
mod key_file;
mod noreply;
mod organizations;
mod owners;
mod permissions;
mod protection;
mod pulls;
mod recent;
mod reviews;
mod rounds;
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
use crate::forge::{Lists, RequestLimits, Section};
use crate::item::{
    Access, Blocker, BranchRemoval, Candidate, Comment, Item, LabelRequest, NewIssue,
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

#[async_trait]
impl Tracker for GitHubTracker {
    fn kind(&self) -> TrackerKind {
        TrackerKind::GitHub
    }

    fn host(&self) -> &str {
        &self.api.host
    }

    async fn find(&self, name: &str) -> Result<Option<ItemRef>, TrackerError> {
        self.api.find(name).await
    }

    async fn find_repository(&self, name: &str) -> Result<Option<RepositoryRef>, TrackerError> {
        self.api.find_repository(name).await
    }

    async fn candidates(&self, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        self.scan.run(&self.api, label).await
    }

    fn scans(&self, path: &str) -> bool {
        self.scan.contains(path)
    }

    fn scanned_as(&self, repo_id: &str) -> Option<String> {
        let mut paths = self.api.paths_of(repo_id).into_iter();
        paths.find(|path| self.scan.contains(path))
    }

    fn searches(&self) -> bool {
        self.scan.searches()
    }

    async fn candidates_in(&self, path: &str, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        self.scan.run_in(&self.api, path, label).await
    }

    fn skipped(&self) -> Vec<Skipped> {
        self.scan.faults().list()
    }

    async fn label_request(
        &self,
        item: &ItemRef,
        label: &str,
    ) -> Result<LabelRequest, TrackerError> {
        self.scan.label_request(&self.api, item, label).await
    }

    async fn may_start(&self, item: &ItemRef, person: &Person) -> Result<Admission, TrackerError> {
        self.api.may_start(&self.who, item, person).await
    }

    async fn requested(
        &self,
        item: &ItemRef,
        trigger: &str,
    ) -> Result<Option<Requested>, TrackerError> {
        self.api.requested(item, trigger).await
    }

    async fn edits(&self, item: &ItemRef, since: DateTime<Utc>) -> Result<Vec<Edit>, TrackerError> {
        self.api.edits(item, since).await
    }

    async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
        self.api.item(item).await
    }

    async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        self.api.comments(item).await
    }

    async fn recent_comments(&self, of: &ItemRef) -> Result<Vec<RecentComment>, TrackerError> {
        self.api.recent_comments(&self.recent, of).await
    }

    async fn recent_reviews(&self, pulls: &[ItemRef]) -> Result<Vec<RecentComment>, TrackerError> {
        let open = &self.open;
        self.api.recent_reviews(open, &self.reviews, pulls).await
    }

    async fn react(
        &self,
        item: &ItemRef,
        comment: &Comment,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        self.api.react(item, comment, permit).await
    }

    async fn set_labels(
        &self,
        item: &ItemRef,
        add: &[String],
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        self.api.set_labels(item, add, remove, permit).await
    }

    async fn write_comment(
        &self,
        item: &ItemRef,
        marker: &Marker,
        body: &str,
        permit: &Permit,
    ) -> Result<String, TrackerError> {
        self.api.write_comment(item, marker, body, permit).await
    }

    async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError> {
        self.api.repository(item).await
    }

    async fn file(
        &self,
        item: &ItemRef,
        branch: &str,
        path: &str,
    ) -> Result<Option<String>, TrackerError> {
        self.api.file(item, branch, path).await
    }

    async fn find_pull_request(
        &self,
        item: &ItemRef,
        head: &str,
    ) -> Result<Option<PullRequest>, TrackerError> {
        let attempts = self.api.client.attempts();
        self.api.find_pull_request(item, head, &attempts).await
    }

    async fn open_pull_requests(
        &self,
        item: &ItemRef,
    ) -> Result<Vec<OpenPullRequest>, TrackerError> {
        self.api.open_pull_requests(item).await
    }

    async fn blockers(&self, item: &Item) -> Result<Vec<Blocker>, TrackerError> {
        self.api.blockers(item).await
    }

    async fn create_pull_request(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<PullRequest, TrackerError> {
        self.api.create_pull_request(item, new, permit).await
    }

    async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        self.api
            .update_pull_request(item, number, new, permit)
            .await
    }

    async fn push_objection(
        &self,
        item: &ItemRef,
        branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        self.api.push_objection(item, branch).await
    }

    async fn noreply(&self, person: &Person) -> Result<Option<String>, TrackerError> {
        self.api.noreply(person).await
    }

    fn keeps_dashboards(&self) -> bool {
        self.dashboards
    }

    async fn issue_of_ours(
        &self,
        of: &ItemRef,
        new: &NewIssue<'_>,
        permit: &Permit,
    ) -> Result<OurIssue, TrackerError> {
        self.api.issue_of_ours(of, new, permit).await
    }

    async fn edit_issue(
        &self,
        item: &ItemRef,
        body: &str,
        permit: &Permit,
    ) -> Result<DateTime<Utc>, TrackerError> {
        self.api.edit_issue(item, body, permit).await
    }

    async fn is_us(&self, person: &Person) -> Result<bool, TrackerError> {
        let own = self.api.own_login().await?;
        Ok(self.api.is_ours(&person.login, own))
    }

    async fn remove_branch(
        &self,
        item: &ItemRef,
        branch: &str,
        commit: &str,
        permit: &Permit,
    ) -> Result<BranchRemoval, TrackerError> {
        let at = (branch, commit);
        self.api.remove_branch(item, at, permit).await
    }

    async fn mark_ready(
        &self,
        item: &ItemRef,
        number: u64,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        self.api.mark_ready(item, number, permit).await
    }

    async fn open_pulls(&self, repos: &[ItemRef]) -> Result<OpenPulls, TrackerError> {
        self.api.open_pulls(&self.open, repos).await
    }

    async fn checks(&self, pull: &ItemRef, commit: &str) -> Result<Checks, TrackerError> {
        self.api.checks(pull, commit).await
    }

    async fn checks_of_branch(&self, pull: &ItemRef, branch: &str) -> Result<Checks, TrackerError> {
        self.api.checks(pull, branch).await
    }

    async fn check_log(&self, pull: &ItemRef, log: &str) -> Result<Option<String>, TrackerError> {
        self.api.check_log(pull, log).await
    }

    async fn branch_commit(
        &self,
        of: &ItemRef,
        branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        self.api.branch_commit(of, branch).await
    }

    async fn conflicts(&self, pull: &ItemRef) -> Result<Option<bool>, TrackerError> {
        self.api.conflicts(pull).await
    }

    async fn threads(&self, pull: &ItemRef) -> Result<Vec<Thread>, TrackerError> {
        self.api.threads(pull).await
    }

    async fn reply_to_thread(
        &self,
        pull: &ItemRef,
        thread: &str,
        marker: &str,
        body: &str,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let marker = Marker::new(TrackerKind::GitHub, marker)?;
        let reply = (&marker, body);
        self.api.reply_to_thread(pull, thread, reply, permit).await
    }

    async fn resolve_thread(
        &self,
        pull: &ItemRef,
        thread: &str,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        self.api.resolve_thread(pull, thread, permit).await
    }

    async fn login(&self) -> Result<String, TrackerError> {
        // Asked anew each time: a token that was revoked since is noticed.
        self.api.ask_login().await
    }

    async fn own_login(&self) -> Result<String, TrackerError> {
        Ok(self.api.own_login().await?.to_owned())
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
}
