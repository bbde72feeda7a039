//! GitHub's GraphQL as its command line, `gh`, asks it.

use serde_json::{Map, Value, json};

use super::rest::{Answer, Ask};
use super::search;
use super::selection::{Operation, Selected};
use super::shapes::time;
use super::state::{CommentView, Issue, Pull, Repo, ReviewOf, State};
use super::{Inner, checks, gh_create, git};

/// The answer to an operation of `gh`; `None` if it is none.
pub(super) fn dispatch(inner: &Inner, state: &mut State, ask: &Ask) -> Option<Answer> {
    let text = ask.text("query")?;
    let operation = Operation::read(text)?;
    let (variables, login) = (&ask.body["variables"], &ask.account.login);
    let all = match operation.name.as_str() {
        "Issue_fields" | "PullRequest_fields" | "PullRequest_fields2" => {
            return Some(data(types(&operation)));
        }
        "IssueList"
        | "IssueSearch"
        | "IssueByNumber"
        | "PullRequestList"
        | "PullRequestForBranch"
        | "PullRequestByNumber" => read(inner, state, variables)?,
        "CommentsForIssue" | "CommentsForPullRequest" => node(inner, state, variables),
        "PullRequestMerge" => merged(state, variables),
        "CommentCreate" => commented(inner, state, variables, login),
        "IssueClose" => closed(state, variables),
        "RepositoryInfo" => gh_create::repository(state, variables),
        // One field for each label, with its name as an argument.
        "RepositoryResolveMetadataIDs" => return Some(data(gh_create::labels(text))),
        "IssueCreate" => gh_create::issue(inner, state, variables, login),
        "PullRequestCreate" => gh_create::pull(inner, state, variables, login),
        "PullRequestCreateMetadata" => gh_create::update(state, variables, login),
        _ => return None,
    };
    Some(match all.and_then(|all| operation.of(&all)) {
        Ok(shown) => data(shown),
        Err(message) => Answer::ok(json!({ "data": null, "errors": [{ "message": message }] })),
    })
}

fn data(data: Value) -> Answer {
    Answer::ok(json!({ "data": data }))
}

/// Which fields types have: `gh` asks for those that its servers may lack.
fn types(operation: &Operation) -> Value {
    let mut out = Map::new();
    for field in &operation.fields {
        let Selected::Field { shown, .. } = field else {
            continue;
        };
        let names: &[&str] = match shown.as_str() {
            "Issue" => &["number", "title", "state", "stateReason"],
            "PullRequest" => &["number", "title", "state"],
            "StatusCheckRollupContextConnection" => &["nodes", "pageInfo"],
            _ => &[],
        };
        let names: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        out.insert(shown.clone(), json!({ "fields": names }));
    }
    Value::Object(out)
}

/// All that may be read with these variables; `None` if they name no repository.
fn read(inner: &Inner, state: &State, variables: &Value) -> Option<Result<Value, String>> {
    let text = |key: &str| variables[key].as_str().unwrap_or_default();
    let repo = state.repo(&format!("{}/{}", text("owner"), text("repo")))?;
    let states = variables["states"]
        .as_array()
        .or(variables["state"].as_array());
    let fits = |issue: &&Issue| {
        let is_it = |one: &Value| one.as_str() == Some(state_of(issue));
        states.is_none_or(|all| all.iter().any(is_it))
    };
    let on_branch = |issue: &&Issue, key: &str, name: fn(&Pull) -> &str| {
        let wanted = variables[key].as_str();
        wanted.is_none_or(|wanted| issue.pull.as_ref().is_some_and(|it| name(it) == wanted))
    };
    let newest = || repo.issues.iter().rev();
    let issues = newest().filter(|it| it.pull.is_none()).filter(fits);
    let pulls = newest().filter(|it| it.pull.is_some()).filter(fits);
    let pulls = pulls
        .filter(|it| on_branch(it, "headBranch", |pull| &pull.head))
        .filter(|it| on_branch(it, "headRefName", |pull| &pull.head))
        .filter(|it| on_branch(it, "baseBranch", |pull| &pull.base));
    let words = search::words(text("query"));
    let found = newest().filter(|issue| words.iter().all(|it| search::fits(repo, issue, it)));
    let number = variables["number"]
        .as_u64()
        .or(variables["pr_number"].as_u64());
    let one = number.and_then(|number| repo.issue(number));
    if let (Some(number), None) = (number, one) {
        let message =
            format!("Could not resolve to an issue or pull request with the number of {number}.");
        return Some(Err(message));
    }
    let shown = |issue: &Issue| item(inner, repo, issue);
    let page = |all: Vec<Value>| page(all, variables);
    let lists = [
        ("issues", page(issues.map(shown).collect())),
        ("pullRequests", page(pulls.map(shown).collect())),
        ("issueOrPullRequest", one.map(shown).into()),
        (
            "pullRequest",
            one.filter(|it| it.pull.is_some()).map(shown).into(),
        ),
    ];
    let mut fields = gh_create::repo_fields(repo);
    fields.extend(lists.map(|(field, value)| (field.to_owned(), value)));
    Some(Ok(json!({
        "repository": fields,
        "search": page(found.map(shown).collect()),
    })))
}

