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
use crate::forge::{has_match, shown};

/// A rule that applies to a branch.
#[derive(Debug, Deserialize)]
struct Rule {
    #[serde(rename = "type")]
    kind: String,
    ruleset_id: Option<u64>,
    /// Each kind of rule has its own.
    #[serde(default)]
    parameters: Value,
}

/// Whether the branch is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existence {
    New,
    Exists,
}

impl Rule {
    /// What it wants, if it refuses every push of commits that are new to the repository. Other rules are about what is pushed.
    fn objection(&self, branch: &str, existence: Existence) -> Option<String> {
        let is_new = existence == Existence::New;
        let wants = match self.kind.as_str() {
            "creation" if is_new => "it restricts who may create the branch",
            "update" => "it restricts who may push to the branch",
            "pull_request" => "changes to the branch require a separate pull request",
            "required_signatures" => "commits must be signed",
            "required_status_checks"
                if self.parameters["required_status_checks"] != json!([])
                    && (!is_new || self.parameters["do_not_enforce_on_create"] != true) =>
            {
                "checks must have passed elsewhere before a commit is pushed to the branch"
            }
            "branch_name_pattern" if is_new => return self.name_objection(branch),
            _ => return None,
        };
        Some(wants.to_owned())
    }

    /// What it wants of the name of a new branch.
    fn name_objection(&self, branch: &str) -> Option<String> {
        let pattern = self.parameters["pattern"].as_str()?;
        let operator = self.parameters["operator"].as_str()?;
        let is_negated = self.parameters["negate"] == true;
        // GitHub does not document whether it compares the name or the whole ref. A rule counts if it refuses both.
        let refuses = |name: &str| Some(fits(name, operator, pattern)? == is_negated);
        let is_refused = refuses(branch)? && refuses(&format!("refs/heads/{branch}"))?;
        let (not, operator) = (
            if is_negated { "not " } else { "" },
            operator.replace('_', " "),
        );
        is_refused.then(|| {
            format!(
                "it does not allow this name for a new branch (expected: {not}{operator} `{pattern:.200}`; `agent.branch_pattern` names AgentMine's branches)"
            )
        })
    }
}

/// Whether a name is as a rule for names describes it; `None` if that is not known.
fn fits(name: &str, operator: &str, pattern: &str) -> Option<bool> {
    match operator {
        "starts_with" => Some(name.starts_with(pattern)),
        "ends_with" => Some(name.ends_with(pattern)),
        "contains" => Some(name.contains(pattern)),
        "regex" => has_match(pattern, name),
        _ => None,
    }
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
        let existence = match exists {
            true => Existence::Exists,
            false => Existence::New,
        };
        for rule in shown(rules)?.unwrap_or_default() {
            let objection = rule.objection(branch, existence);
            let Some((why, id)) = objection.zip(rule.ruleset_id) else {
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

#[cfg(test)]
mod tests {
    use super::*;

    const BRANCH: &str = "agentmine/issue-7";

    fn rule(kind: &str, parameters: Value) -> Rule {
        serde_json::from_value(json!({ "type": kind, "ruleset_id": 1, "parameters": parameters }))
            .unwrap()
    }

    fn named(operator: &str, pattern: &str, negate: Value) -> Option<String> {
        let parameters = json!({ "operator": operator, "pattern": pattern, "negate": negate });
        rule("branch_name_pattern", parameters).objection(BRANCH, Existence::New)
    }

    #[test]
    fn a_rule_for_the_names_of_new_branches_is_an_objection_if_it_is_violated() {
        for (operator, pattern) in [
            ("starts_with", "feature/"),
            ("ends_with", "-8"),
            ("contains", "JIRA-"),
            ("regex", r"^(feature|fix)/.+$"),
        ] {
            let objection = named(operator, pattern, json!(false)).unwrap();
            assert!(objection.contains(pattern), "{objection}");
            assert_eq!(named(operator, pattern, json!(true)), None);
        }
        for (operator, pattern) in [
            ("starts_with", "agentmine/"),
            ("starts_with", "refs/heads/agentmine/"),
            ("ends_with", "-7"),
            ("contains", "issue"),
            ("regex", r"^agentmine/issue-\d+$"),
        ] {
            assert_eq!(named(operator, pattern, Value::Null), None, "{pattern}");
        }
        assert!(named("contains", "issue", json!(true)).is_some());
        // What cannot be read refuses nothing.
        assert_eq!(named("regex", "(", json!(false)), None);
        assert_eq!(named("glob", "feature/*", json!(false)), None);
        let rule = rule(
            "branch_name_pattern",
            json!({ "operator": "contains", "pattern": "x" }),
        );
        assert!(rule.objection(BRANCH, Existence::New).is_some());
        assert_eq!(rule.objection(BRANCH, Existence::Exists), None);
    }

    #[test]
    fn required_checks_refuse_the_push_of_commits_that_have_none() {
        let checks = |on_create: Value| {
            let parameters = json!({ "do_not_enforce_on_create": on_create });
            let rule = rule("required_status_checks", parameters);
            [Existence::New, Existence::Exists].map(|it| rule.objection(BRANCH, it).is_some())
        };
        assert_eq!(checks(json!(false)), [true, true]);
        assert_eq!(checks(Value::Null), [true, true]);
        assert_eq!(checks(json!(true)), [false, true]);
        let others = ["non_fast_forward", "required_linear_history", "deletion"];
        for kind in others {
            let rule = rule(kind, Value::Null);
            assert_eq!(rule.objection(BRANCH, Existence::Exists), None, "{kind}");
        }
        assert_eq!(
            rule("creation", Value::Null).objection(BRANCH, Existence::Exists),
            None
        );
    }
}
