//! Which permissions of an App's installation its tokens are asked for.

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
pub(super) const GIT: Permissions = &[("contents", "write"), ("metadata", "read")];

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
