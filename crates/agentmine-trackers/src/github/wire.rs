//! The part of GitHub's JSON that is used. Unknown fields are ignored: GitHub often adds some.

pub(super) use agentmine_runtime::config::same_label;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::item::LinePlace;
use crate::people::Person;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct User {
    pub(super) login: String,
    /// `User`, `Bot` or `Organization`.
    #[serde(default, rename = "type")]
    pub(super) kind: String,
}

pub(super) fn person_of(user: User) -> Person {
    Person {
        is_bot: user.kind == "Bot",
        login: user.login,
        id: None,
    }
}

/// A user's name; deleted users are shown as GitHub shows them.
pub(super) fn login_of(user: Option<User>) -> String {
    user.map_or_else(|| "ghost".to_owned(), |user| user.login)
}

/// A repository.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Repo {
    pub(super) id: u64,
    pub(super) full_name: String,
    pub(super) default_branch: String,
    pub(super) clone_url: String,
    #[serde(default)]
    pub(super) archived: bool,
    /// `true` also of an internal repository. Absent counts as `true`.
    private: Option<bool>,
    /// Absent on servers where they cannot be turned off.
    has_pull_requests: Option<bool>,
}

impl Repo {
    /// Whether pull requests are turned off.
    pub(super) fn lacks_pull_requests(&self) -> bool {
        self.has_pull_requests == Some(false)
    }

    /// Whether everybody may read it.
    pub(super) fn is_public(&self) -> bool {
        self.private == Some(false)
    }
}

/// A label: an object, or on old servers its name alone.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Label {
    Object { name: String },
    Name(String),
}

impl Label {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Object { name } | Self::Name(name) => name,
        }
    }
}

/// An issue, or a pull request seen as one.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Issue {
    pub(super) id: u64,
    pub(super) number: u64,
    pub(super) title: String,
    pub(super) body: Option<String>,
    pub(super) state: String,
    /// Whether only those who may write may comment.
    #[serde(default)]
    pub(super) locked: bool,
    pub(super) html_url: String,
    pub(super) repository_url: String,
    pub(super) user: Option<User>,
    #[serde(default)]
    pub(super) labels: Vec<Label>,
    #[serde(default)]
    pub(super) assignees: Vec<User>,
    pub(super) created_at: Option<DateTime<Utc>>,
    pub(super) updated_at: DateTime<Utc>,
    /// Only pull requests have it.
    pub(super) pull_request: Option<serde::de::IgnoredAny>,
}

