//! What a task is about: an issue, a pull request or a file on some tracker.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::UnknownName;

/// The kind of a tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrackerKind {
    /// GitHub or GitHub Enterprise.
    GitHub,
    /// GitLab.
    GitLab,
    /// A folder of Markdown files beside a git repository.
    Local,
}

impl TrackerKind {
    /// The name in configuration, rows and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GitHub => "github",
            Self::GitLab => "gitlab",
            Self::Local => "local",
        }
    }

    /// What its users call a request to merge a branch.
    #[must_use]
    pub fn pull_request(self) -> &'static str {
        match self {
            Self::GitHub | Self::Local => "pull request",
            Self::GitLab => "merge request",
        }
    }
}

impl fmt::Display for TrackerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TrackerKind {
    type Err = UnknownName;

    fn from_str(s: &str) -> Result<Self, UnknownName> {
        match s {
            "github" => Ok(Self::GitHub),
            "gitlab" => Ok(Self::GitLab),
            "local" => Ok(Self::Local),
            _ => Err(UnknownName::new("tracker", s)),
        }
    }
}

/// The host of tasks of people that are in no repository of a tracker.
pub const PEOPLE_HOST: &str = "agentmine";

/// A repository of a tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryRef {
    /// The kind of tracker.
    pub tracker: TrackerKind,
    /// The tracker's host.
    pub host: String,
    /// The tracker's id of the repository.
    pub repo_id: String,
    /// Its current path.
    pub repo_path: String,
}

/// Whether the item is an issue or a pull request (merge request).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// An issue. Work starts from the default branch.
    Issue,
    /// A pull request or merge request. Work starts from its source branch.
    PullRequest,
    /// No item of the tracker: a task that a person made, with the task's own number. Work starts from the default branch.
    Task,
}

impl ItemKind {
    /// The name in rows, logs and branch names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::PullRequest => "pull_request",
            Self::Task => "task",
        }
    }
}

impl FromStr for ItemKind {
    type Err = UnknownName;

    fn from_str(s: &str) -> Result<Self, UnknownName> {
        match s {
            "issue" => Ok(Self::Issue),
            "pull_request" => Ok(Self::PullRequest),
            "task" => Ok(Self::Task),
            _ => Err(UnknownName::new("item kind", s)),
        }
    }
}

/// The permanent identity of an item: a repository's numeric id does not change on rename or transfer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ItemRef {
    /// The kind of tracker.
    pub tracker: TrackerKind,
    /// The tracker's host, e.g. `github.com`; `localhost` for a local folder.
    pub host: String,
    /// The tracker's id of the repository (a number on GitHub and GitLab, a digest of the path for a
    /// local folder).
    pub repo_id: String,
    /// The repository's current path, e.g. `owner/name`. Not part of the identity.
    pub repo_path: String,
    /// Issue or pull request.
    pub kind: ItemKind,
    /// The item's number on the tracker.
    pub number: u64,
}

/// The permanent identity of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepositoryKey {
    /// The kind of tracker.
    pub tracker: TrackerKind,
    /// The tracker's host.
    pub host: String,
    /// The tracker's id of it.
    pub repo_id: String,
}

impl ItemRef {
    /// The number of the item at an address. The repository in the address may have another name now.
    #[must_use]
    pub fn number_at(url: &str) -> Option<u64> {
        url.rsplit('/').next()?.parse().ok()
    }

    /// The repository that it is in.
    #[must_use]
    pub fn repository(&self) -> RepositoryKey {
        RepositoryKey {
            tracker: self.tracker,
            host: self.host.clone(),
            repo_id: self.repo_id.clone(),
        }
    }

    /// The identity as one string: `tracker|host|repo id|kind|number`.
    #[must_use]
    pub fn key(&self) -> String {
        format!(
            "{}|{}|{}|{}|{}",
            self.tracker,
            self.host,
            self.repo_id,
            self.kind.as_str(),
            self.number
        )
    }
}

impl fmt::Display for ItemRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            repo_path, number, ..
        } = self;
        match (self.tracker, self.kind) {
            // On GitLab issues and merge requests are numbered apart.
            (TrackerKind::GitLab, ItemKind::PullRequest) => write!(f, "{repo_path}!{number}"),
            (_, ItemKind::Issue | ItemKind::PullRequest) => write!(f, "{repo_path}#{number}"),
            (_, ItemKind::Task) if self.host == PEOPLE_HOST => write!(f, "task {number}"),
            // Not `#`, which names an issue.
            (_, ItemKind::Task) => write!(f, "task {number} in {repo_path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_repository_keeps_its_key() {
        let mut item = ItemRef {
            tracker: TrackerKind::GitHub,
            host: "github.com".into(),
            repo_id: "42".into(),
            repo_path: "old/name".into(),
            kind: ItemKind::Issue,
            number: 7,
        };
        let before = item.key();
        item.repo_path = "new/name".into();
        assert_eq!(item.key(), before);
        assert_eq!(before, "github|github.com|42|issue|7");
    }

    #[test]
    fn tracker_and_item_kinds_are_parsed_from_their_names() {
        for kind in [TrackerKind::GitHub, TrackerKind::GitLab, TrackerKind::Local] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for kind in [ItemKind::Issue, ItemKind::PullRequest, ItemKind::Task] {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        let error = "gitea".parse::<TrackerKind>().unwrap_err().to_string();
        assert_eq!(error, r#"unknown tracker "gitea""#);
        assert!("epic".parse::<ItemKind>().is_err());
    }

    #[test]
    fn an_item_is_displayed_as_path_and_number() {
        let mut item = ItemRef {
            tracker: TrackerKind::GitLab,
            host: "gitlab.example".into(),
            repo_id: "1".into(),
            repo_path: "group/name".into(),
            kind: ItemKind::Issue,
            number: 7,
        };
        assert_eq!(item.to_string(), "group/name#7");
        item.kind = ItemKind::PullRequest;
        assert_eq!(item.to_string(), "group/name!7");
        item.kind = ItemKind::Task;
        assert_eq!(item.to_string(), "task 7 in group/name");
        item.host = PEOPLE_HOST.into();
        assert_eq!(item.to_string(), "task 7");
    }

    #[test]
    fn each_tracker_has_its_word_for_a_request_to_merge() {
        assert_eq!(TrackerKind::GitHub.pull_request(), "pull request");
        assert_eq!(TrackerKind::GitLab.pull_request(), "merge request");
        assert_eq!(TrackerKind::Local.pull_request(), "pull request");
    }

    #[test]
    fn the_number_is_the_last_part_of_an_address() {
        for (url, number) in [
            ("https://github.com/octo/demo/pull/12", Some(12)),
            ("https://gitlab.com/octo/demo/-/merge_requests/7", Some(7)),
            ("https://github.com/octo/demo", None),
            ("", None),
        ] {
            assert_eq!(ItemRef::number_at(url), number, "{url}");
        }
    }
}
