//! Removes a branch.

use agentmine_domain::ItemRef;
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use http::{Method, StatusCode};
use serde::Deserialize;

use super::api::Api;
use crate::error::TrackerError;
use crate::forge::Call;
use crate::tracker::BranchRemoval;

#[derive(Debug, Deserialize)]
struct Branch {
    commit: Commit,
}

#[derive(Debug, Deserialize)]
struct Commit {
    id: String,
}

impl Api {
    pub(super) async fn remove_branch(
        &self,
        item: &ItemRef,
        (branch, commit): (&str, &str),
        permit: &Permit,
    ) -> Result<BranchRemoval, TrackerError> {
        let url = self.project_url(&item.repo_id, &["repository", "branches", branch]);
        let what = format!("branch {branch} of {}", item.repo_path);
        let reply = self.client.get(url.clone()).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(BranchRemoval::Gone);
        }
        if reply.ok(&what)?.json::<Branch>()?.commit.id != commit {
            return Ok(BranchRemoval::Moved);
        }
        let call = Call::write(Method::DELETE, url, permit);
        let sent = self.client.send(&call);
        let reply = around("tracker.branch_remove", sent).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(BranchRemoval::Gone),
            _ => reply.ok(&what).map(|_| BranchRemoval::Removed),
        }
    }
}
