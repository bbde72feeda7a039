//! The work branch of a task and its target branch.

use agentmine_domain::Task;
use agentmine_trackers::{Item, Repository};

use crate::error::SessionError;

/// The branch that the agent works on, and the branch it starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkBranches {
    /// The only branch that may be pushed to.
    pub(crate) work: String,
    /// The target branch of the pull request.
    pub(crate) target: String,
    /// Whether to open a pull request; false if the item is itself one.
    pub(crate) opens_pull_request: bool,
}

impl WorkBranches {
    /// An issue gets a new branch from the default branch; a pull request keeps its source branch.
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

    /// Refuses to work on the default or the target branch, whatever the tracker returned.
    pub(super) fn check(&self, repository: &Repository) -> Result<(), SessionError> {
        if self.work == repository.default_branch || self.work == self.target {
            return Err(SessionError::NotASeparateBranch(self.work.clone()));
        }
        Ok(())
    }

    /// The branch to clone.
    pub(super) fn start(&self) -> &str {
        if self.opens_pull_request {
            &self.target
        } else {
            &self.work
        }
    }
}