/// A list with all that is on this page.
fn page(all: Vec<Value>, variables: &Value) -> Value {
    let total = all.len();
    let after = variables["endCursor"]
        .as_str()
        .or(variables["after"].as_str());
    let from: usize = after.and_then(|it| it.parse().ok()).unwrap_or(0);
    let limit = variables["limit"].as_u64().unwrap_or(100) as usize;
    let until = total.min(from + limit);
    let nodes = all.get(from..until).unwrap_or_default();
    json!({
        "totalCount": total, "issueCount": total, "nodes": nodes,
        "pageInfo": { "hasNextPage": until < total, "endCursor": until.to_string() },
    })
}

fn list(nodes: Vec<Value>) -> Value {
    page(nodes, &Value::Null)
}

fn user(login: &str) -> Value {
    json!({ "__typename": "User", "id": format!("U_{login}"), "login": login, "name": login })
}

fn state_of(issue: &Issue) -> &'static str {
    match (issue.open, &issue.pull) {
        (true, _) => "OPEN",
        (false, Some(pull)) if pull.merged => "MERGED",
        (false, _) => "CLOSED",
    }
}

/// An issue or pull request with all that `gh` may ask for.
fn item(inner: &Inner, repo: &Repo, issue: &Issue) -> Value {
    let labels = issue.labels.iter().map(|name| {
        json!({ "id": format!("LA_{name}"), "name": name, "description": null, "color": "ededed" })
    });
    let comments = issue.comments.iter();
    let comments = comments.map(|it| comment(inner, repo, issue, it));
    let mut value = json!({
        "__typename": "Issue", "id": format!("I_{}", issue.id), "number": issue.number,
        "url": inner.html(&format!("{}/{}", repo.full_name, issue.number)),
        "state": state_of(issue), "stateReason": null,
        "title": issue.title, "body": issue.body, "author": user(&issue.author),
        "createdAt": time(issue.created_at), "updatedAt": time(issue.updated_at),
        "milestone": null, "projectCards": list(Vec::new()), "reactionGroups": [],
        "assignees": list(issue.assignees.iter().map(|login| user(login)).collect()),
        "labels": list(labels.collect()), "comments": list(comments.collect()),
    });
    if let (Some(pull), Some(all)) = (&issue.pull, value.as_object_mut())
        && let Value::Object(more) = of_pull(repo, issue, pull)
    {
        all.extend(more);
    }
    value
}

fn comment(inner: &Inner, repo: &Repo, issue: &Issue, comment: &CommentView) -> Value {
    let place = format!(
        "{}/{}#issuecomment-{}",
        repo.full_name, issue.number, comment.id
    );
    json!({
        "id": format!("IC_{}", comment.id), "author": user(&comment.author),
        "authorAssociation": "MEMBER", "body": comment.body, "createdAt": time(comment.created_at),
        "includesCreatedEdit": comment.edits > 0, "isMinimized": false, "minimizedReason": null,
        "reactionGroups": [], "url": inner.html(&place), "viewerDidAuthor": false,
    })
}

