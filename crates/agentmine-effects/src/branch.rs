//! Removes the branch of a pull request that ended.

use agentmine_domain::EffectKey;
use agentmine_store::EffectState;
use agentmine_trackers::BranchRemoval;
use serde::Serialize;

use crate::error::ends_the_report;
use crate::{EffectError, Effects};

/// What is recorded of a branch that was to be removed.
#[derive(Serialize)]
struct RemovalRecord {
    /// What became of it.
    branch: &'static str,
}

impl Effects {
    /// Removes the branch of this task, once, if it is still at `commit`. A refusal is final: it stays.
    ///
    /// # Errors
    /// Returns errors of the store and temporary ones of the tracker.
    pub async fn remove_branch(&self, commit: &str) -> Result<(), EffectError> {
        let branch = self.task.branch();
        let key = EffectKey::branch_removal(&branch);
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        let (item, permit) = (&self.task.item, &self.permit);
        let removed = self.tracker.remove_branch(item, &branch, commit, permit);
        let what = match removed.await {
            Ok(BranchRemoval::Removed) => "removed",
            Ok(BranchRemoval::Gone) => "gone",
            Ok(BranchRemoval::Moved) => "moved",
            Err(error) if ends_the_report(&error) => {
                tracing::warn!(task.id = %self.task.id, branch, %error, "the branch could not be removed");
                "refused"
            }
            Err(error) => return Err(error.into()),
        };
        tracing::info!(task.id = %self.task.id, branch, what, "the branch of a pull request that ended");
        self.done(&key, &RemovalRecord { branch: what }).await
    }
}
