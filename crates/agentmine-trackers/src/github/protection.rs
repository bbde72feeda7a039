//! Whether a rule of GitHub keeps us from pushing to a branch: rulesets, which name branches that need not exist, and the
//! protection of a branch that exists.
//!
//! Only what is certain counts: what the token may not see, or an older server does not know, refuses nothing.

use agentmine_domain::ItemRef;
use futures::future::join;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, split_path};
use super::graphql::UPDATES;
use crate::error::TrackerError;
use crate::forge::shown;

/// The rules that refuse a push, and what each of them wants. Others are about what is pushed.
const RULES: [(&str, &str); 4] = [
    ("creation", "it restricts who may create the branch"),
    ("update", "it restricts who may push to the branch"),
    (
        "pull_request",
        "changes to the branch require a separate pull request",
    ),
    ("required_signatures", "commits must be signed"),
];

/// A rule that applies to a branch.
#[derive(Debug, Deserialize)]
struct Rule {
    #[serde(rename = "type")]
    kind: String,
    ruleset_id: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Ruleset {
    name: String,
    /// `always`, `exempt`, `pull_requests_only` or `never`.
    #[serde(default)]
    current_user_can_bypass: String,
}

impl Api {
    /// Why a push to the branch would be refused.
    pub(super) async fn push_objection(
        &self,
        item: &ItemRef,
        branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        let item = self.current(item).await?;
        let (updates, rules) =
            join(self.update_rule(&item, branch), self.rules(&item, branch)).await;
        let (exists, objection) = shown(updates)?.unwrap_or_default();
        if objection.is_some() {
            return Ok(objection);
        }
        for rule in shown(rules)?.unwrap_or_default() {
            let Some((kind, why)) = RULES.iter().find(|(kind, _)| *kind == rule.kind) else {
                continue;
            };
            let applies = !(exists && *kind == "creation");
            let Some(id) = rule.ruleset_id.filter(|_| applies) else {
                continue;
            };
            let Some(ruleset) = shown(self.ruleset(&item, id).await)? else {
                continue;
            };
            let passes = ["always", "exempt"].contains(&&*ruleset.current_user_can_bypass);
            if !passes {
                return Ok(Some(format!("of the ruleset {:?}: {why}", ruleset.name)));
            }
        }
        Ok(None)
    }

    /// Whether the branch exists, and what its protection says of our pushes.
    async fn update_rule(
        &self,
        item: &ItemRef,
        branch: &str,
    ) -> Result<(bool, Option<String>), TrackerError> {
        let (owner, name) = split_path(&item.repo_path)?;
        let variables =
            json!({ "owner": owner, "name": name, "branch": format!("refs/heads/{branch}") });
        let what = format!("the protection of {branch} in {}", item.repo_path);
        let answer: Value = self
            .ask_graphql((UPDATES, variables), Some(&item.repo_path), &what)
            .await?;
        let found = &answer["data"]["repository"]["ref"];
        let rule = &found["refUpdateRule"];
        let objection = (rule["viewerCanPush"] == false).then(|| {
            let pattern = rule["pattern"].as_str().unwrap_or(branch);
            format!("of the branch protection of `{pattern}`")
        });
        Ok((!found.is_null(), objection))
    }

    async fn rules(&self, item: &ItemRef, branch: &str) -> Result<Vec<Rule>, TrackerError> {
        let url = self.repo_url(&item.repo_path, &["rules", "branches", branch])?;
        let what = format!("the rules of {branch}");
        self.client.list(url, &what).await
    }

    async fn ruleset(&self, item: &ItemRef, id: u64) -> Result<Ruleset, TrackerError> {
        let url = self.repo_url(&item.repo_path, &["rulesets", &id.to_string()])?;
        let reply = self.client.get(url).await?;
        reply.ok(&format!("ruleset {id}"))?.json()
    }
}
