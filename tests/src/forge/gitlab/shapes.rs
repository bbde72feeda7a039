//! JSON representations in GitLab's answers.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::super::people::EditView;
use super::super::state::{CommentView, Issue, LabelEvent, Repo, ReviewOf, ReviewView};
use super::super::{Inner, git};

/// In milliseconds, as GitLab shows times.
fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The id of a user, which GitLab's clients compare.
pub(in super::super) fn user_id(login: &str) -> u64 {
    let mix = |id: u64, byte: u8| (id * 31 + u64::from(byte)) % 1_000_003;
    login.bytes().fold(7, mix)
}

pub(super) fn user(login: &str) -> Value {
    json!({
        "id": user_id(login), "username": login, "name": login, "state": "active", "locked": false,
        "avatar_url": null, "bot": is_of_token(login),
    })
}

/// Whether it is the account of a project's or group's access token.
fn is_of_token(login: &str) -> bool {
    let begins = login.starts_with("project_") || login.starts_with("group_");
    begins && login.contains("_bot")
}

pub(super) fn project(inner: &Inner, repo: &Repo) -> Value {
    let (namespace, name) = repo.full_name.rsplit_once('/').unwrap_or_default();
    json!({
        "id": repo.id, "name": name, "path": name, "path_with_namespace": repo.full_name,
        "default_branch": repo.default_branch, "visibility": if repo.public { "public" } else { "private" }, "archived": repo.archived,
        "namespace": { "id": 1, "full_path": namespace, "kind": "group" },
        "web_url": inner.html(&repo.full_name),
        "http_url_to_repo": inner.html(&format!("{}.git", repo.full_name)),
        "ssh_url_to_repo": format!("git@forge.invalid:{}.git", repo.full_name),
        "issues_enabled": true, "merge_requests_enabled": true,
        "permissions": { "project_access": { "access_level": 30 }, "group_access": null },
    })
}

pub(super) fn labels(repo: &Repo) -> Vec<Value> {
    let mut names: Vec<&String> = repo.issues.iter().flat_map(|issue| &issue.labels).collect();
    names.sort();
    names.dedup();
    let label = |(at, name)| json!({ "id": at, "name": name, "color": "#ededed" });
    names.into_iter().enumerate().map(label).collect()
}

fn state_of(issue: &Issue) -> &'static str {
    match (issue.open, &issue.pull) {
        (true, _) => "opened",
        (false, Some(pull)) if pull.merged => "merged",
        (false, _) => "closed",
    }
}

/// An issue or a merge request.
pub(super) fn item(inner: &Inner, repo: &Repo, issue: &Issue) -> Value {
    let (mark, list) = match issue.pull {
        Some(_) => ('!', "merge_requests"),
        None => ('#', "issues"),
    };
    let users = |logins: &[String]| logins.iter().map(|login| user(login)).collect::<Vec<_>>();
    let short = format!("{mark}{}", issue.iid);
    let mut value = json!({
        "id": issue.id, "iid": issue.iid, "project_id": repo.id, "title": issue.title,
        "description": issue.body, "state": state_of(issue), "labels": issue.labels,
        "author": user(&issue.author), "assignees": users(&issue.assignees),
        "assignee": issue.assignees.first().map(|login| user(login)),
        "created_at": time(issue.created_at), "updated_at": time(issue.updated_at),
        "closed_at": (!issue.open).then(|| time(issue.updated_at)), "closed_by": (!issue.open).then(|| user(&issue.author)),
        "user_notes_count": issue.comments.len(), "milestone": null, "due_date": null, "upvotes": 0, "downvotes": 0,
        "time_stats": {
            "time_estimate": 0, "total_time_spent": 0, "human_time_estimate": null, "human_total_time_spent": null,
        },
        "discussion_locked": issue.locked.then_some(true),
        "web_url": inner.html(&format!("{}/-/{list}/{}", repo.full_name, issue.iid)),
        "references": { "short": short, "relative": short, "full": format!("{}{short}", repo.full_name) },
    });
    match &issue.pull {
        None => {
            value["type"] = "ISSUE".into();
            value["issue_type"] = "issue".into();
            value["confidential"] = issue.confidential.into();
            value["moved_to_id"] = issue.moved.as_ref().map(|(_, number)| *number).into();
        }
        Some(pull) => {
            let there = repo.sha(&pull.head);
            let is_missing = there.is_none();
            let now = || there.or_else(|| git::removed_sha(&repo.git_dir, &pull.head));
            let sha = pull.shown_head.clone().or_else(now);
            let sides = json!({
                "source_branch": pull.head, "target_branch": pull.base,
                "source_project_id": repo.id, "target_project_id": repo.id,
                "draft": pull.draft, "work_in_progress": pull.draft, "sha": sha,
                "merge_status": "can_be_merged", "detailed_merge_status": "mergeable",
                "reviewers": [], "has_conflicts": is_missing, "user": { "can_merge": true },
            });
            let more = sides.as_object().cloned().unwrap_or_default();
            value
                .as_object_mut()
                .into_iter()
                .for_each(|value| value.extend(more.clone()));
        }
    }
    value
}

