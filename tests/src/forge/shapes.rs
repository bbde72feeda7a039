//! JSON representations in the forge's answers.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::Inner;
use super::state::{CommentView, Issue, LabelEvent, Repo};

/// In whole seconds, as GitHub shows times: two changes may look like one.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

pub(super) fn user(login: &str) -> Value {
    let kind = if login.ends_with("[bot]") {
        "Bot"
    } else {
        "User"
    };
    json!({ "login": login, "id": login.len(), "type": kind })
}

pub(super) fn repo_json(inner: &Inner, repo: &Repo) -> Value {
    json!({
        "id": repo.id,
        "name": repo.full_name.rsplit('/').next(),
        "full_name": repo.full_name,
        "owner": user(repo.owner()),
        "private": !repo.public,
        "archived": repo.archived,
        "disabled": false,
        "has_issues": true,
        "default_branch": repo.default_branch,
        "html_url": inner.html(&repo.full_name),
        "url": inner.api(&format!("repos/{}", repo.full_name)),
        "clone_url": inner.html(&format!("{}.git", repo.full_name)),
    })
}

pub(super) fn labels_json(issue: &Issue) -> Vec<Value> {
    issue
        .labels
        .iter()
        .map(|name| json!({ "id": 1, "name": name, "color": "ededed" }))
        .collect()
}

pub(super) fn event_json(event: &LabelEvent) -> Value {
    json!({
        "id": event.id, "event": event.event, "actor": user(&event.actor),
        "label": { "name": event.label, "color": "ededed" }, "created_at": time(event.at),
    })
}

pub(super) fn comment_json(inner: &Inner, repo: &Repo, comment: &CommentView) -> Value {
    json!({
        "id": comment.id, "user": user(&comment.author), "body": comment.body,
        "created_at": time(comment.created_at), "updated_at": time(comment.updated_at),
        "html_url": inner.html(&format!("{}#comment-{}", repo.full_name, comment.id)),
    })
}

pub(super) fn issue_json(inner: &Inner, repo: &Repo, issue: &Issue) -> Value {
    let place = format!("{}/{}", repo.full_name, issue.number);
    let mut value = json!({
        "id": issue.id, "number": issue.number, "title": issue.title, "body": issue.body,
        "state": if issue.open { "open" } else { "closed" },
        "user": user(&issue.author),
        "labels": labels_json(issue),
        "assignees": issue.assignees.iter().map(|login| user(login)).collect::<Vec<_>>(),
        "locked": issue.locked, "comments": issue.comments.len(),
        "created_at": time(issue.created_at), "updated_at": time(issue.updated_at),
        "html_url": inner.html(&place),
        "repository_url": inner.api(&format!("repos/{}", repo.full_name)),
    });
    if issue.pull.is_some() {
        let url = inner.api(&format!("repos/{}/pulls/{}", repo.full_name, issue.number));
        value["pull_request"] = json!({ "url": url, "html_url": inner.html(&place) });
    }
    value
}
