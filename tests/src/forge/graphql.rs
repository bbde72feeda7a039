//! GitHub's GraphQL, as far as the tracker asks it, and a record of what was asked.

use serde_json::{Value, json};

use super::apps::Grant;
use super::rest::{Answer, Ask};
use super::state::State;
use super::{Forge, Inner, gh, people, protection, threads};

/// One request to GraphQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedGraphql {
    /// The text.
    pub text: String,
    /// For the token of an App: the names of the repositories that it is for; `None` for all.
    pub repositories: Option<Vec<String>>,
}

impl Forge {
    /// What was asked of GraphQL, in order.
    pub fn graphql(&self) -> Vec<AskedGraphql> {
        self.inner.lock().graphql.clone()
    }
}

pub(super) fn dispatch(inner: &Inner, state: &mut State, ask: &Ask) -> Answer {
    let text = ask.text("query").unwrap_or_default();
    let grant = ask.account.grant.as_ref();
    state.graphql.push(AskedGraphql {
        text: text.to_owned(),
        repositories: grant.and_then(|grant| grant.repositories.clone()),
    });
    if grant.is_some_and(|grant| !sees(grant, &ask.body["variables"])) {
        let error = json!({ "type": "NOT_FOUND", "message": "Could not resolve to a Repository" });
        return Answer::ok(json!({ "data": { "repository": null }, "errors": [error] }));
    }
    if let Some(answer) = gh::dispatch(inner, state, ask) {
        return answer;
    }
    if text.contains("userContentEdits") {
        people::edits_json(state, ask)
    } else if text.contains("markPullRequestReadyForReview") {
        ready(state, ask)
    } else if text.contains("refUpdateRule") {
        protection::update_rule(state, ask)
    } else if text.contains("eviewThread") {
        threads::graphql(state, ask)
    } else {
        Answer::ok(json!({ "data": { "viewer": { "login": ask.account.login } } }))
    }
}

/// Whether the token of an App sees the repository that is requested, if one is.
fn sees(grant: &Grant, variables: &Value) -> bool {
    match (variables["owner"].as_str(), variables["name"].as_str()) {
        (Some(owner), Some(name)) => grant.covers(&format!("{owner}/{name}")),
        _ => true,
    }
}

/// Marks a draft as ready for review.
fn ready(state: &mut State, ask: &Ask) -> Answer {
    let id = ask.body["variables"]["pull"].as_str().unwrap_or_default();
    let number: Option<u64> = id.strip_prefix("PR_").and_then(|id| id.parse().ok());
    let mut issues = state.repos.iter_mut().flat_map(|repo| &mut repo.issues);
    let found = issues.find(|issue| Some(issue.id) == number);
    match found.and_then(|issue| issue.pull.as_mut()) {
        Some(pull) => {
            pull.draft = false;
            Answer::ok(json!({
                "data": { "markPullRequestReadyForReview": { "pullRequest": { "id": id, "isDraft": false } } }
            }))
        }
        None => {
            let message = format!("Could not resolve to a node with the global id of '{id}'");
            let error = json!({ "type": "NOT_FOUND", "message": message });
            Answer::ok(json!({ "data": Value::Null, "errors": [error] }))
        }
    }
}
