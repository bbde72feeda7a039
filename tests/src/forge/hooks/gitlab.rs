//! GitLab's deliveries. There is no schema of them: the shapes are those of its documentation ("Webhook events", in
//! `doc/user/project/integrations/webhook_events.md` of GitLab's repository), whose fields a test looks for.
//!
//! As there, what one request changes in an item's texts, labels, assignees and flags is one `update`; notes that GitLab writes
//! itself, removed notes, and a reviewer who asks for changes without a text, cause no delivery at all.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::super::checks::{CheckView, InvalidPipeline};
use super::super::gitlab::{pipelines, user_id};
use super::super::state::{CommentView, Issue, Pull, Repo, ReviewOf, ReviewView, State};
use super::super::{Inner, git};
use super::changes::{Checked, Event, ItemNews, News, What};

/// What is sent for these news: the value of `X-Gitlab-Event` and the body of each delivery, in order.
pub(super) fn bodies(inner: &Inner, state: &State, news: &News) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for item in &news.items {
        let repo = state.repo(&item.repo);
        let Some((repo, issue)) = repo.and_then(|repo| Some((repo, repo.issue(item.number)?)))
        else {
            continue;
        };
        let of = Of { inner, repo };
        all.extend(of.actions(item, issue));
        let notes = item.events.iter();
        all.extend(notes.filter_map(|event| of.note_of(issue, event)));
    }
    for (name, checked) in &news.checks {
        if let Some(repo) = state.repo(name) {
            all.extend(Of { inner, repo }.checked(checked));
        }
    }
    all
}

/// The project that deliveries are about.
#[derive(Clone, Copy)]
struct Of<'a> {
    inner: &'a Inner,
    repo: &'a Repo,
}

/// A note, whatever was written.
struct Note<'n> {
    id: u64,
    author: &'n str,
    text: &'n str,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    is_internal: bool,
    /// The file and line of a diff.
    line: Option<(&'n str, u64)>,
    /// The first note of its thread.
    root: u64,
    action: &'static str,
}

fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn user(login: &str) -> Value {
    json!({
        "id": user_id(login), "name": login, "username": login, "avatar_url": null, "email": "[REDACTED]",
    })
}

fn extended(mut value: Value, more: Value) -> Value {
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

fn state_of(issue: &Issue) -> (&'static str, u8) {
    match (issue.open, &issue.pull) {
        (true, _) => ("opened", 1),
        (false, Some(pull)) if pull.merged => ("merged", 3),
        (false, _) => ("closed", 2),
    }
}

/// Whether it is a part of an `update`.
fn is_update(what: &What) -> bool {
    matches!(
        what,
        What::Edited { .. }
            | What::Labeled(_)
            | What::Assigned(_)
            | What::Unassigned(_)
            | What::Locked(_)
            | What::Confidential
            | What::Draft(_)
            | What::Pushed(..)
    )
}

/// The action of an event of an item that is none of an `update`.
fn action_of(issue: &Issue, what: &What) -> Option<&'static str> {
    let is_merged = issue.pull.as_ref().is_some_and(|pull| pull.merged);
    match what {
        What::Closed if is_merged => Some("merge"),
        What::Closed => Some("close"),
        What::Reopened => Some("reopen"),
        What::Reviewed(review) => match &review.of {
            ReviewOf::Verdict(verdict) if verdict == "APPROVED" => Some("approved"),
            ReviewOf::Verdict(_) | ReviewOf::Line(..) => None,
        },
        _ => None,
    }
}

