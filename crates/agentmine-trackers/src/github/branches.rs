//! Where a branch is, and its removal.

use agentmine_domain::ItemRef;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::{Method, StatusCode};
use serde::Deserialize;
use url::Url;

use super::api::Api;
use crate::error::TrackerError;
use crate::forge::Call;
use crate::item::BranchRemoval;

#[derive(Debug, Deserialize)]
struct Reference {
    object: Object,
}

#[derive(Debug, Deserialize)]
struct Object {
    sha: String,
}

impl Api {
    pub(super) async fn branch_commit(
        &self,
        of: &ItemRef,
        branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        let path = &self.repo_of(of).await?.full_name;
        let reply = self
            .client
            .get(self.reference(path, "ref", branch)?)
            .await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let reply = reply.ok(&format!("branch {branch} of {path}"))?;
        Ok(Some(reply.json::<Reference>()?.object.sha))
    }

    /// The address of a branch in `list`, which is named differently for reads and writes.
    fn reference(&self, path: &str, list: &str, branch: &str) -> Result<Url, TrackerError> {
        let mut place = vec!["git", list, "heads"];
        place.extend(branch.split('/'));
        self.repo_url(path, &place)
    }

    pub(super) async fn remove_branch(
        &self,
        item: &ItemRef,
        (branch, commit): (&str, &str),
        permit: &Permit,
    ) -> Result<BranchRemoval, TrackerError> {
        match self.branch_commit(item, branch).await? {
            None => return Ok(BranchRemoval::Gone),
            Some(now) if now != commit => return Ok(BranchRemoval::Moved),
            Some(_) => {}
        }
        let path = &self.repo_of(item).await?.full_name;
        let what = format!("branch {branch} of {path}");
        let call = Call::write(
            Method::DELETE,
            self.reference(path, "refs", branch)?,
            permit,
        );
        let sent = self.client.send(&call);
        let reply = around("tracker.branch_remove", sent).await?;
        // Somebody else was first. A rule that restricts deletions is another 422.
        let is_gone = || reply.message().contains("Reference does not exist");
        match reply.status {
            StatusCode::NOT_FOUND => Ok(BranchRemoval::Gone),
            StatusCode::UNPROCESSABLE_ENTITY if is_gone() => Ok(BranchRemoval::Gone),
            _ => reply.ok(&what).map(|_| BranchRemoval::Removed),
        }
    }
}
