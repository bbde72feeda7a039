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
struct Reference {
    object: Object,
}

#[derive(Debug, Deserialize)]
struct Object {
    sha: String,
}

impl Api {
    pub(super) async fn remove_branch(
        &self,
        item: &ItemRef,
        (branch, commit): (&str, &str),
        permit: &Permit,
    ) -> Result<BranchRemoval, TrackerError> {
        let path = &self.repo_of(item).await?.full_name;
        let place = |list| {
            let mut place = vec!["git", list, "heads"];
            place.extend(branch.split('/'));
            self.repo_url(path, &place)
        };
        let what = format!("branch {branch} of {path}");
        let reply = self.client.get(place("ref")?).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(BranchRemoval::Gone);
        }
        if reply.ok(&what)?.json::<Reference>()?.object.sha != commit {
            return Ok(BranchRemoval::Moved);
        }
        let call = Call::write(Method::DELETE, place("refs")?, permit);
        let sent = self.client.send(&call);
        let reply = around("tracker.branch_remove", sent).await?;
        match reply.status {
            // "Reference does not exist": somebody else was first.
            StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY => Ok(BranchRemoval::Gone),
            _ => reply.ok(&what).map(|_| BranchRemoval::Removed),
        }
    }
}