impl Of<'_> {
    fn html(&self, rest: &str) -> String {
        self.inner.html(&self.repo.full_name) + rest
    }

    /// The project as it is in all deliveries.
    fn project(&self) -> Value {
        let (namespace, name) = self.repo.full_name.rsplit_once('/').unwrap_or_default();
        json!({
            "id": self.repo.id, "name": name, "description": "", "web_url": self.html(""), "avatar_url": null,
            "git_ssh_url": format!("git@forge.invalid:{}.git", self.repo.full_name), "git_http_url": self.html(".git"),
            "namespace": namespace, "visibility_level": if self.repo.public { 20 } else { 0 },
            "path_with_namespace": self.repo.full_name, "default_branch": self.repo.default_branch,
            "ci_config_path": "",
        })
    }

    /// The same with names from older versions.
    fn old_project(&self) -> Value {
        let ssh = format!("git@forge.invalid:{}.git", self.repo.full_name);
        let older = json!({
            "homepage": self.html(""), "url": ssh, "ssh_url": ssh, "http_url": self.html(".git"),
        });
        extended(self.project(), older)
    }

    fn repository(&self) -> Value {
        json!({
            "name": self.repo.full_name.rsplit('/').next(), "url": self.html(".git"), "description": "",
            "homepage": self.html(""),
        })
    }

    fn labels(&self, names: &[String]) -> Value {
        let label = |name: &String| {
            json!({
                "id": user_id(name), "title": name, "color": "#ededed", "project_id": self.repo.id,
                "created_at": "2026-01-01 00:00:00 UTC", "updated_at": "2026-01-01 00:00:00 UTC", "template": false,
                "description": null, "type": "ProjectLabel", "group_id": null,
            })
        };
        names.iter().map(label).collect()
    }

    /// The item as the attributes of a delivery.
    fn attributes(&self, issue: &Issue) -> Value {
        let ids: Vec<u64> = issue.assignees.iter().map(|it| user_id(it)).collect();
        let (state, number) = state_of(issue);
        let list = match issue.pull {
            Some(_) => "merge_requests",
            None => "issues",
        };
        let edit = issue.edits.last();
        let common = json!({
            "id": issue.id, "iid": issue.iid, "title": issue.title, "description": issue.body,
            "assignee_ids": ids, "assignee_id": ids.first(), "author_id": user_id(&issue.author),
            "created_at": time(issue.created_at), "updated_at": time(issue.updated_at),
            "updated_by_id": null, "last_edited_at": edit.map(|edit| time(edit.at)),
            "last_edited_by_id": edit.map(|edit| user_id(&edit.by)), "milestone_id": null, "state": state,
            "state_id": number, "time_estimate": 0, "total_time_spent": 0, "time_change": 0,
            "human_total_time_spent": null, "human_time_estimate": null, "human_time_change": null,
            "url": self.html(&format!("/-/{list}/{}", issue.iid)), "labels": self.labels(&issue.labels),
        });
        let own = match &issue.pull {
            Some(pull) => self.of_pull(pull),
            None => json!({
                "project_id": self.repo.id, "relative_position": 0, "confidential": issue.confidential,
                "discussion_locked": issue.locked.then_some(true), "due_date": null,
                "moved_to_id": issue.moved.as_ref().map(|(_, number)| *number), "duplicated_to_id": null,
                "weight": null, "health_status": null, "type": "Issue", "severity": "unknown",
            }),
        };
        extended(common, own)
    }

    fn of_pull(&self, pull: &Pull) -> Value {
        let sha = self.repo.sha(&pull.head);
        let sha = sha.or_else(|| git::removed_sha(&self.repo.git_dir, &pull.head));
        json!({
            "target_branch": pull.base, "source_branch": pull.head, "source_project_id": self.repo.id,
            "target_project_id": self.repo.id, "reviewer_ids": [], "blocking_discussions_resolved": true,
            "work_in_progress": pull.draft, "draft": pull.draft, "first_contribution": false,
            "merge_status": "can_be_merged", "detailed_merge_status": "mergeable", "prepared_at": null,
            "source": self.old_project(), "target": self.old_project(),
            "last_commit": sha.map(|sha| self.commit(&sha)),
        })
    }

    fn commit(&self, sha: &str) -> Value {
        let show = ["show", "-s", "--format=%an%n%ae%n%aI%n%s", sha];
        let shown = git::try_out(&self.repo.git_dir, &show).unwrap_or_default();
        let mut lines = shown.lines();
        let mut next = || lines.next().unwrap_or_default();
        let (name, email, at, title) = (next(), next(), next(), next());
        json!({
            "id": sha, "message": format!("{title}\n"), "title": title, "timestamp": at,
            "url": self.html(&format!("/-/commit/{sha}")), "author": { "name": name, "email": email },
        })
    }

    /// The deliveries about an item itself.
    fn actions(&self, item: &ItemNews, issue: &Issue) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        let Some(before) = &item.before else {
            all.push(self.action(issue, &issue.author, "open", json!({}), None));
            return all;
        };
        let updates = || item.events.iter().filter(|event| is_update(&event.what));
        if let Some(first) = updates().next() {
            let mut all_of_it = updates();
            let pushed = all_of_it.find_map(|event| match &event.what {
                What::Pushed(before, _) => Some(before.as_str()),
                _ => None,
            });
            let changes = self.changes(before, issue);
            all.push(self.action(issue, &first.by, "update", changes, pushed));
        }
        for event in &item.events {
            if let Some(action) = action_of(issue, &event.what) {
                all.push(self.action(issue, &event.by, action, json!({}), None));
            }
        }
        all
    }

    fn changes(&self, before: &Issue, now: &Issue) -> Value {
        let draft = |issue: &Issue| issue.pull.as_ref().map(|pull| pull.draft);
        let people =
            |issue: &Issue| -> Value { issue.assignees.iter().map(|it| user(it)).collect() };
        let of = |issue: &Issue| {
            [
                ("title", json!(issue.title)),
                ("description", json!(issue.body)),
                ("labels", self.labels(&issue.labels)),
                ("assignees", people(issue)),
                ("confidential", json!(issue.confidential)),
                ("discussion_locked", json!(issue.locked.then_some(true))),
                ("draft", json!(draft(issue))),
                ("updated_at", json!(time(issue.updated_at))),
            ]
        };
        let pairs = of(before).into_iter().zip(of(now));
        let changed = pairs.filter(|((_, old), (_, new))| old != new);
        let changes: Map<String, Value> = changed
            .map(|((field, old), (_, new))| {
                (field.to_owned(), json!({ "previous": old, "current": new }))
            })
            .collect();
        changes.into()
    }

    fn action(
        &self,
        issue: &Issue,
        by: &str,
        action: &str,
        changes: Value,
        pushed: Option<&str>,
    ) -> (String, Value) {
        let mut attributes = self.attributes(issue);
        attributes["action"] = action.into();
        if let Some(before) = pushed {
            attributes["oldrev"] = before.into();
        }
        let (hook, kind, event) = match (&issue.pull, issue.confidential) {
            (Some(_), _) => ("Merge Request Hook", "merge_request", "merge_request"),
            (None, true) => ("Confidential Issue Hook", "issue", "confidential_issue"),
            (None, false) => ("Issue Hook", "issue", "issue"),
        };
        let people: Vec<Value> = issue.assignees.iter().map(|it| user(it)).collect();
        let mut body = json!({
            "object_kind": kind, "event_type": event, "user": user(by), "project": self.old_project(),
            "repository": self.repository(), "object_attributes": attributes, "labels": self.labels(&issue.labels),
            "changes": changes,
        });
        if !people.is_empty() {
            body["assignees"] = people.into();
        }
        (hook.to_owned(), body)
    }

    /// What somebody wrote or changed in a note.
    fn note_of(&self, issue: &Issue, event: &Event) -> Option<(String, Value)> {
        let of_comment = |comment: &CommentView, action| {
            let note = Note {
                id: comment.id,
                author: &comment.author,
                text: &comment.body,
                created_at: comment.created_at,
                updated_at: comment.updated_at,
                is_internal: comment.internal,
                line: None,
                root: comment.id,
                action,
            };
            self.note(issue, &event.by, &note)
        };
        let of_review = |review: &ReviewView, action| {
            let line = match &review.of {
                ReviewOf::Line(path, line) => Some((path.as_str(), *line)),
                ReviewOf::Verdict(_) => None,
            };
            let note = Note {
                id: review.id,
                author: &review.author,
                text: &review.body,
                created_at: review.at,
                updated_at: review.at,
                is_internal: false,
                line,
                root: review.in_reply_to.unwrap_or(review.id),
                action,
            };
            self.note(issue, &event.by, &note)
        };
        match &event.what {
            What::Commented(comment) => Some(of_comment(comment, "create")),
            What::CommentEdited(comment, _) => Some(of_comment(comment, "update")),
            What::Reviewed(review) if !review.body.is_empty() => Some(of_review(review, "create")),
            What::ReviewEdited(review, _) => Some(of_review(review, "update")),
            _ => None,
        }
    }

    fn note(&self, issue: &Issue, by: &str, note: &Note<'_>) -> (String, Value) {
        let (field, kind) = match issue.pull {
            Some(_) => ("merge_request", "MergeRequest"),
            None => ("issue", "Issue"),
        };
        let of_item = self.attributes(issue);
        let url = of_item["url"].as_str().unwrap_or_default();
        let position = note.line.map(|(path, line)| {
            json!({
                "position_type": "text", "old_path": path, "new_path": path, "old_line": null, "new_line": line,
            })
        });
        let attributes = json!({
            "id": note.id, "note": note.text, "description": note.text, "noteable_type": kind, "noteable_id": issue.id,
            "author_id": user_id(note.author), "created_at": time(note.created_at), "updated_at": time(note.updated_at),
            "updated_by_id": null, "resolved_at": null, "resolved_by_id": null, "resolved_by_push": null,
            "project_id": self.repo.id, "attachment": null, "line_code": null, "commit_id": null, "system": false,
            "st_diff": null, "type": position.as_ref().map(|_| "DiffNote"), "position": position,
            "original_position": null, "change_position": null, "internal": note.is_internal,
            "discussion_id": format!("{:040x}", note.root), "action": note.action, "url": format!("{url}#note_{}", note.id),
        });
        let is_confidential = note.is_internal || issue.confidential;
        let (hook, event) = match is_confidential {
            true => ("Confidential Note Hook", "confidential_note"),
            false => ("Note Hook", "note"),
        };
        let mut body = json!({
            "object_kind": "note", "event_type": event, "user": user(by), "project_id": self.repo.id,
            "project": self.old_project(), "object_attributes": attributes, "repository": self.repository(),
        });
        body[field] = of_item;
        (hook.to_owned(), body)
    }

    fn checked(&self, checked: &Checked) -> Vec<(String, Value)> {
        match checked {
            Checked::Check(check) => {
                // A status of another service is no job.
                let job = check.log.as_ref().map(|_| self.job(check));
                let pipeline = self.pipeline(&check.commit, check.at);
                job.into_iter().chain(pipeline).collect()
            }
            Checked::Invalid(InvalidPipeline { commit, at, .. }) => {
                self.pipeline(commit, *at).into_iter().collect()
            }
        }
    }

    /// The merge request of a commit.
    fn pull_at(&self, commit: &str) -> Option<(&Issue, &Pull)> {
        let pulls = self.repo.issues.iter().rev();
        let mut open = pulls.filter_map(|issue| Some((issue, issue.pull.as_ref()?)));
        open.find(|(issue, pull)| {
            issue.open && self.repo.sha(&pull.head).as_deref() == Some(commit)
        })
    }

    fn job(&self, check: &CheckView) -> (String, Value) {
        let branch = self.pull_at(&check.commit).map(|(_, pull)| &pull.head);
        let status = pipelines::word(&check.state);
        let is_over = check.state != "pending";
        let (at, id) = (time(check.at), check.id);
        let finished = is_over.then_some(&at);
        let pipeline = pipelines::pipeline(self.repo, &check.commit, "x");
        let pipeline = pipeline.unwrap_or_default();
        let commit = self.commit(&check.commit);
        let body = json!({
            "object_kind": "build", "ref": branch, "tag": false, "before_sha": check.commit, "sha": check.commit,
            "retries_count": 0, "build_id": id, "build_name": check.name, "build_stage": "test", "build_status": status,
            "build_created_at": at, "build_started_at": at, "build_finished_at": finished, "build_duration": 1.0,
            "build_queued_duration": 1.0, "build_allow_failure": false,
            "build_failure_reason": match status { "failed" => "script_failure", _ => "unknown_failure" },
            "pipeline_id": pipeline["id"], "runner": null, "project_id": self.repo.id, "project_name": self.repo.full_name,
            "user": user("project_bot_of_ci"), "commit": {
                "id": pipeline["id"], "name": null, "sha": check.commit, "message": commit["message"],
                "author_name": commit["author"]["name"], "author_email": commit["author"]["email"],
                "status": pipeline["status"], "duration": null, "started_at": at, "finished_at": finished,
            },
            "repository": self.repository(), "project": self.project(), "environment": null,
        });
        ("Job Hook".to_owned(), body)
    }

    fn pipeline(&self, commit: &str, at: DateTime<Utc>) -> Option<(String, Value)> {
        let pipeline = pipelines::pipeline(self.repo, commit, "x")?;
        let found = self.pull_at(commit);
        let merge_request = found.map(|(issue, pull)| {
            json!({
                "id": issue.id, "iid": issue.iid, "title": issue.title, "source_branch": pull.head,
                "source_project_id": self.repo.id, "target_branch": pull.base, "target_project_id": self.repo.id,
                "state": state_of(issue).0, "merge_status": "can_be_merged", "detailed_merge_status": "mergeable",
                "url": self.html(&format!("/-/merge_requests/{}", issue.iid)),
            })
        });
        let builds = self.repo.checks.iter().filter(|it| it.commit == commit);
        let builds = builds.filter(|it| it.log.is_some()).map(|it| {
            let status = pipelines::word(&it.state);
            json!({
                "id": it.id, "stage": "test", "name": it.name, "status": status, "created_at": time(it.at),
                "started_at": time(it.at), "finished_at": (it.state != "pending").then(|| time(it.at)), "duration": 1.0,
                "queued_duration": 1.0, "failure_reason": (status == "failed").then_some("script_failure"),
                "when": "on_success", "manual": false, "allow_failure": false, "user": user("project_bot_of_ci"),
                "runner": null, "artifacts_file": { "filename": null, "size": null }, "environment": null,
            })
        });
        let builds: Vec<Value> = builds.collect();
        let body = json!({
            "object_kind": "pipeline", "object_attributes": {
                "id": pipeline["id"], "iid": pipeline["iid"], "name": null,
                "ref": found.map_or(&self.repo.default_branch, |(_, pull)| &pull.head), "tag": false, "sha": commit,
                "before_sha": "0000000000000000000000000000000000000000", "source": pipeline["source"],
                "status": pipeline["status"], "detailed_status": pipeline["status"], "stages": ["test"],
                "created_at": time(at), "finished_at": time(at), "duration": 1, "queued_duration": null, "variables": [],
                "url": self.html(&format!("/-/pipelines/{}", pipeline["id"])),
            },
            "merge_request": merge_request, "user": user("project_bot_of_ci"), "project": self.project(),
            "commit": self.commit(commit), "builds": builds,
        });
        Some(("Pipeline Hook".to_owned(), body))
    }
}
