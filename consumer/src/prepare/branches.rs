//! The work branch of a task and its target branch.

use agentmine_agent::PullRequestText;
use agentmine_domain::Task;
use agentmine_gateway::{not_obeyed, without_skips};
use agentmine_trackers::{Item, NewPullRequest, Repository};

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

    /// The branch that the repository's agent definition is read from, its image, checks, set-up and MCP servers. Never the work
    /// branch: an earlier session, or whoever opened the pull request, could lift restrictions there, and decide how the work is
    /// judged. Its newest commit counts, and not the merge base, which whoever makes a branch can choose among old commits.
    pub(super) fn rules(&self) -> &str {
        &self.target
    }

    /// The pull request between them. Its title comes from an issue, and forges act on words in it: GitLab directly, and both
    /// when a merge or squash uses it as its message. Only the text may close the issue; that message may contain it too.
    pub(crate) fn pull_request(&self, text: PullRequestText) -> NewPullRequest {
        let PullRequestText { title, body, draft } = text;
        NewPullRequest {
            head: self.work.clone(),
            base: self.target.clone(),
            title: not_obeyed(&title),
            body: without_skips(&body),
            draft,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_closes_no_issue_and_skips_no_checks() {
        let branches = WorkBranches {
            work: "work".into(),
            target: "main".into(),
            opens_pull_request: true,
        };
        for (title, shown) in [
            ("Fix #123 on Windows", "Fix for #123 on Windows"),
            ("Support [skip ci]", "Support skip ci"),
            ("Greet by name (#7)", "Greet by name (#7)"),
        ] {
            let text = PullRequestText {
                title: title.into(),
                body: "Closes #7".into(),
                draft: false,
            };
            let new = branches.pull_request(text);
            assert_eq!(
                (new.title.as_str(), new.body.as_str()),
                (shown, "Closes #7")
            );
        }
    }

    #[test]
    fn an_agent_is_neither_defined_nor_judged_by_the_branch_that_it_works_on() {
        for opens_pull_request in [true, false] {
            let branches = WorkBranches {
                work: "work".into(),
                target: "main".into(),
                opens_pull_request,
            };
            assert_eq!(branches.rules(), "main");
        }
    }

    /// GitHub can be configured to use it as the message of a squash.
    #[test]
    fn a_text_skips_no_checks_and_closes_its_issue() {
        let branches = WorkBranches {
            work: "work".into(),
            target: "main".into(),
            opens_pull_request: true,
        };
        let text = PullRequestText {
            title: "Greet".into(),
            body: "Closes #7\n\n> It says [skip ci].\n- refused: it contains `[ci skip]`".into(),
            draft: false,
        };
        assert_eq!(
            branches.pull_request(text).body.replace('\u{200b}', "~"),
            "Closes #7\n\n> It says [~skip ci].\n- refused: it contains `[~ci skip]`"
        );
    }
}
