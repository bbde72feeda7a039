//! `trackers.github.who_may_start` and `trackers.gitlab.who_may_start`: whose label starts work.

use schemars::JsonSchema;
use serde::Deserialize;

/// Who may start work on GitHub: their label starts it, and only their comments are read. A person is denied first,
/// then allowed by name, by permission or by team. Bots are allowed by name alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitHubWhoMayStart {
    /// The permission on the repository that is enough.
    pub permission: GitHubPermission,
    /// Who may start work whatever their permission is.
    pub allow: GitHubPeople,
    /// Who may not, whatever else applies.
    pub deny: GitHubPeople,
}

/// A permission on a GitHub repository. Each one includes those above it in this list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GitHubPermission {
    /// Everybody who sees the repository.
    Read,
    /// May manage issues and labels.
    Triage,
    /// May push. The default.
    #[default]
    Write,
    /// May manage the repository.
    Maintain,
    /// Administrators.
    Admin,
    /// No permission is enough: only `allow` counts.
    Nobody,
}

/// People on GitHub.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitHubPeople {
    /// Login names. An App is `NAME[bot]`.
    pub users: Vec<String>,
    /// Teams as `organisation/team`, with their child teams. The token needs to see them: `read:org`, or read on
    /// Members.
    pub teams: Vec<String>,
}

/// Who may start work on GitLab: their label starts it, and only their comments are read. A person is denied first,
/// then allowed by name, by role or by group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitLabWhoMayStart {
    /// The role in the project, inherited ones too, that is enough.
    pub permission: GitLabRole,
    /// Who may start work whatever their role is.
    pub allow: GitLabPeople,
    /// Who may not, whatever else applies.
    pub deny: GitLabPeople,
}

/// A role in a GitLab project. Each one includes those above it in this list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GitLabRole {
    /// Every member.
    Guest,
    /// May manage issues.
    Planner,
    /// May label issues.
    Reporter,
    /// May push. The default.
    #[default]
    Developer,
    /// May manage the project.
    Maintainer,
    /// Owners.
    Owner,
    /// No role is enough: only `allow` counts.
    Nobody,
}

/// People on GitLab.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitLabPeople {
    /// User names.
    pub users: Vec<String>,
    /// Groups as `group` or `group/subgroup`, with inherited members.
    pub groups: Vec<String>,
}
