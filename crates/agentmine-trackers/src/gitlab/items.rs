//! Issues and merge requests as they are now, and their labels.

use agentmine_domain::{ItemKind, ItemRef, RepositoryRef, TrackerKind};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::Method;
use serde_json::{Map, Value};

use super::api::{Api, PROJECT_TTL, invalid, refused};
use super::lists::Asking;
use super::wire::{self, Sides, name_of};
use crate::error::TrackerError;
use crate::forge::Call;
use crate::item::{Branches, Item};
use crate::name::{ItemName, repository_path};

impl Api {
    /// The item that a person names; `None`: it is on another host.
    pub(super) async fn find(&self, name: &str) -> Result<Option<ItemRef>, TrackerError> {
        let named = ItemName::parse(name, &self.web_root);
        let ours = |name: &ItemName| name.is_of(&self.host) && name.path.contains('/');
        let Some(name) = named.filter(ours) else {
            return Ok(None);
        };
        let project = self.project(&name.path, PROJECT_TTL).await?;
        let item = ItemRef {
            tracker: TrackerKind::GitLab,
            host: self.host.clone(),
            repo_id: project.id.to_string(),
            repo_path: project.path_with_namespace,
            // Issues and merge requests are numbered apart.
            kind: name.kind.unwrap_or(ItemKind::Issue),
            number: name.number,
        };
        let found = self.wire_item(&item).await?;
        Ok(Some(self.current(&item, &found)))
    }

    /// The project that a person names; `None`: it is on another host.
    pub(super) async fn find_repository(
        &self,
        name: &str,
    ) -> Result<Option<RepositoryRef>, TrackerError> {
        let path = repository_path(name, &self.host, &self.web_root);
        let Some(path) = path.filter(|path| path.contains('/')) else {
            return Ok(None);
        };
        let project = self.project(&path, PROJECT_TTL).await?;
        Ok(Some(RepositoryRef {
            tracker: TrackerKind::GitLab,
            host: self.host.clone(),
            repo_id: project.id.to_string(),
            repo_path: project.path_with_namespace,
        }))
    }

    /// One item. A confidential issue is refused: its merge request would show the text to everybody who sees the
    /// project.
    pub(super) async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
        let found = self.wire_item(item).await;
        if let Err(TrackerError::NotFound { .. }) = found {
            // Somebody may have hidden the project meanwhile.
            self.forget(&item.repo_id);
        }
        let found = found?;
        let branches = match item.kind {
            ItemKind::Issue | ItemKind::Task => None,
            ItemKind::PullRequest => Some(self.branches(item).await?),
        };
        if found.confidential {
            return Err(TrackerError::Confidential {
                tracker: TrackerKind::GitLab,
                what: item.to_string(),
            });
        }
        let item = self.current(item, &found);
        Ok(Item {
            withdrawn: found.withdrawn(),
            title: found.title,
            body: found.description.unwrap_or_default(),
            author: name_of(found.author),
            open: wire::is_open(&found.state),
            labels: found.labels,
            assignees: found
                .assignees
                .into_iter()
                .map(|user| user.username)
                .collect(),
            url: found.web_url,
            branches,
            item,
        })
    }

    /// The item as GitLab shows it.
    pub(super) async fn wire_item(&self, item: &ItemRef) -> Result<wire::Item, TrackerError> {
        let reply = self.client.get(self.item_url(item, &[])).await?;
        reply.ok(&item.to_string())?.json()
    }

    /// The identity of an item that GitLab returned, with its project's current path.
    pub(super) fn current(&self, item: &ItemRef, found: &wire::Item) -> ItemRef {
        let path = found.project_path().unwrap_or(&item.repo_path);
        ItemRef {
            repo_path: path.to_owned(),
            ..item.clone()
        }
    }

    /// The identity of an item of a list; `None` if it names no project.
    pub(super) fn identity(&self, kind: ItemKind, found: &Asking) -> Option<ItemRef> {
        Some(ItemRef {
            tracker: TrackerKind::GitLab,
            host: self.host.clone(),
            repo_id: found.project_id.to_string(),
            repo_path: found.path.clone()?,
            kind,
            number: found.iid,
        })
    }

    /// One request, so that nobody sees an item without either label.
    pub(super) async fn set_labels(
        &self,
        item: &ItemRef,
        add: &[String],
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let mut body = Map::new();
        for (key, labels) in [("add_labels", add), ("remove_labels", remove)] {
            if let Some(label) = labels.iter().find(|label| label.contains(',')) {
                return Err(invalid(format!(
                    "{label:?} is not a label: it contains a comma"
                )));
            }
            if !labels.is_empty() {
                body.insert(key.to_owned(), Value::from(labels.join(",")));
            }
        }
        if body.is_empty() {
            return Ok(());
        }
        let body = Value::Object(body);
        let call = Call::write(Method::PUT, self.item_url(item, &[]), permit).json(&body);
        let reply = around("tracker.label_add", self.client.send(&call)).await?;
        reply.ok(&item.to_string()).map(drop)
    }

    async fn branches(&self, item: &ItemRef) -> Result<Branches, TrackerError> {
        let reply = self.client.get(self.item_url(item, &[])).await?;
        let sides: Sides = reply.ok(&item.to_string())?.json()?;
        let home = sides.source_project_id.map(|id| id.to_string());
        if home.as_deref() != Some(item.repo_id.as_str()) {
            return Err(refused(format!(
                "{item} comes from a fork, and its branch cannot be pushed to; expected a merge request \
                 between branches of the project itself"
            )));
        }
        Ok(Branches {
            source: sides.source_branch,
            target: sides.target_branch,
        })
    }
}
