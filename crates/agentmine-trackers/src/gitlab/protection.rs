//! Whether GitLab keeps us from pushing to a branch: a protected branch shows it itself if it exists, else the names and
//! patterns that the project protects; and the project's push rules do, which paid plans have and only Maintainers see.
//!
//! Only what is certain counts: what the token may not see refuses nothing.

use agentmine_domain::ItemRef;
use futures::future::join;
use serde::Deserialize;

use super::access::Allowed;
use super::api::Api;
use crate::error::TrackerError;
use crate::forge::{has_match, shown};

#[derive(Debug, Deserialize)]
struct Branch {
    #[serde(default = "yes")]
    can_push: bool,
}

fn yes() -> bool {
    true
}

/// A name or pattern that is protected.
#[derive(Debug, Deserialize)]
struct Protected {
    name: String,
    #[serde(default)]
    push_access_levels: Vec<PushAccess>,
}

/// Who may push: a role, a user, a group, or a key.
#[derive(Debug, Deserialize)]
struct PushAccess {
    access_level: Option<u32>,
    user_id: Option<u64>,
    group_id: Option<u64>,
}

/// What a project demands of every push.
#[derive(Debug, Default, Deserialize)]
struct PushRule {
    branch_name_regex: Option<String>,
    reject_unsigned_commits: Option<bool>,
}

impl PushRule {
    /// Why it refuses every commit that is not signed.
    fn of_commits(&self) -> Option<String> {
        let wants = self.reject_unsigned_commits == Some(true);
        wants.then(|| "the project's push rules want signed commits".to_owned())
    }

    /// Why it refuses a new branch of this name.
    fn of_name(&self, branch: &str) -> Option<String> {
        let pattern = self.branch_name_regex.as_deref().unwrap_or_default();
        let is_refused = !pattern.is_empty() && has_match(pattern, branch) == Some(false);
        is_refused.then(|| {
            format!(
                "its name does not match `{pattern:.200}` of the project's push rules (`agent.branch_pattern` names AgentMine's branches)"
            )
        })
    }
}

impl Api {
    /// Why a push to the branch would be refused.
    pub(super) async fn push_objection(
        &self,
        item: &ItemRef,
        branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        let url = self.project_url(&item.repo_id, &["repository", "branches", branch]);
        let what = format!("branch {branch} of {}", item.repo_path);
        let (rule, reply) = join(self.push_rule(item), self.client.get(url)).await;
        let rule = rule?;
        if let Some(objection) = rule.of_commits() {
            return Ok(Some(objection));
        }
        if let Some(branch) = shown(reply.and_then(|it| it.ok(&what)?.json::<Branch>()))? {
            let why = "it is a protected branch, and AgentMine's account may not push to it";
            return Ok((!branch.can_push).then(|| why.to_owned()));
        }
        if let Some(objection) = rule.of_name(branch) {
            return Ok(Some(objection));
        }
        let mut url = self.project_url(&item.repo_id, &["protected_branches"]);
        url.query_pairs_mut().append_pair("per_page", "100");
        let what = format!("the protected branches of {}", item.repo_path);
        let listed = self.client.list::<Protected>(url, &what).await;
        let mut protected = shown(listed)?.unwrap_or_default();
        protected.retain(|it| matches(&it.name, branch));
        if protected.is_empty() {
            return Ok(None);
        }
        let Some(level) = self.own_level(item).await? else {
            return Ok(None);
        };
        let me = self.me().await?.id;
        // Of several patterns the most permissive one counts.
        let allowed = |it: &PushAccess| match (it.user_id, it.group_id, it.access_level) {
            (Some(user), _, _) => user == me,
            // Whether we are in it is not asked.
            (None, Some(_), _) => true,
            (None, None, Some(needed)) => needed > 0 && level >= needed,
            (None, None, None) => false,
        };
        let may = protected
            .iter()
            .any(|it| it.push_access_levels.iter().any(allowed));
        let pattern = protected.first().map_or("", |it| it.name.as_str());
        Ok((!may).then(|| {
            format!(
                "it matches the protected branch `{pattern}`, to which AgentMine's account may not push"
            )
        }))
    }

    /// The project's push rules, as far as the token sees any.
    async fn push_rule(&self, item: &ItemRef) -> Result<PushRule, TrackerError> {
        let url = self.project_url(&item.repo_id, &["push_rule"]);
        let what = format!("the push rules of {}", item.repo_path);
        let reply = self.client.get(url).await;
        let rule = shown(reply.and_then(|it| it.ok(&what)?.json::<Option<PushRule>>()))?;
        Ok(rule.flatten().unwrap_or_default())
    }

    /// Our access level in the project; `None`: the server does not say.
    async fn own_level(&self, item: &ItemRef) -> Result<Option<u32>, TrackerError> {
        let reply = self
            .client
            .get(self.project_url(&item.repo_id, &[]))
            .await?;
        let project: Allowed = reply.ok(&format!("project {}", item.repo_path))?.json()?;
        Ok(project.level())
    }
}

/// Whether a name fits a pattern, in which `*` is any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(rest) = name.strip_prefix(before) else {
        return false;
    };
    let starts = rest.char_indices().map(|(at, _)| at);
    starts
        .chain([rest.len()])
        .any(|at| matches(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_rules_object_to_names_and_to_commits_without_a_signature() {
        let rule = |pattern: &str, unsigned: bool| PushRule {
            branch_name_regex: Some(pattern.to_owned()),
            reject_unsigned_commits: Some(unsigned),
        };
        let branch = "agentmine/issue-7";
        let refused = rule("^(feature|hotfix)/.*", false).of_name(branch).unwrap();
        assert!(refused.contains("^(feature|hotfix)/.*"), "{refused}");
        // An expression that cannot be read refuses nothing.
        for pattern in ["", "issue-[0-9]+$", "^agentmine/", "^(?!main)"] {
            assert_eq!(rule(pattern, false).of_name(branch), None, "{pattern}");
        }
        assert!(rule("", true).of_commits().is_some());
        assert_eq!(rule("", false).of_commits(), None);
        assert_eq!(PushRule::default().of_name(branch), None);
        assert_eq!(PushRule::default().of_commits(), None);
    }

    #[test]
    fn a_star_is_any_text() {
        for (pattern, name) in [
            ("main", "main"),
            ("*", "a/b"),
            ("agentmine/*", "agentmine/issue-7"),
            ("*-stable", "1-0-stable"),
            ("a*b*c", "a--b--c"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("main", "main2"), ("a*b", "abc"), ("x/*", "y/x/1")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
