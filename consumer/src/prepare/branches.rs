//! Which branch is worked on.

use agentmine_domain::Task;
use agentmine_trackers::{Item, Repository};

use crate::error::SessionError;

/// Which branch is worked on, and which it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkBranches {
    /// The one branch that may be pushed to.
    pub(crate) work: String,
    /// Where a pull request would go.
    pub(crate) target: String,
    /// Whether a pull request has to be opened; not for a task that is one.
    pub(crate) opens_pull_request: bool,
}

impl WorkBranches {
    /// An issue gets a branch of its own from the default branch; a pull request is worked on where
    /// it is.
    pub(crate) fn of(task: &Task, item: &Item, repository: &Repository) -> Self {
        match &item.branches {
            Some(branches) => Self {
                work: branches.source.clone(),
                target: branches.target.clone(),
                opens_pull_request: false,
            },
            None => Self {
                work: task.branch(),
                target: repository.default_branch.clone(),
                opens_pull_request: true,
            },
        }
    }

    /// The branch that others build on is never worked on, whatever a tracker says.
    pub(super) fn check(&self, repository: &Repository) -> Result<(), SessionError> {
        if self.work == repository.default_branch || self.work == self.target {
            return Err(SessionError::NoBranchOfItsOwn(self.work.clone()));
        }
        Ok(())
    }

    /// Where the clone starts.
    pub(super) fn start(&self) -> &str {
        if self.opens_pull_request {
            &self.target
        } else {
            &self.work
        }
    }
}
