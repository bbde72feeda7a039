//! Which permissions of an App's installation its tokens are asked for.

use std::collections::HashMap;

/// Each with its level.
pub(super) type Permissions = &'static [(&'static str, &'static str)];

const READ: Permissions = &[
    ("contents", "read"),
    ("issues", "read"),
    ("metadata", "read"),
    ("pull_requests", "read"),
];
pub(super) const WRITE: Permissions = &[
    ("contents", "write"),
    ("issues", "write"),
    ("metadata", "read"),
    ("pull_requests", "write"),
];
/// What shows checks, each with its own token: an installation need not allow all of them, and work continues without.
const CHECK_RUNS: Permissions = &[("checks", "read"), ("metadata", "read")];
const STATUSES: Permissions = &[("metadata", "read"), ("statuses", "read")];
const JOBS: Permissions = &[("actions", "read"), ("metadata", "read")];
/// What shows the members of teams.
const TEAMS: Permissions = &[("members", "read"), ("metadata", "read")];
const GIT: Permissions = &[("contents", "write"), ("metadata", "read")];
/// Without the last one GitHub refuses the push of a branch whose workflows of GitHub Actions differ from those that it knows,
/// also where the push itself changes none, as after a merge or rebase.
const GIT_WITH_WORKFLOWS: Permissions = &[
    ("contents", "write"),
    ("metadata", "read"),
    ("workflows", "write"),
];

/// What a token for git asks for, of what its installation was granted: whether workflows may be changed is decided there, and
/// a token that asks for more is refused.
pub(super) fn for_git(granted: &HashMap<String, String>) -> Permissions {
    match granted.get("workflows").map(String::as_str) {
        Some("write") => GIT_WITH_WORKFLOWS,
        Some(_) | None => GIT,
    }
}

/// What a token to read `path` needs.
pub(super) fn to_read(path: &str) -> Permissions {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["repos", _, _, "commits", .., "check-runs"] => CHECK_RUNS,
        ["repos", _, _, "commits", .., "status"] => STATUSES,
        ["repos", _, _, "actions", ..] => JOBS,
        ["orgs", _, "teams", ..] => TEAMS,
        _ => READ,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_asks_for_workflows_if_they_were_granted() {
        let of = |granted: &[(&str, &str)]| {
            let granted = granted.iter().copied();
            let granted = granted.map(|(name, level)| (name.to_owned(), level.to_owned()));
            for_git(&granted.collect())
        };
        assert_eq!(of(&[("workflows", "write")]), GIT_WITH_WORKFLOWS);
        assert_eq!(of(&[("contents", "write"), ("actions", "write")]), GIT);
        assert_eq!(of(&[]), GIT);
    }

    #[test]
    fn only_what_is_asked_for_needs_more_than_the_common_permissions() {
        let needs = |path, name| to_read(path).iter().any(|(own, _)| *own == name);
        assert!(needs("orgs/acme/teams/core/members", "members"));
        assert!(needs("repos/acme/shop/commits/a/check-runs", "checks"));
        for path in ["orgs/acme/repos", "repos/teams/members/issues", "user"] {
            assert!(!needs(path, "members"), "{path}");
            assert!(needs(path, "issues"), "{path}");
        }
    }
}
