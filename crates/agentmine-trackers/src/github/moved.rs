//! Where a transferred issue is now.
//!
//! GitHub redirects from the old place to whatever repository a person chose, so the new one is checked before anything is
//! written there.

use agentmine_domain::ItemRef;
use serde::Deserialize;

use super::api::{Api, Credentials, split_path};
use super::wire::{Issue, Repo};
use crate::error::TrackerError;
use crate::forge::concerns_one;
use crate::item::Moved;

/// A repository, and what the token may do with it.
#[derive(Debug, Deserialize)]
struct Place {
    #[serde(flatten)]
    repo: Repo,
    permissions: Option<Permissions>,
}

#[derive(Debug, Deserialize)]
struct Permissions {
    push: bool,
}

impl Api {
    /// Where an issue is; `is_ours` says of a path whether that repository is scanned.
    pub(super) async fn moved_to(
        &self,
        item: &ItemRef,
        is_ours: impl Fn(&str) -> bool,
    ) -> Result<Moved, TrackerError> {
        let from = self.repo_now(&item.repo_path).await?;
        let old = ItemRef {
            repo_path: from.full_name.clone(),
            ..item.clone()
        };
        let reply = self.client.get(self.item_url(&old, &[])?).await?;
        let issue: Issue = reply.ok(&old.to_string())?.json()?;
        let Some(path) = issue
            .repo_path()
            .filter(|_| issue.is_elsewhere(&from.full_name))
        else {
            return Ok(Moved::No);
        };
        let to = match self.place(&path).await {
            Ok(to) => to,
            Err(error) if concerns_one(&error) => {
                return Ok(Moved::OutOfReach(format!("{path} cannot be read: {error}")));
            }
            Err(error) => return Err(error),
        };
        let path = to.repo.full_name.clone();
        if let Some(why) = self.out_of_reach(&from, &to, is_ours(&path)) {
            return Ok(Moved::OutOfReach(format!("{path} {why}")));
        }
        Ok(Moved::To(ItemRef {
            repo_id: to.repo.id.to_string(),
            repo_path: path,
            number: issue.number,
            ..old
        }))
    }

    async fn place(&self, path: &str) -> Result<Place, TrackerError> {
        let reply = self.client.get(self.repo_url(path, &[])?).await?;
        reply.ok(&format!("repository {path}"))?.json()
    }

    /// Why nothing is written to a repository, as the end of a sentence about it.
    fn out_of_reach(&self, from: &Repo, to: &Place, is_ours: bool) -> Option<&'static str> {
        let owner = |repo: &Repo| {
            let owner = split_path(&repo.full_name).map(|(owner, _)| owner.to_lowercase());
            owner.unwrap_or_default()
        };
        // A token of an App is for one repository, and says nothing of another one before it is minted for that.
        let may_write = match self.credentials {
            Credentials::App(_) => true,
            Credentials::Token(_) => to.permissions.as_ref().is_none_or(|it| it.push),
        };
        if !is_ours && owner(from) != owner(&to.repo) {
            Some("is of another owner, and is not configured")
        } else if to.repo.is_public() && !from.is_public() {
            Some("can be read by more people")
        } else if to.repo.archived {
            Some("is archived")
        } else if !may_write {
            Some("may not be written to with this token")
        } else {
            None
        }
    }
}
