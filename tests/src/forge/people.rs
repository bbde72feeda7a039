//! Who may do what in a repository, and who edited an item: permissions, teams and groups, edits.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::gitlab::user_id;
use super::rest::{Answer, Ask};
use super::shapes::{time, user};
use super::state::State;
use super::{Forge, HUMAN, Inner, git};

/// An edit of an item's title or text.
#[derive(Debug, Clone)]
pub(super) struct EditView {
    pub(super) id: u64,
    /// Otherwise the text.
    pub(super) of_title: bool,
    /// What GitLab notes of it.
    pub(super) note: String,
    pub(super) by: String,
    pub(super) at: DateTime<Utc>,
}

impl Forge {
    /// Gives somebody a permission in a repository by GitHub's name: `none`, `read`, `triage`, `write`, `maintain` or
    /// `admin`. Others have `write` if they have a token that may write, else `read`.
    pub fn set_permission(&self, repo: &str, login: &str, permission: &str) {
        let key = (repo.to_lowercase(), login.to_lowercase());
        let mut state = self.inner.lock();
        state.permissions.insert(key, permission.to_owned());
    }

    /// Makes a team (`organisation/team`) or a group of these people.
    pub fn set_team(&self, name: &str, members: &[&str]) {
        let members = members.iter().map(|&login| login.to_owned()).collect();
        self.inner.lock().teams.insert(name.to_owned(), members);
    }

    /// A person merges a pull request with the forge's own button.
    ///
    /// # Panics
    /// If it cannot be merged.
    pub fn merge(&self, repo: &str, number: u64) {
        self.with_repo_mut(repo, |repo| {
            let issue = repo.issue(number).expect("the pull request exists");
            let pull = issue.pull.as_ref().expect("it is a pull request");
            assert!(git::merge(&repo.git_dir, &pull.head, &pull.base));
            let head = repo.sha(&pull.head);
            let issue = repo.issue_mut(number).expect("the pull request exists");
            issue.open = false;
            issue.updated_at = Utc::now();
            issue
                .pull
                .iter_mut()
                .for_each(|pull| pull.merge(head.clone()));
        });
    }

    /// Somebody adds a label.
    pub fn add_label_as(&self, repo: &str, number: u64, label: &str, login: &str) {
        self.inner.lock().label(repo, number, label, login, true);
        self.inner.changed.notify_waiters();
    }

    /// Somebody changes an item's text.
    pub fn edit_text_as(&self, repo: &str, number: u64, text: &str, login: &str) {
        let mut state = self.inner.lock();
        state.edit(repo, number, (None, Some(text)), login);
        drop(state);
        self.inner.changed.notify_waiters();
    }

    /// Somebody changes an item's title.
    pub fn edit_title_as(&self, repo: &str, number: u64, title: &str, login: &str) {
        let mut state = self.inner.lock();
        state.edit(repo, number, (Some(title), None), login);
        drop(state);
        self.inner.changed.notify_waiters();
    }
}

/// Notes of one edit at most.
const MOST_NOTES: u64 = 100;

/// What GitLab notes of an edit of a text: the boxes of task lists that it ticked or unticked, else that there was one.
fn notes_of_text(before: &str, after: &str) -> Vec<String> {
    let boxes = |text: &str| -> Vec<(bool, String)> {
        let lines = text.lines().filter_map(|line| {
            let rest = line.trim_start().strip_prefix("- [")?;
            let (mark, text) = rest.split_at_checked(1)?;
            let text = text.strip_prefix("] ")?.trim();
            // The mark of a comment is not shown, and what is in it is.
            let text = text.replace("<!--", "").replace("-->", "");
            matches!(mark, " " | "x" | "X").then(|| (mark != " ", text))
        });
        lines.collect()
    };
    let pairs = boxes(before).into_iter().zip(boxes(after));
    let changed = pairs.filter(|((was, old), (is, new))| old == new && was != is);
    let mut notes: Vec<String> = changed
        .map(|(_, (is, text))| {
            let state = if is { "completed" } else { "incomplete" };
            format!("marked the checklist item **{text}** as {state}")
        })
        .collect();
    if notes.is_empty() {
        notes.push("changed the description".to_owned());
    }
    notes
}

impl State {
    /// Changes title or text, and remembers who did.
    pub(super) fn edit(
        &mut self,
        repo: &str,
        number: u64,
        (title, text): (Option<&str>, Option<&str>),
        login: &str,
    ) {
        let first = self.ids(MOST_NOTES);
        let Some(issue) = self.repo_mut(repo).and_then(|repo| repo.issue_mut(number)) else {
            return;
        };
        let at = Utc::now();
        let mut notes = Vec::new();
        if let Some(title) = title.filter(|title| *title != issue.title) {
            notes.push((
                true,
                format!("changed title from **{{-a-}}** to **{title}**"),
            ));
        }
        if let Some(text) = text.filter(|text| *text != issue.body) {
            let notes_of_text = notes_of_text(&issue.body, text).into_iter();
            notes.extend(notes_of_text.map(|note| (false, note)));
        }
        for (id, (of_title, note)) in (first..first + MOST_NOTES).zip(notes) {
            issue.edits.push(EditView {
                id,
                of_title,
                note,
                by: login.to_owned(),
                at,
            });
        }
        title
            .into_iter()
            .for_each(|title| title.clone_into(&mut issue.title));
        text.into_iter()
            .for_each(|text| text.clone_into(&mut issue.body));
        issue.updated_at = at;
    }