pub(super) fn label_event(issue: &Issue, event: &LabelEvent) -> Value {
    json!({
        "id": event.id, "user": user(&event.actor), "created_at": time(event.at),
        "resource_type": if issue.pull.is_some() { "MergeRequest" } else { "Issue" },
        "resource_id": issue.id,
        "label": { "id": 1, "name": event.label, "color": "#ededed", "description": null },
        "action": if event.event == "labeled" { "add" } else { "remove" },
    })
}

pub(in crate::forge) fn note(issue: &Issue, comment: &CommentView) -> Value {
    json!({
        "id": comment.id, "type": null, "body": comment.body, "author": user(&comment.author),
        "created_at": time(comment.created_at), "updated_at": time(comment.updated_at),
        "system": false, "internal": comment.internal, "confidential": comment.internal,
        "noteable_id": issue.id, "noteable_iid": issue.iid,
        "noteable_type": if issue.pull.is_some() { "MergeRequest" } else { "Issue" },
        "resolvable": false, "commands_changes": {},
    })
}

/// What GitLab itself notes about a label.
pub(super) fn system_note(issue: &Issue, event: &LabelEvent) -> Value {
    let verb = if event.event == "labeled" {
        "added"
    } else {
        "removed"
    };
    let comment = CommentView {
        id: event.id,
        author: event.actor.clone(),
        body: format!("{verb} ~\"{}\" label", event.label),
        edits: 0,
        created_at: event.at,
        updated_at: event.at,
        internal: false,
    };
    let mut value = note(issue, &comment);
    value["system"] = true.into();
    value
}

/// What GitLab itself notes about an edit.
pub(super) fn edit_note(issue: &Issue, edit: &EditView) -> Value {
    let comment = CommentView {
        id: edit.id,
        author: edit.by.clone(),
        body: edit.note.clone(),
        edits: 0,
        created_at: edit.at,
        updated_at: edit.at,
        internal: false,
    };
    let mut value = note(issue, &comment);
    value["system"] = true.into();
    value
}

/// What GitLab itself notes of a reviewer who asks for changes, or approves.
pub(super) fn verdict(issue: &Issue, review: &ReviewView) -> Option<Value> {
    let ReviewOf::Verdict(verdict) = &review.of else {
        return None;
    };
    let body = match verdict.as_str() {
        "CHANGES_REQUESTED" => "requested changes",
        "APPROVED" => "approved this merge request",
        _ => return None,
    };
    let comment = CommentView {
        id: review.id + 1_000_000,
        author: review.author.clone(),
        body: body.to_owned(),
        edits: 0,
        created_at: review.at,
        updated_at: review.at,
        internal: false,
    };
    let mut value = note(issue, &comment);
    value["system"] = true.into();
    Some(value)
}

/// A review, or a comment on a line of the diff.
pub(in crate::forge) fn review(issue: &Issue, review: &ReviewView) -> Value {
    let comment = CommentView {
        id: review.id,
        author: review.author.clone(),
        body: review.body.clone(),
        edits: 0,
        created_at: review.at,
        updated_at: review.at,
        internal: false,
    };
    let mut value = note(issue, &comment);
    if let ReviewOf::Line(path, line) = &review.of {
        value["type"] = "DiffNote".into();
        value["resolvable"] = true.into();
        let root = review.in_reply_to.unwrap_or(review.id);
        let resolved = issue
            .pull
            .as_ref()
            .map(|pull| pull.resolved.contains(&root));
        value["resolved"] = resolved.unwrap_or(false).into();
        value["position"] = json!({
            "position_type": "text", "old_path": path, "new_path": path, "old_line": null, "new_line": line,
        });
    }
    value
}