fn of_pull(repo: &Repo, issue: &Issue, pull: &Pull) -> Value {
    let head = repo.sha(&pull.head);
    let mergeable = issue.open && git::can_merge(&repo.git_dir, &pull.head, &pull.base);
    let contexts = checks::of(repo, &pull.head).into_iter();
    let contexts: Vec<Value> = contexts.map(|check| check.of_rollup()).collect();
    let rollup = (!contexts.is_empty()).then(|| json!({ "contexts": list(contexts) }));
    let commit = json!({ "commit": { "oid": head, "statusCheckRollup": rollup } });
    let reviews = pull.reviews.iter().filter_map(|review| match &review.of {
        ReviewOf::Verdict(verdict) => Some(json!({
            "id": format!("PRR_{}", review.id), "author": user(&review.author),
            "authorAssociation": "MEMBER", "submittedAt": time(review.at), "body": review.body,
            "state": verdict, "commit": { "oid": head }, "reactionGroups": [],
        })),
        ReviewOf::Line(..) => None,
    });
    let name = repo.full_name.rsplit('/').next().unwrap_or_default();
    json!({
        "__typename": "PullRequest", "id": format!("PR_{}", issue.id),
        "headRefName": pull.head, "baseRefName": pull.base, "headRefOid": head,
        "headRepositoryOwner": user(repo.owner()),
        "headRepository": { "id": format!("R_{}", repo.id), "name": name },
        "isCrossRepository": false, "isDraft": pull.draft, "maintainerCanModify": false,
        "mergeable": if mergeable { "MERGEABLE" } else { "CONFLICTING" },
        "mergeStateStatus": if mergeable { "CLEAN" } else { "DIRTY" },
        "autoMergeRequest": null, "additions": 0, "deletions": 0,
        "commits": list(vec![commit]), "reviewRequests": list(Vec::new()),
        "reviews": list(reviews.collect()),
    })
}

/// The item whose id is in the input.
fn named<'s>(state: &'s mut State, input: &Value, key: &str) -> Option<(&'s mut Repo, usize)> {
    let id: u64 = input[key].as_str()?.split_once('_')?.1.parse().ok()?;
    state.repos.iter_mut().find_map(|repo| {
        let at = repo
            .issues
            .iter()
            .position(|issue: &Issue| issue.id == id)?;
        Some((repo, at))
    })
}

const UNKNOWN: &str = "Could not resolve to a node with the global id";

fn node(inner: &Inner, state: &mut State, variables: &Value) -> Result<Value, String> {
    let (repo, at) = named(state, variables, "id").ok_or(UNKNOWN)?;
    let issue = &repo.issues[at];
    Ok(json!({ "node": item(inner, repo, issue) }))
}

fn merged(state: &mut State, variables: &Value) -> Result<Value, String> {
    let found = named(state, &variables["input"], "pullRequestId");
    let (repo, at) = found.ok_or(UNKNOWN)?;
    let head = repo.issues[at].pull.as_ref();
    let head = head.and_then(|pull| repo.sha(&pull.head));
    let issue = &mut repo.issues[at];
    let pull = issue.pull.as_mut().ok_or(UNKNOWN)?;
    if pull.draft || !issue.open || !git::merge(&repo.git_dir, &pull.head, &pull.base) {
        return Err("Pull Request is not mergeable".to_owned());
    }
    pull.merge(head);
    issue.open = false;
    issue.updated_at = chrono::Utc::now();
    Ok(json!({ "mergePullRequest": { "clientMutationId": null } }))
}

fn closed(state: &mut State, variables: &Value) -> Result<Value, String> {
    let found = named(state, &variables["input"], "issueId");
    let (repo, at) = found.ok_or(UNKNOWN)?;
    let issue = &mut repo.issues[at];
    issue.open = false;
    issue.updated_at = chrono::Utc::now();
    Ok(json!({ "closeIssue": { "issue": { "id": format!("I_{}", issue.id) } } }))
}

fn commented(
    inner: &Inner,
    state: &mut State,
    variables: &Value,
    login: &str,
) -> Result<Value, String> {
    let input = &variables["input"];
    let (repo, at) = named(state, input, "subjectId").ok_or(UNKNOWN)?;
    let (name, number) = (repo.full_name.clone(), repo.issues[at].number);
    let body = input["body"].as_str().unwrap_or_default();
    let written = state.comment(&name, number, login, body).ok_or(UNKNOWN)?;
    let url = inner.html(&format!("{name}/{number}#issuecomment-{}", written.id));
    Ok(json!({ "addComment": { "commentEdge": { "node": { "url": url } } } }))
}
