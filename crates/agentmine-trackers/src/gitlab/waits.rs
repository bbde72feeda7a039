//! What the work on an item waits for: other items, and merge requests that are open already.

use agentmine_domain::{ItemKind, ItemRef};
use serde::Deserialize;
use serde_json::Value;

use super::api::{Api, PROJECT_TTL};
use super::wire::{References, is_open};
use crate::error::TrackerError;
use crate::forge::{NamedRepo, blocked_by, closes, concerns_one};
use crate::item::{Blocker, Item, OpenPullRequest};

#[derive(Debug, Deserialize)]
struct Open {
    iid: u64,
    web_url: String,
    description: Option<String>,
}

/// An issue that another one is linked to.
#[derive(Debug, Deserialize)]
struct Linked {
    iid: u64,
    project_id: u64,
    state: String,
    references: References,
    /// `relates_to`, `blocks` or `is_blocked_by`; the latter two need a paid plan.
    link_type: String,
    /// Whether only some people may read it.
    #[serde(default)]
    confidential: bool,
}

impl Api {
    /// The repository of an item, as texts name it.
    fn named_repo<'a>(&'a self, of: &'a ItemRef) -> NamedRepo<'a> {
        NamedRepo {
            path: &of.repo_path,
            host: &self.host,
            root: &self.web_root,
        }
    }

    pub(super) async fn open_pull_requests(
        &self,
        item: &ItemRef,
    ) -> Result<Vec<OpenPullRequest>, TrackerError> {
        let mut url = self.project_url(&item.repo_id, &["merge_requests"]);
        url.query_pairs_mut()
            .append_pair("state", "opened")
            .append_pair("scope", "all")
            .append_pair("per_page", "100");
        let what = format!("the merge requests of {}", item.repo_path);
        let found = self.client.list::<Value>(url, &what).await?;
        let found = self.client.fitting::<Open>(found, &what).into_iter();
        let found = found.map(|request| OpenPullRequest {
            number: request.iid,
            url: request.web_url,
            closes: closes(
                &request.description.unwrap_or_default(),
                self.named_repo(item),
            ),
        });
        Ok(found.collect())
    }

    pub(super) async fn blockers(&self, item: &Item) -> Result<Vec<Blocker>, TrackerError> {
        let own = &item.item;
        let mut open = Vec::new();
        for number in blocked_by(&item.body, self.named_repo(own)) {
            let other = ItemRef {
                kind: ItemKind::Issue,
                number,
                ..own.clone()
            };
            match self.wire_item(&other).await {
                Ok(other) if other.is_open() => open.push(Blocker::here(number)),
                Ok(_) => {}
                Err(error) if concerns_one(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if own.kind == ItemKind::Issue {
            let url = self.item_url(own, &["links"]);
            let what = own.to_string();
            let links = match self.client.list::<Value>(url, &what).await {
                Ok(links) => self.client.fitting::<Linked>(links, &what),
                Err(error) if concerns_one(&error) => Vec::new(),
                Err(error) => return Err(error),
            };
            let blocks = |link: &Linked| link.link_type == "is_blocked_by" && is_open(&link.state);
            for link in links.into_iter().filter(blocks) {
                open.push(self.linked_blocker(own, link).await);
            }
        }
        Ok(Blocker::each_once(open))
    }

    /// An issue that blocks `own`: it is named only if everybody may read it who can read `own`.
    async fn linked_blocker(&self, own: &ItemRef, link: Linked) -> Blocker {
        let project = link.project_id.to_string();
        if project == own.repo_id {
            return match link.confidential {
                true => Blocker::confidential(),
                false => Blocker::here(link.iid),
            };
        }
        if link.confidential {
            return Blocker::unnamed();
        }
        match self.project(&project, PROJECT_TTL).await {
            Ok(project) if project.shows_issues() => Blocker::elsewhere(link.references.full),
            Ok(_) => Blocker::unnamed(),
            Err(error) => {
                tracing::debug!(%error, "the project of a blocking issue cannot be read");
                Blocker::unnamed()
            }
        }
    }
}
