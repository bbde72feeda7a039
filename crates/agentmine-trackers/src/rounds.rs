//! What a forge shows of the fleet's own pull requests: which are open, and the threads of their reviews.

use std::collections::HashMap;

use agentmine_domain::RedCheck;
use chrono::{DateTime, Utc};

/// An open pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPull {
    /// The tracker's id of the repository.
    pub repo_id: String,
    /// Its number.
    pub number: u64,
    /// Its address for people.
    pub url: String,
    /// Source branch, in the same repository.
    pub head: String,
    /// The commit that the source branch is at; empty where the branch is gone.
    pub head_sha: String,
    /// Target branch.
    pub base: String,
    /// When somebody last wrote on it. A check does not change it.
    pub updated_at: DateTime<Utc>,
}

/// The open pull requests of some repositories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenPulls {
    /// All that could be read.
    pub pulls: Vec<OpenPull>,
    /// The ids of repositories that could not be read: nothing is known about theirs.
    pub unread: Vec<String>,
}

/// A text for each pull request that stays the same while its checks, and what is known of conflicts, do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckMarks(HashMap<(String, u64), String>);

impl CheckMarks {
    pub(crate) fn add(&mut self, repo_id: String, number: u64, mark: String) {
        self.0.insert((repo_id, number), mark);
    }

    /// That of a pull request; `None` if it is not known.
    #[must_use]
    pub fn of(&self, pull: &OpenPull) -> Option<&str> {
        let key = (pull.repo_id.clone(), pull.number);
        self.0.get(&key).map(String::as_str)
    }
}

/// A thread of a review: what people wrote about one place, and the answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The tracker's id of it.
    pub id: String,
    /// The ids of its comments, oldest first.
    pub comments: Vec<String>,
    /// Whether somebody resolved it.
    pub resolved: bool,
    /// Whether the fleet wrote last.
    pub answered: bool,
}

/// How the checks of a commit stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// Those that failed.
    pub red: Vec<RedCheck>,
    /// Whether some have no outcome yet.
    pub pending: bool,
    /// When the first one failed, where the tracker knows.
    pub since: Option<DateTime<Utc>>,
}

/// Characters of what a check says of itself.
const MAX_SUMMARY: usize = 500;

impl Checks {
    /// Counts one that failed.
    pub(crate) fn add(&mut self, mut red: RedCheck, at: Option<DateTime<Utc>>) {
        let summary = red.summary.split_whitespace().collect::<Vec<_>>().join(" ");
        red.summary = summary.chars().take(MAX_SUMMARY).collect();
        self.red.push(red);
        self.since = match (self.since, at) {
            (Some(since), Some(at)) => Some(since.min(at)),
            (since, at) => since.or(at),
        };
    }
}