impl Issue {
    pub(super) fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|own| same_label(own.name(), label))
    }

    /// Whether it is open and has the label.
    pub(super) fn asks_by(&self, label: &str) -> bool {
        self.state == "open" && self.has_label(label)
    }

    /// Whether it was transferred: it belongs to another repository now.
    pub(super) fn is_elsewhere(&self, path: &str) -> bool {
        let own = self.repo_path();
        own.is_some_and(|own| !own.eq_ignore_ascii_case(path))
    }

    /// `owner/name`, from the repository's address.
    pub(super) fn repo_path(&self) -> Option<String> {
        let (_, path) = self.repository_url.rsplit_once("/repos/")?;
        Some(path.to_owned())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct SearchPage {
    #[serde(default)]
    pub(super) incomplete_results: bool,
    /// Issues; each is read by itself, since the search index may hold odd ones.
    pub(super) items: Vec<Value>,
}

/// An event in an issue's life.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) id: u64,
    pub(super) event: String,
    /// Absent once the account is gone.
    pub(super) actor: Option<User>,
    pub(super) label: Option<Label>,
    pub(super) created_at: Option<DateTime<Utc>>,
    /// In the events of a repository.
    pub(super) issue: Option<Numbered>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Numbered {
    pub(super) number: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Comment {
    pub(super) id: u64,
    pub(super) user: Option<User>,
    pub(super) body: Option<String>,
    pub(super) created_at: DateTime<Utc>,
}

/// A review of a pull request.
#[derive(Debug, Deserialize)]
pub(super) struct Review {
    pub(super) id: u64,
    pub(super) user: Option<User>,
    pub(super) body: Option<String>,
    /// `APPROVED`, `CHANGES_REQUESTED`, `COMMENTED`, `DISMISSED` or `PENDING`.
    pub(super) state: String,
    /// Absent while the review is pending.
    pub(super) submitted_at: Option<DateTime<Utc>>,
}

/// A comment on a line of a pull request's diff.
#[derive(Debug, Deserialize)]
pub(super) struct LineComment {
    pub(super) id: u64,
    pub(super) user: Option<User>,
    pub(super) body: Option<String>,
    pub(super) path: String,
    /// The last line. Absent once the diff no longer has it, and for a comment on a file.
    pub(super) line: Option<u64>,
    /// The first line of several.
    pub(super) start_line: Option<u64>,
    /// `LEFT` for a removed line, else `RIGHT`; the other is that of the first line.
    pub(super) side: Option<String>,
    pub(super) start_side: Option<String>,
    /// `line` or `file`.
    pub(super) subject_type: Option<String>,
    /// The part of the diff that it was written on; its last line is the one of the comment.
    pub(super) diff_hunk: Option<String>,
    /// The comment that began the thread, of a reply.
    pub(super) in_reply_to_id: Option<u64>,
    pub(super) created_at: DateTime<Utc>,
}

impl LineComment {
    /// Where in the file it is.
    pub(super) fn place(&self) -> LinePlace {
        let hunk = || self.diff_hunk.clone().unwrap_or_default();
        let is_left = |side: &Option<String>| side.as_deref() == Some("LEFT");
        match self.line {
            None if self.subject_type.as_deref() == Some("file") => LinePlace::File,
            None => LinePlace::Outdated { hunk: hunk() },
            Some(line) if is_left(&self.side) => LinePlace::Removed { line, hunk: hunk() },
            Some(last) => {
                let first = self.start_line.filter(|_| !is_left(&self.start_side));
                let first = first.map_or(last, |first| first.min(last));
                LinePlace::Lines { first, last }
            }
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Pull {
    pub(super) number: u64,
    /// Its id in GraphQL.
    #[serde(default)]
    pub(super) node_id: String,
    #[serde(default)]
    pub(super) draft: bool,
    pub(super) html_url: String,
    pub(super) state: String,
    /// Absent unless it was merged.
    pub(super) merged_at: Option<serde::de::IgnoredAny>,
    pub(super) head: PullRef,
    pub(super) base: BaseRef,
    /// Of one that was requested alone; absent while GitHub finds out.
    pub(super) mergeable: Option<bool>,
    /// In lists.
    pub(super) updated_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PullRef {
    #[serde(rename = "ref")]
    pub(super) branch: String,
    pub(super) sha: Option<String>,
    /// Gone when a fork was deleted.
    pub(super) repo: Option<RepoId>,
}

/// Where it goes: its repository is the one that was requested.
#[derive(Debug, Deserialize)]
pub(super) struct BaseRef {
    #[serde(rename = "ref")]
    pub(super) branch: String,
    #[serde(default, deserialize_with = "whole")]
    pub(super) repo: Option<Repo>,
}

/// The repository, if all of it is there.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Repo>, D::Error> {
    let repo = Value::deserialize(from)?;
    Ok(Repo::deserialize(repo).ok())
}

#[derive(Debug, Deserialize)]
pub(super) struct RepoId {
    pub(super) id: u64,
}

/// A file, folder, link or submodule at a path; a folder is a list instead.
#[derive(Debug, Deserialize)]
pub(super) struct Content {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) size: u64,
    #[serde(default)]
    pub(super) content: String,
    #[serde(default)]
    pub(super) encoding: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The place of a comment with these members besides the usual ones.
    fn place(members: Value) -> LinePlace {
        let mut comment = json!({
            "id": 1, "user": null, "body": "x", "path": "a.rs", "line": 5, "start_line": null, "side": "RIGHT",
            "start_side": null, "subject_type": "line", "diff_hunk": "@@ -1 +1 @@", "created_at": "2026-01-01T00:00:00Z",
        });
        for (name, value) in members.as_object().unwrap() {
            comment[name] = value.clone();
        }
        serde_json::from_value::<LineComment>(comment)
            .unwrap()
            .place()
    }

    #[test]
    fn a_comment_on_a_line_has_the_place_that_the_diff_shows() {
        let lines = |first, last| LinePlace::Lines { first, last };
        let hunk = || "@@ -1 +1 @@".to_owned();
        let removed = LinePlace::Removed {
            line: 5,
            hunk: hunk(),
        };
        for (members, expected) in [
            (json!({}), lines(5, 5)),
            (json!({"start_line": 3, "start_side": "RIGHT"}), lines(3, 5)),
            (json!({"start_line": 9, "start_side": "LEFT"}), lines(5, 5)),
            (json!({"side": "LEFT"}), removed),
            (json!({"line": null}), LinePlace::Outdated { hunk: hunk() }),
            (
                json!({"line": null, "subject_type": "file"}),
                LinePlace::File,
            ),
        ] {
            assert_eq!(place(members.clone()), expected, "{members}");
        }
    }
}
