//! A task that a person made for a repository of a tracker, as the rest of the program sees it: an item that nobody can
//! close or label.
//!
//! Guaranteed: nothing is read of an item or written to one. The repository, its files and its pull requests are those of
//! the tracker.

use std::sync::Arc;

use agentmine_domain::{ItemRef, RepositoryRef, Task, TaskHome, TrackerKind};
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;

use crate::error::TrackerError;
use crate::item::{
    Access, Candidate, Comment, Item, LabelRequest, NewPullRequest, PullRequest, Repository,
    Skipped,
};
use crate::marker::Marker;
use crate::people::{Admission, Person};
use crate::tracker::Tracker;

/// What a task is worked on through: its tracker, or for a task of a person its tracker without items.
#[must_use]
pub fn for_task(tracker: Arc<dyn Tracker>, task: &Task) -> Arc<dyn Tracker> {
    match task.home() {
        TaskHome::Item | TaskHome::People => tracker,
        TaskHome::Repository => Arc::new(PersonTask {
            tracker,
            title: task.title.clone(),
            text: task.card.description.clone(),
            url: task.url.clone(),
        }),
    }
}

struct PersonTask {
    tracker: Arc<dyn Tracker>,
    title: String,
    text: String,
    url: String,
}

#[async_trait]
impl Tracker for PersonTask {
    fn kind(&self) -> TrackerKind {
        self.tracker.kind()
    }

    fn host(&self) -> &str {
        self.tracker.host()
    }

    fn serves(&self, item: &ItemRef) -> bool {
        self.tracker.serves(item)
    }

    async fn find(&self, name: &str) -> Result<Option<ItemRef>, TrackerError> {
        self.tracker.find(name).await
    }

    async fn find_repository(&self, name: &str) -> Result<Option<RepositoryRef>, TrackerError> {
        self.tracker.find_repository(name).await
    }

    async fn candidates(&self, _label: &str) -> Result<Vec<Candidate>, TrackerError> {
        Ok(Vec::new())
    }

    fn scans(&self, path: &str) -> bool {
        self.tracker.scans(path)
    }

    fn scanned_as(&self, repo_id: &str) -> Option<String> {
        self.tracker.scanned_as(repo_id)
    }

    fn searches(&self) -> bool {
        self.tracker.searches()
    }

    fn skipped(&self) -> Vec<Skipped> {
        self.tracker.skipped()
    }

    async fn label_request(&self, _: &ItemRef, _: &str) -> Result<LabelRequest, TrackerError> {
        Ok(LabelRequest::Absent)
    }

    fn requests_by_label(&self) -> bool {
        false
    }

    async fn may_start(&self, item: &ItemRef, person: &Person) -> Result<Admission, TrackerError> {
        self.tracker.may_start(item, person).await
    }

    /// Asks for the repository, so that one that is gone, and credentials that are refused, are noticed.
    async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
        self.tracker.repository(item).await?;
        Ok(Item {
            item: item.clone(),
            title: self.title.clone(),
            body: self.text.clone(),
            author: "a person".to_owned(),
            open: true,
            withdrawn: None,
            labels: Vec::new(),
            assignees: Vec::new(),
            url: self.url.clone(),
            branches: None,
        })
    }

    async fn comments(&self, _item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        Ok(Vec::new())
    }

    /// On its pull request.
    async fn react(
        &self,
        item: &ItemRef,
        comment: &Comment,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        self.tracker.react(item, comment, permit).await
    }

    async fn set_labels(
        &self,
        _item: &ItemRef,
        _add: &[String],
        _remove: &[String],
        _permit: &Permit,
    ) -> Result<(), TrackerError> {
        Ok(())
    }

    async fn write_comment(
        &self,
        _item: &ItemRef,
        _marker: &Marker,
        _body: &str,
        _permit: &Permit,
    ) -> Result<String, TrackerError> {
        Ok(String::new())
    }

    async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError> {
        self.tracker.repository(item).await
    }

    async fn push_objection(
        &self,
        item: &ItemRef,
        branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        self.tracker.push_objection(item, branch).await
    }

    async fn file(
        &self,
        item: &ItemRef,
        branch: &str,
        path: &str,
    ) -> Result<Option<String>, TrackerError> {
        self.tracker.file(item, branch, path).await
    }

    async fn find_pull_request(
        &self,
        item: &ItemRef,
        head: &str,
    ) -> Result<Option<PullRequest>, TrackerError> {
        self.tracker.find_pull_request(item, head).await
    }

    async fn create_pull_request(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<PullRequest, TrackerError> {
        self.tracker.create_pull_request(item, new, permit).await
    }

    async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let tracker = &self.tracker;
        tracker.update_pull_request(item, number, new, permit).await
    }

    async fn login(&self) -> Result<String, TrackerError> {
        self.tracker.login().await
    }

    async fn own_login(&self) -> Result<String, TrackerError> {
        self.tracker.own_login().await
    }

    async fn close(&self) {
        self.tracker.close().await;
    }

    async fn access(&self) -> Result<Access, TrackerError> {
        self.tracker.access().await
    }
}
