//! The part of GitLab's JSON that is used. Unknown fields are ignored: GitLab often adds some.

use agentmine_domain::TrackerKind;
use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::error::TrackerError;
use crate::people::Person;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct User {
    pub(super) id: u64,
    pub(super) username: String,
    /// Shown to some tokens only.
    #[serde(default)]
    pub(super) bot: bool,
}

/// A user's name; deleted users are shown as GitLab shows them.
pub(super) fn name_of(user: Option<User>) -> String {
    user.map_or_else(|| "ghost".to_owned(), |user| user.username)
}

pub(super) fn person_of(user: User) -> Person {
    Person {
        login: user.username,
        id: Some(user.id),
        is_bot: user.bot,
    }
}

/// A project.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Project {
    pub(super) id: u64,
    pub(super) path_with_namespace: String,
    /// Absent while the repository is empty.
    pub(super) default_branch: Option<String>,
    pub(super) http_url_to_repo: String,
    #[serde(default)]
    pub(super) archived: bool,
    /// The day on which it is to be deleted; it is read-only until then.
    pub(super) marked_for_deletion_on: Option<String>,
    /// `public`, `internal` (for everybody who is signed in) or `private`. Absent counts as `private`.
    visibility: Option<String>,
    /// `private`: its issues are for its members alone, whatever its visibility is.
    issues_access_level: Option<String>,
    merge_requests_access_level: Option<String>,
}

impl Project {
    /// Why nothing can be written to it.
    pub(super) fn read_only(&self) -> Option<TrackerError> {
        let (tracker, what) = (TrackerKind::GitLab, self.path_with_namespace.clone());
        if self.archived {
            Some(TrackerError::archived(tracker, what))
        } else {
            self.marked_for_deletion_on
                .is_some()
                .then_some(TrackerError::Archived {
                    tracker,
                    what,
                    state: "to be deleted",
                    remedy: "restore it",
                })
        }
    }

    /// Whether merge requests are turned off, as in a project that is used for its issues alone.
    pub(super) fn lacks_merge_requests(&self) -> bool {
        self.merge_requests_access_level.as_deref() == Some("disabled")
    }

    /// Whether everybody may read its issues.
    pub(super) fn shows_issues(&self) -> bool {
        let is_public = self.visibility.as_deref() == Some("public");
        is_public && self.issues_access_level.as_deref() != Some("private")
    }
}

/// An issue or a merge request.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Item {
    pub(super) id: u64,
    pub(super) iid: u64,
    /// Of a merge request: the target's.
    pub(super) project_id: u64,
    pub(super) title: String,
    pub(super) description: Option<String>,
    /// `opened`, `closed`, `merged`, or `locked` while it is being merged.
    pub(super) state: String,
    pub(super) web_url: String,
    pub(super) references: References,
    pub(super) author: Option<User>,
    #[serde(default)]
    pub(super) labels: Vec<String>,
    #[serde(default)]
    pub(super) assignees: Vec<User>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) updated_at: DateTime<Utc>,
    /// Of an issue.
    #[serde(default)]
    pub(super) confidential: bool,
    /// Whether members of the project alone may comment.
    #[serde(default)]
    pub(super) discussion_locked: Option<bool>,
    /// The issue that it became in another project.
    #[serde(default)]
    pub(super) moved_to_id: Option<u64>,
}

impl Item {
    pub(super) fn is_open(&self) -> bool {
        is_open(&self.state)
    }

    /// Why nobody is to work on it.
    pub(super) fn withdrawn(&self) -> Option<&'static str> {
        if self.moved_to_id.is_some() {
            return Some("the item was moved to another project");
        }
        let is_locked = self.discussion_locked == Some(true);
        is_locked.then_some("the conversation was locked")
    }

    /// The project's current path.
    pub(super) fn project_path(&self) -> Option<&str> {
        let (path, _) = self.references.full.rsplit_once(['#', '!'])?;
        Some(path)
    }
}

/// How an item is referred to.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct References {
    /// `group/project#1` or `group/project!1`.
    pub(super) full: String,
}

/// The branches of a merge request.
#[derive(Debug, Deserialize)]
pub(super) struct Sides {
    pub(super) source_branch: String,
    pub(super) target_branch: String,
    /// Gone when a fork was deleted.
    pub(super) source_project_id: Option<u64>,
}

/// A merge request that was looked up or opened.
#[derive(Debug, Deserialize)]
pub(super) struct MergeRequest {
    pub(super) iid: u64,
    pub(super) web_url: String,
    pub(super) state: String,
    pub(super) source_branch: String,
    pub(super) source_project_id: Option<u64>,
    /// The newest commit; of a merged one that which was merged.
    pub(super) sha: Option<String>,
    pub(super) draft: bool,
    #[serde(default)]
    pub(super) title: String,
}

pub(super) fn is_open(state: &str) -> bool {
    matches!(state, "opened" | "locked")
}

/// A label that was added or removed.
#[derive(Debug, Deserialize)]
pub(super) struct LabelEvent {
    pub(super) id: u64,
    /// Absent once the account is gone.
    pub(super) user: Option<User>,
    /// `add` or `remove`.
    pub(super) action: String,
    /// Absent once the label itself was deleted.
    pub(super) label: Option<Label>,
    pub(super) created_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Label {
    pub(super) name: String,
}

/// A comment, or what GitLab itself notes.
#[derive(Debug, Deserialize)]
pub(super) struct Note {
    pub(super) id: u64,
    pub(super) author: Option<User>,
    pub(super) body: String,
    pub(super) created_at: DateTime<Utc>,
    pub(super) system: bool,
    /// Visible to members of the project only.
    #[serde(default)]
    pub(super) internal: bool,
    /// The older name of `internal`.
    #[serde(default)]
    pub(super) confidential: Option<bool>,
    /// Whether its discussion can be resolved, and is.
    #[serde(default)]
    pub(super) resolvable: bool,
    #[serde(default)]
    pub(super) resolved: bool,
    /// Of a comment on a line of a merge request's diff.
    pub(super) position: Option<Position>,
}

impl Note {
    /// Whether everybody who sees the item sees it.
    pub(super) fn is_public(&self) -> bool {
        !self.internal && self.confidential != Some(true)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Position {
    pub(super) new_path: Option<String>,
    pub(super) old_path: Option<String>,
    /// Absent for a removed line.
    pub(super) new_line: Option<u64>,
    /// Absent for an added line.
    pub(super) old_line: Option<u64>,
    /// Of a comment on several lines.
    pub(super) line_range: Option<LineRange>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LineRange {
    pub(super) start: Option<RangeEnd>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RangeEnd {
    pub(super) new_line: Option<u64>,
}

/// A file at a branch.
#[derive(Debug, Deserialize)]
pub(super) struct Content {
    pub(super) size: u64,
    pub(super) encoding: String,
    pub(super) content: String,
}
