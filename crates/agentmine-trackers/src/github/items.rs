//! Issues and pull requests as they are now, and their labels.

use agentmine_domain::{ItemKind, ItemRef, RepositoryRef, TrackerKind};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::{Method, StatusCode};
use serde_json::json;

use super::api::{Api, split_path};
use super::fault::refused;
use super::wire::{Issue, Label, Pull, RepoId, login_of, same_label};
use crate::error::TrackerError;
use crate::forge::Call;
use crate::item::{Branches, Item};
use crate::name::{ItemName, repository_path};

impl Api {
    /// The item that a person names; `None`: it is on another host.
    pub(super) async fn find(&self, name: &str) -> Result<Option<ItemRef>, TrackerError> {
        let named = ItemName::parse(name, &self.web_root);
        let ours = |name: &ItemName| name.is_of(&self.host) && split_path(&name.path).is_ok();
        let Some(name) = named.filter(ours) else {
            return Ok(None);
        };
        let repo = self.repo_at(&name.path).await?;
        let item = ItemRef {
            tracker: TrackerKind::GitHub,
            host: self.host.clone(),
            repo_id: repo.id.to_string(),
            repo_path: repo.full_name,
            kind: ItemKind::Issue,
            number: name.number,
        };
        // The number alone does not say what it is.
        let kind = match self.issue(&item).await?.pull_request {
            Some(_) => ItemKind::PullRequest,
            None => ItemKind::Issue,
        };
        Ok(Some(ItemRef { kind, ..item }))
    }

    /// The repository that a person names; `None`: it is on another host.
    pub(super) async fn find_repository(
        &self,
        name: &str,
    ) -> Result<Option<RepositoryRef>, TrackerError> {
        let path = repository_path(name, &self.host, &self.web_root);
        let Some(path) = path.filter(|path| split_path(path).is_ok()) else {
            return Ok(None);
        };
        let repo = self.repo_at(&path).await?;
        Ok(Some(RepositoryRef {
            tracker: TrackerKind::GitHub,
            host: self.host.clone(),
            repo_id: repo.id.to_string(),
            repo_path: repo.full_name,
        }))
    }

    pub(super) async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
        let item = self.current(item).await?;
        let reply = self.client.get(self.item_url(&item, &[])?).await?;
        match reply.status {
            StatusCode::GONE => return Ok(gone(item, &reply.message())),
            // Somebody may have hidden the repository meanwhile.
            StatusCode::NOT_FOUND => self.forget(&item.repo_path),
            _ => {}
        }
        let issue: Issue = reply.ok(&item.to_string())?.json()?;
        let item = match issue.is_elsewhere(&item.repo_path) {
            // Perhaps the repository was renamed since it was requested.
            true => {
                self.forget(&item.repo_path);
                self.current(&item).await?
            }
            false => item,
        };
        let withdrawn = match issue.is_elsewhere(&item.repo_path) {
            true => Some("the item was moved to another repository"),
            false => issue.locked.then_some("the conversation was locked"),
        };
        let branches = match item.kind {
            ItemKind::Issue | ItemKind::Task => None,
            ItemKind::PullRequest => Some(self.branches(&item).await?),
        };
        Ok(Item {
            withdrawn,
            title: issue.title,
            body: issue.body.unwrap_or_default(),
            author: login_of(issue.user),
            open: issue.state == "open",
            labels: issue
                .labels
                .iter()
                .map(|label| label.name().to_owned())
                .collect(),
            assignees: issue.assignees.into_iter().map(|user| user.login).collect(),
            url: issue.html_url,
            branches,
            item,
        })
    }

    /// The issue itself; `item` has its repository's current path.
    pub(super) async fn issue(&self, item: &ItemRef) -> Result<Issue, TrackerError> {
        let url = self.item_url(item, &[])?;
        let reply = self.client.get(url).await?;
        let issue: Issue = reply.ok(&item.to_string())?.json()?;
        if !issue.is_elsewhere(&item.repo_path) {
            return Ok(issue);
        }
        // Perhaps the repository was renamed since it was requested.
        self.forget(&item.repo_path);
        if issue.is_elsewhere(&self.current(item).await?.repo_path) {
            return Err(TrackerError::NotFound {
                tracker: TrackerKind::GitHub,
                what: format!("{item} (it was transferred)"),
            });
        }
        Ok(issue)
    }

    pub(super) async fn set_labels(
        &self,
        item: &ItemRef,
        add: &[String],
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let item = &self.current(item).await?;
        let url = self.item_url(item, &["labels"])?;
        let reply = match add.is_empty() {
            true => {
                let mut url = url;
                url.query_pairs_mut().append_pair("per_page", "100");
                self.client.get(url).await?
            }
            false => {
                let body = json!({ "labels": add });
                let call = Call::write(Method::POST, url, permit).json(&body);
                around("tracker.label_add", self.client.send(&call)).await?
            }
        };
        // Both answers are the labels as they are now; only these have to be removed.
        let reply = reply.ok(&item.to_string())?;
        let shown = reply.json::<Vec<Label>>().ok();
        let is_shown = |label: &&String| {
            shown
                .as_ref()
                .is_none_or(|shown| shown.iter().any(|it| same_label(it.name(), label)))
        };
        for label in remove.iter().filter(is_shown) {
            let url = self.item_url(item, &["labels", label])?;
            let call = Call::write(Method::DELETE, url, permit);
            let reply = around("tracker.label_remove", self.client.send(&call)).await?;
            if reply.status != StatusCode::NOT_FOUND {
                reply.ok(&item.to_string())?;
            }
        }
        Ok(())
    }

    async fn branches(&self, item: &ItemRef) -> Result<Branches, TrackerError> {
        let number = item.number.to_string();
        let url = self.repo_url(&item.repo_path, &["pulls", &number])?;
        let reply = self.client.get(url).await?;
        let pull: Pull = reply.ok(&item.to_string())?.json()?;
        let home = |side: &Option<RepoId>| side.as_ref().map(|repo| repo.id.to_string());
        if home(&pull.head.repo).as_deref() != Some(item.repo_id.as_str()) {
            return Err(refused(format!(
                "{item} comes from a fork, and its branch cannot be pushed to; expected a pull request \
                 between branches of the repository itself"
            )));
        }
        Ok(Branches {
            source: pull.head.branch,
            target: pull.base.branch,
        })
    }
}

/// GitHub answers 410 for an issue that was deleted, and for every issue where issues are turned off; only the message differs:
/// "Issues are disabled for this repo".
fn gone(item: ItemRef, said: &str) -> Item {
    let withdrawn = match said.to_lowercase().contains("disabled") {
        true => "issues were turned off in the repository",
        false => "the item was deleted",
    };
    Item {
        item,
        title: String::new(),
        body: String::new(),
        author: String::new(),
        open: false,
        withdrawn: Some(withdrawn),
        labels: Vec::new(),
        assignees: Vec::new(),
        url: String::new(),
        branches: None,
    }
}
