//! GitLab over REST, from 16.7 and without paid features: wire types and endpoints over `crate::forge`.
//!
//! Guaranteed: a write is either idempotent or looked up before it is sent again, and is sent only while its
//! permit holds; no text of ours runs as a quick action; confidential issues and internal notes are not read, since
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
use crate::forge::{RequestLimits, Section, noreply};
use crate::item::{
    Access, Blocker, BranchRemoval, Candidate, Comment, Item, LabelRequest, NewIssue,
    NewPullRequest, OpenPullRequest, OurIssue, PullRequest, RecentComment, Repository, Skipped,
};
use crate::marker::Marker;
use crate::people::{Admission, Edit, Person, Requested};
use crate::rounds::{Checks, OpenPulls, Thread};
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

#[async_trait]
impl Tracker for GitLabTracker {
    fn kind(&self) -> TrackerKind {
        TrackerKind::GitLab
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

    async fn with_news(&self, places: Vec<ItemRef>) -> Result<Vec<ItemRef>, TrackerError> {
        self.news.among(&self.api, self.scan.groups(), places).await
    }

    async fn recent_comments(&self, of: &ItemRef) -> Result<Vec<RecentComment>, TrackerError> {
        self.api.recent_comments(of).await
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
        self.api.find_merge_request(item, head, &attempts).await
    }

    async fn open_pull_requests(
        &self,
        item: &ItemRef,
    ) -> Result<Vec<OpenPullRequest>, TrackerError> {
        self.api.open_merge_requests(item).await
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
        self.api.create_merge_request(item, new, permit).await
    }

    async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        self.api
            .update_merge_request(item, number, new, permit)
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
        let id = person.id;
        Ok(id.and_then(|id| noreply(id, '-', &person.login, &self.api.host)))
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

    async fn confidential(&self, of: &ItemRef, numbers: &[u64]) -> Result<Vec<u64>, TrackerError> {
        self.api.confidential(of, numbers).await
    }

    async fn is_us(&self, person: &Person) -> Result<bool, TrackerError> {
        self.api.is_us(person).await
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
        self.own.read(&self.api, repos).await
    }

    async fn checks(&self, pull: &ItemRef, commit: &str) -> Result<Checks, TrackerError> {
        self.api.checks(pull, commit).await
    }

    async fn checks_of_branch(&self, pull: &ItemRef, branch: &str) -> Result<Checks, TrackerError> {
        self.api.checks_of_branch(pull, branch).await
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
        let marker = Marker::new(TrackerKind::GitLab, marker)?;
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
        Ok(self.api.ask_user().await?.username)
    }

    async fn own_login(&self) -> Result<String, TrackerError> {
        Ok(self.api.me().await?.username.clone())
    }

    async fn access(&self) -> Result<Access, TrackerError> {
        self.api.access(self.scan.projects()).await
    }
}
