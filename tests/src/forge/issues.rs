//! Issues as people see them, and the numbers of items.
//!
//! An item has one number in the calls of tests, which is GitHub's: issues and pull requests are numbered together. On
//! GitLab it has another one, its `iid`, since issues and merge requests are numbered apart there.

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};

use super::Forge;
use super::gitlab::Kind;

/// An issue as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueView {
    /// Its number here.
    pub number: u64,
    /// Who opened it.
    pub author: String,
    /// Title.
    pub title: String,
    /// Text.
    pub body: String,
    /// Whether it is open.
    pub open: bool,
}

impl Forge {
    /// GitLab's number of an item.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn iid(&self, repo: &str, number: u64) -> u64 {
        self.with_issue(repo, number, |issue| issue.iid)
    }

    /// The number in the calls of tests of the merge request with this number on GitLab.
    ///
    /// # Panics
    /// If there is no such merge request.
    pub fn merge_request(&self, repo: &str, iid: u64) -> u64 {
        self.at_iid(repo, Kind::MergeRequest, iid)
    }

    /// The number in the calls of tests of an item as a tracker names it.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn number_of(&self, item: &ItemRef) -> u64 {
        match (item.tracker, item.kind) {
            (TrackerKind::GitLab, ItemKind::Issue) => {
                self.at_iid(&item.repo_path, Kind::Issue, item.number)
            }
            (TrackerKind::GitLab, ItemKind::PullRequest) => {
                self.at_iid(&item.repo_path, Kind::MergeRequest, item.number)
            }
            (TrackerKind::GitHub | TrackerKind::Local, _) | (_, ItemKind::Task) => item.number,
        }
    }

    fn at_iid(&self, repo: &str, kind: Kind, iid: u64) -> u64 {
        self.with_repo(repo, |repo| {
            kind.find(repo, iid).expect("the item exists").number
        })
    }

    /// Somebody ticks the box in the first line of an issue's text that contains `mark`. Whether there is one.
    pub fn tick(&self, repo: &str, number: u64, mark: &str, login: &str) -> bool {
        let body = self.with_issue(repo, number, |issue| issue.body.clone());
        let mut found = false;
        let tick = |line: &str| match !found && line.contains(mark) && line.contains("[ ]") {
            true => {
                found = true;
                line.replacen("[ ]", "[x]", 1)
            }
            false => line.to_owned(),
        };
        let body: Vec<String> = body.lines().map(tick).collect();
        if found {
            self.edit_text_as(repo, number, &body.join("\r\n"), login);
        }
        found
    }

    /// All issues that somebody opened, oldest first.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn issues_of(&self, repo: &str, login: &str) -> Vec<IssueView> {
        self.with_repo(repo, |repo| {
            let issues = repo.issues.iter();
            let own = issues.filter(|it| it.pull.is_none() && it.author == login && !it.deleted);
            let view = own.map(|it| IssueView {
                number: it.number,
                author: it.author.clone(),
                title: it.title.clone(),
                body: it.body.clone(),
                open: it.open,
            });
            view.collect()
        })
    }
}
