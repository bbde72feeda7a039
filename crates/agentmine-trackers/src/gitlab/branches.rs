//! Where a branch is, and its removal.

use agentmine_domain::ItemRef;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::{Method, StatusCode};
use serde::Deserialize;

use super::api::Api;
use crate::error::TrackerError;
use crate::forge::{Call, concerns_one};
use crate::item::BranchRemoval;

#[derive(Debug, Deserialize)]
struct Branch {
    commit: Commit,
}

#[derive(Debug, Deserialize)]
struct Commit {
    id: String,
}

impl Api {
    /// Whether a project has no such branch. One that cannot be asked about counts as there.
    pub(super) async fn lacks_branch(
        &self,
        project: &str,
        branch: &str,
    ) -> Result<bool, TrackerError> {
        let url = self.project_url(project, &["repository", "branches", branch]);
        match self.client.get(url).await {
            Ok(reply) => Ok(reply.status == StatusCode::NOT_FOUND),
            Err(error) if concerns_one(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn branch_commit(
        &self,
        of: &ItemRef,
        branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        let url = self.project_url(&of.repo_id, &["repository", "branches", branch]);
        let reply = self.client.get(url).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let reply = reply.ok(&format!("branch {branch} of {}", of.repo_path))?;
        Ok(Some(reply.json::<Branch>()?.commit.id))
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
        let url = self.project_url(&item.repo_id, &["repository", "branches", branch]);
        let what = format!("branch {branch} of {}", item.repo_path);
        let call = Call::write(Method::DELETE, url, permit);
        let sent = self.client.send(&call);
        let reply = around("tracker.branch_remove", sent).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(BranchRemoval::Gone),
            _ => reply.ok(&what).map(|_| BranchRemoval::Removed),
        }
    }
}
