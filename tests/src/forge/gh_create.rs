//! What `gh issue create` and `gh pr create` ask of GraphQL.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::state::{Pull, Repo, State};
use super::{Inner, git};

static LABEL: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the pattern is a constant")]
    Regex::new(r#"(\w+): label\(name:"([^"]*)"\)"#).expect("it is valid")
});
const UNKNOWN: &str = "Could not resolve to a Repository";

/// The fields of a repository that `gh` may ask for.
pub(super) fn repo_fields(repo: &Repo) -> Map<String, Value> {
    let name = repo.full_name.rsplit('/').next();
    let fields = [
        ("id", json!(format!("R_{}", repo.id))),
        ("name", json!(name)),
        ("owner", json!({ "login": repo.owner() })),
        ("description", json!("")),
        ("hasIssuesEnabled", true.into()),
        ("hasWikiEnabled", false.into()),
        ("viewerPermission", "WRITE".into()),
        ("defaultBranchRef", json!({ "name": repo.default_branch })),
        ("parent", Value::Null),
        ("mergeCommitAllowed", true.into()),
        ("rebaseMergeAllowed", true.into()),
        ("squashMergeAllowed", true.into()),
    ];
    fields
        .into_iter()
        .map(|(field, value)| (field.to_owned(), value))
        .collect()
}

pub(super) fn repository(state: &State, variables: &Value) -> Result<Value, String> {
    let part = |key: &str| variables[key].as_str().unwrap_or_default();
    let repo = state.repo(&format!("{}/{}", part("owner"), part("name")));
    Ok(json!({ "repository": repo_fields(repo.ok_or(UNKNOWN)?) }))
}

/// The ids of the labels that a text names, each under its own name.
pub(super) fn labels(text: &str) -> Value {
    let label = |found: regex::Captures<'_>| {
        let name = &found[2];
        let label = json!({ "id": format!("LA_{name}"), "name": name });
        (found[1].to_owned(), label)
    };
    let labels: Map<String, Value> = LABEL.captures_iter(text).map(label).collect();
    json!({ "repository": labels })
}

pub(super) fn issue(
    inner: &Inner,
    state: &mut State,
    variables: &Value,
    login: &str,
) -> Result<Value, String> {
    let input = &variables["input"];
    let name = of_id(state, input)?.full_name.clone();
    let number = state.add_issue(&name, login, text(input), &label_names(input), None);
    let made = shown(inner, state, &name, number.ok_or(UNKNOWN)?, "I");
    Ok(json!({ "createIssue": { "issue": made? } }))
}

pub(super) fn pull(
    inner: &Inner,
    state: &mut State,
    variables: &Value,
    login: &str,
) -> Result<Value, String> {
    let input = &variables["input"];
    let branch = |key: &str| input[key].as_str().unwrap_or_default();
    let (head, base) = (branch("headRefName"), branch("baseRefName"));
    let repo = of_id(state, input)?;
    let name = repo.full_name.clone();
    let range = format!("refs/heads/{base}..refs/heads/{head}");
    let ahead = git::try_out(&repo.git_dir, &["rev-list", "--count", &range]);
    if ahead.is_none_or(|count| count.trim() == "0") {
        return Err(format!("No commits between {base} and {head}"));
    }
    let pull = Pull::new(head, base, input["draft"] == true);
    let number = state.add_issue(&name, login, text(input), &[], Some(pull));
    let made = shown(inner, state, &name, number.ok_or(UNKNOWN)?, "PR");
    Ok(json!({ "createPullRequest": { "pullRequest": made? } }))
}

/// Sets what `gh` sets after a pull request was created.
pub(super) fn update(state: &mut State, variables: &Value, login: &str) -> Result<Value, String> {
    let input = &variables["input"];
    let id = input["pullRequestId"].as_str().unwrap_or_default();
    let id: Option<u64> = id.strip_prefix("PR_").and_then(|id| id.parse().ok());
    let found = state.repos.iter().find_map(|repo| {
        let issue = repo.issues.iter().find(|it| Some(it.id) == id)?;
        Some((repo.full_name.clone(), issue.number))
    });
    let (name, number) = found.ok_or("Could not resolve to a PullRequest")?;
    for label in label_names(input) {
        state.label(&name, number, &label, login, true);
    }
    Ok(json!({ "updatePullRequest": { "clientMutationId": null } }))
}

fn of_id<'s>(state: &'s State, input: &Value) -> Result<&'s Repo, String> {
    let id = input["repositoryId"].as_str().unwrap_or_default();
    let mut repos = state.repos.iter();
    let repo = repos.find(|repo| format!("R_{}", repo.id) == id);
    repo.ok_or_else(|| UNKNOWN.to_owned())
}

fn text(input: &Value) -> (&str, &str) {
    let part = |key: &str| input[key].as_str().unwrap_or_default();
    (part("title"), part("body"))
}

fn label_names(input: &Value) -> Vec<String> {
    let ids = input["labelIds"].as_array().into_iter().flatten();
    let names = ids.filter_map(|id| id.as_str()?.strip_prefix("LA_"));
    names.map(str::to_owned).collect()
}

fn shown(
    inner: &Inner,
    state: &State,
    name: &str,
    number: u64,
    kind: &str,
) -> Result<Value, String> {
    let issue = state.repo(name).and_then(|repo| repo.issue(number));
    let id = issue.ok_or(UNKNOWN)?.id;
    let url = inner.html(&format!("{name}/{number}"));
    Ok(json!({ "id": format!("{kind}_{id}"), "url": url }))
}
