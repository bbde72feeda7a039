//! GitLab's GraphQL, as far as the tracker asks it: the open merge requests of an account with their pipelines.

use serde_json::{Value, json};

use super::super::git;
use super::super::rest::{Answer, Ask};
use super::super::state::{Issue, Repo, State};
use super::pipelines;

/// What GitLab gives at most, whatever is asked for.
const PAGE: usize = 100;

/// A page of the merge requests of the token's user, or of the one who is named.
pub(super) fn authored(state: &State, ask: &Ask) -> Answer {
    let variables = &ask.body["variables"];
    let known = |login: &str| state.accounts.values().any(|it| it.login == login);
    let login = match variables["login"].as_str() {
        Some(login) if known(login) => login,
        Some(_) => return Answer::ok(json!({ "data": { "account": null } })),
        None => ask.account.login.as_str(),
    };
    let repos = state.repos.iter().filter(|repo| !repo.hidden);
    let all = repos.flat_map(|repo| repo.issues.iter().map(move |issue| (repo, issue)));
    let own: Vec<_> = all
        .filter(|(_, issue)| issue.pull.is_some() && issue.open && issue.author == login)
        .collect();
    let from = variables["after"].as_str().and_then(|it| it.parse().ok());
    let from: usize = from.unwrap_or_default();
    let to = own.len().min(from + PAGE);
    let nodes: Vec<Value> = own[from.min(to)..to]
        .iter()
        .map(|(repo, issue)| node(repo, issue))
        .collect();
    Answer::ok(json!({ "data": { "account": { "authoredMergeRequests": {
        "pageInfo": { "hasNextPage": to < own.len(), "endCursor": to.to_string() },
        "nodes": nodes,
    } } } }))
}

fn node(repo: &Repo, issue: &Issue) -> Value {
    let pull = issue.pull.as_ref();
    let head = pull.and_then(|pull| repo.sha(&pull.head));
    let merges = pull.is_none_or(|pull| git::can_merge(&repo.git_dir, &pull.head, &pull.base));
    let pipeline = pipelines::of_head(repo, issue).map(|pipeline| {
        let status = pipeline["status"].as_str().unwrap_or_default();
        json!({
            "id": format!("gid://gitlab/Ci::Pipeline/{}", pipeline["id"]),
            "status": status.to_uppercase(),
            "updatedAt": pipeline["updated_at"],
        })
    });
    json!({
        "iid": issue.iid.to_string(),
        "projectId": repo.id,
        "diffHeadSha": head,
        "conflicts": !merges,
        "mergeStatusEnum": if merges { "CAN_BE_MERGED" } else { "CANNOT_BE_MERGED" },
        "headPipeline": pipeline,
    })
}