    fn permission(&self, repo: &str, login: &str) -> &str {
        let key = (repo.to_lowercase(), login.to_lowercase());
        if let Some(own) = self.permissions.get(&key) {
            return own;
        }
        let mut accounts = self.accounts.values();
        match accounts.any(|it| it.may_write && it.login.eq_ignore_ascii_case(login)) {
            true => "write",
            false if login == HUMAN => "write",
            false => "read",
        }
    }
}

/// Whether somebody may push to a repository.
pub(super) fn may_push(state: &State, repo: &str, login: &str) -> bool {
    matches!(
        state.permission(repo, login),
        "write" | "maintain" | "admin"
    )
}

/// GitHub: `/repos/O/R/collaborators/LOGIN/permission`.
pub(super) fn permission(state: &State, repo: &str, login: &str) -> Answer {
    let role = state.permission(repo, login);
    // The older field knows four words.
    let permission = match role {
        "maintain" => "write",
        "triage" => "read",
        other => other,
    };
    Answer::ok(json!({ "permission": permission, "role_name": role, "user": user(login) }))
}

/// GitHub: `/orgs/O/teams/T/members`.
pub(super) fn team(inner: &Inner, state: &State, ask: &Ask, name: &str) -> Answer {
    match state.teams.get(name) {
        Some(members) => {
            let all = members.iter().map(|login| user(login));
            Answer::page(inner, ask, all.collect())
        }
        None => Answer::not_found(),
    }
}

/// GitHub's event for a change of the title.
pub(super) fn renamed_json(edit: &EditView) -> Value {
    json!({
        "id": edit.id, "event": "renamed", "actor": user(&edit.by), "created_at": time(edit.at),
        "rename": { "from": "", "to": "" },
    })
}

/// GitHub's GraphQL answer about the edits of an item's text.
pub(super) fn edits_json(state: &State, ask: &Ask) -> Answer {
    let with = &ask.body["variables"];
    let text = |key: &str| with[key].as_str().unwrap_or_default().to_owned();
    let name = format!("{}/{}", text("owner"), text("name"));
    let number = with["number"].as_u64().unwrap_or_default();
    let Some(issue) = state.repo(&name).and_then(|repo| repo.issue(number)) else {
        return Answer::ok(json!({
            "data": { "repository": null },
            "errors": [{ "type": "NOT_FOUND", "message": "Could not resolve to a Repository" }],
        }));
    };
    let mut edits: Vec<&EditView> = issue.edits.iter().filter(|edit| !edit.of_title).collect();
    edits.dedup_by_key(|edit| (edit.at, edit.by.clone()));
    edits.reverse();
    let actor = |login: &str| match login.strip_suffix("[bot]") {
        Some(name) => json!({ "__typename": "Bot", "login": name }),
        None => json!({ "__typename": "User", "login": login }),
    };
    let newest = edits.first();
    let mut nodes: Vec<Value> = edits
        .iter()
        .map(|edit| json!({ "editedAt": time(edit.at), "editor": actor(&edit.by) }))
        .collect();
    if newest.is_some() {
        // The text as it was written.
        nodes.push(json!({ "editedAt": time(issue.created_at), "editor": actor(&issue.author) }));
    }
    nodes.truncate(100);
    let item = json!({
        "lastEditedAt": newest.map(|edit| time(edit.at)),
        "editor": newest.map(|edit| actor(&edit.by)),
        "userContentEdits": { "nodes": nodes },
    });
    Answer::ok(json!({ "data": { "repository": { "issueOrPullRequest": item } } }))
}

/// GitLab: `/projects/P/members/all` and `/groups/G/members/all`, of the people in `user_ids[]`.
pub(super) fn members(inner: &Inner, state: &State, ask: &Ask, of: Of<'_>) -> Answer {
    let logins: Vec<String> = match of {
        Of::Group(name) => match state.teams.get(name) {
            Some(members) => members.clone(),
            None => return Answer::new(404, json!({ "message": "404 Group Not Found" })),
        },
        Of::Project(_) => {
            let known = state.permissions.keys().map(|(_, login)| login.clone());
            let accounts = state.accounts.values().map(|it| it.login.clone());
            let mut all: Vec<String> = known.chain(accounts).collect();
            all.push(HUMAN.to_owned());
            all.sort();
            all.dedup();
            all
        }
    };
    let wanted: Vec<&str> = ask
        .query
        .iter()
        .filter(|(key, _)| key == "user_ids[]" || key == "user_ids")
        .map(|(_, id)| id.as_str())
        .collect();
    let level = |login: &str| match of {
        Of::Group(_) => 30,
        Of::Project(repo) => match state.permission(repo, login) {
            "triage" => 20,
            "write" => 30,
            "maintain" => 40,
            "admin" => 50,
            _ => 0,
        },
    };
    let all = logins.iter().filter_map(|login| {
        let (id, level) = (user_id(login), level(login));
        let is_wanted = wanted.is_empty() || wanted.contains(&id.to_string().as_str());
        (level > 0 && is_wanted).then(|| {
            json!({
                "id": id, "username": login, "name": login, "state": "active", "access_level": level,
                "membership_state": "active",
            })
        })
    });
    Answer::page(inner, ask, all.collect())
}

/// Whose members are requested.
#[derive(Clone, Copy)]
pub(super) enum Of<'a> {
    Project(&'a str),
    Group(&'a str),
}
