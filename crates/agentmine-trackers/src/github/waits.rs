//! What the work on an item waits for: other items, and pull requests that are open already.

use agentmine_domain::{ItemKind, ItemRef};
use serde::Deserialize;
use serde_json::Value;

use super::api::Api;
use super::wire::Issue;
use crate::error::TrackerError;
use crate::forge::{NamedRepo, blocked_by, closes, concerns_one};
use crate::item::{Blocker, Item, OpenPullRequest};

#[derive(Debug, Deserialize)]
struct Open {
    number: u64,
    html_url: String,
    body: Option<String>,
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
        let item = self.current(item).await?;
        let mut url = self.repo_url(&item.repo_path, &["pulls"])?;
        url.query_pairs_mut()
            .append_pair("state", "open")
            .append_pair("per_page", "100");
        let what = format!("the pull requests of {}", item.repo_path);
        let pulls = self.client.list::<Value>(url, &what).await?;
        let pulls = self.client.fitting::<Open>(pulls, &what).into_iter();
        let pulls = pulls.map(|pull| OpenPullRequest {
            number: pull.number,
            url: pull.html_url,
            closes: closes(&pull.body.unwrap_or_default(), self.named_repo(&item)),
        });
        Ok(pulls.collect())
    }

    /// A server without dependencies answers 404: there are none.
    pub(super) async fn blockers(&self, item: &Item) -> Result<Vec<Blocker>, TrackerError> {
        let own = &item.item;
        let mut open = Vec::new();
        for number in blocked_by(&item.body, self.named_repo(own)) {
            let other = ItemRef {
                kind: ItemKind::Issue,
                number,
                ..own.clone()
            };
            match self.issue(&other).await {
                Ok(other) if other.state == "open" => open.push(Blocker::here(number)),
                Ok(_) => {}
                Err(error) if concerns_one(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if own.kind == ItemKind::Issue {
            let mut url = self.item_url(own, &["dependencies", "blocked_by"])?;
            url.query_pairs_mut().append_pair("per_page", "100");
            let what = own.to_string();
            let named = match self.client.list::<Value>(url, &what).await {
                Ok(named) => self.client.fitting::<Issue>(named, &what),
                Err(error) if concerns_one(&error) => Vec::new(),
                Err(error) => return Err(error),
            };
            for other in named.into_iter().filter(|other| other.state == "open") {
                open.push(match other.repo_path() {
                    Some(path) if !path.eq_ignore_ascii_case(&own.repo_path) => {
                        self.blocker_elsewhere(&path, other.number).await
                    }
                    _ => Blocker::here(other.number),
                });
            }
        }
        Ok(Blocker::each_once(open))
    }

    /// An issue of another repository: it is named only if everybody may read that.
    async fn blocker_elsewhere(&self, path: &str, number: u64) -> Blocker {
        match self.repo_at(path).await {
            Ok(repo) if repo.is_public() => Blocker::elsewhere(format!("{path}#{number}")),
            Ok(_) => Blocker::unnamed(),
            Err(error) => {
                tracing::debug!(%error, "the repository of a blocking issue cannot be read");
                Blocker::unnamed()
            }
        }
    }
}
