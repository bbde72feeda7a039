//! Protected branches: the bot may not push to them. GitHub has them as rulesets, which name branches that need not exist, and
//! as the protection of a branch; GitLab as names and patterns.

use serde_json::{Value, json};

use super::Forge;
use super::rest::{Answer, Ask};
use super::state::{Repo, State};

/// The id of every ruleset.
const RULESET: u64 = 77;

impl Forge {
    /// Lets nobody below a Maintainer push to branches with this name; with `*` at its end, to those that begin so.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn protect(&self, repo: &str, pattern: &str) {
        self.with_repo_mut(repo, |repo| repo.protected.push(pattern.to_owned()));
    }
}

/// The pattern that protects a branch.
fn protects<'r>(repo: &'r Repo, branch: &str) -> Option<&'r String> {
    repo.protected
        .iter()
        .find(|pattern| match pattern.strip_suffix('*') {
            Some(begin) => branch.starts_with(begin),
            None => *pattern == branch,
        })
}

/// GitHub: `/repos/O/R/rules/branches/B` and `/repos/O/R/rulesets/ID`.
pub(super) fn rules(repo: &Repo, branch: &str) -> Answer {
    let rules: Vec<Value> = protects(repo, branch)
        .into_iter()
        .flat_map(|_| ["creation", "update", "non_fast_forward"])
        .map(|kind| {
            json!({
                "type": kind, "ruleset_source_type": "Repository",
                "ruleset_source": repo.full_name, "ruleset_id": RULESET,
            })
        })
        .collect();
    Answer::ok(json!(rules))
}

/// GitHub: `/repos/O/R/rulesets/ID`.
pub(super) fn ruleset(id: &str) -> Answer {
    if id != RULESET.to_string() {
        return Answer::not_found();
    }
    Answer::ok(json!({
        "id": RULESET, "name": "release branches", "target": "branch", "enforcement": "active",
        "current_user_can_bypass": "never",
    }))
}

/// GitHub's GraphQL: `ref { refUpdateRule }`, which only a branch has that exists.
pub(super) fn update_rule(state: &State, ask: &Ask) -> Answer {
    let variables = &ask.body["variables"];
    let text = |key: &str| variables[key].as_str().unwrap_or_default();
    let name = format!("{}/{}", text("owner"), text("name"));
    let branch = text("branch").trim_start_matches("refs/heads/");
    let found = state.repo(&name).filter(|repo| repo.sha(branch).is_some());
    let shown = found.map(|repo| match protects(repo, branch) {
        Some(pattern) => {
            json!({ "refUpdateRule": { "pattern": pattern, "viewerCanPush": false } })
        }
        None => json!({ "refUpdateRule": null }),
    });
    Answer::ok(json!({ "data": { "repository": { "ref": shown } } }))
}

/// GitLab: one branch.
pub(super) fn branch(repo: &Repo, branch: &str) -> Option<Value> {
    let is_protected = protects(repo, branch).is_some();
    repo.sha(branch).map(|sha| {
        json!({
            "name": branch, "commit": { "id": sha }, "protected": is_protected,
            "can_push": !is_protected, "developers_can_push": false,
        })
    })
}

/// GitLab: what is protected.
pub(super) fn protected_branches(repo: &Repo) -> Vec<Value> {
    let all = repo.protected.iter().enumerate();
    all.map(|(id, name)| {
        json!({
            "id": id, "name": name, "allow_force_push": false,
            "push_access_levels": [{
                "id": id, "access_level": 40, "access_level_description": "Maintainers",
                "deploy_key_id": null, "user_id": null, "group_id": null,
            }],
        })
    })
    .collect()
}
