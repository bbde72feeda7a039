//! The newest comments of a repository, and the reactions to comments.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::gitlab::shapes;
use super::rest::{Answer, Ask};
use super::shapes::{comment_json, time, user};
use super::state::{Issue, Repo, ReviewOf, State};
use super::{Forge, Inner};

/// A reaction to a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaction {
    /// The comment.
    pub comment: u64,
    /// Who reacted.
    pub login: String,
    /// `+1` on GitHub, `thumbsup` on GitLab.
    pub content: String,
}

impl Forge {
    /// All reactions, in order.
    pub fn reactions(&self) -> Vec<Reaction> {
        self.inner.lock().reactions.clone()
    }

    /// A person, or the given `author`, comments; returns the id of the comment.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn say(&self, repo: &str, number: u64, author: &str, body: &str) -> u64 {
        let comment = self.inner.lock().comment(repo, number, author, body);
        self.inner.changed.notify_waiters();
        comment.expect("the item exists").id
    }
}

impl State {
    /// The reaction of somebody, and whether it is new.
    fn react(&mut self, comment: u64, login: &str, content: &str) -> bool {
        let reaction = Reaction {
            comment,
            login: login.to_owned(),
            content: content.to_owned(),
        };
        let is_new = !self.reactions.contains(&reaction);
        if is_new {
            self.reactions.push(reaction);
        }
        is_new
    }

    fn of(&self, comment: u64) -> impl Iterator<Item = &Reaction> {
        let all = self.reactions.iter();
        all.filter(move |reaction| reaction.comment == comment)
    }
}

/// GitHub: `/repos/O/R/issues/comments`, the newest first if the request says so.
pub(super) fn comments(inner: &Inner, ask: &Ask, repo: &Repo) -> Answer {
    let each = |issue: &Issue| {
        let list = if issue.pull.is_some() {
            "pull"
        } else {
            "issues"
        };
        let place = format!("repos/{}/issues/{}", repo.full_name, issue.number);
        let comments = issue.comments.iter().map(|comment| {
            let mut value = comment_json(inner, repo, comment);
            let (number, id) = (issue.number, comment.id);
            value["issue_url"] = inner.api(&place).into();
            value["html_url"] = inner
                .html(&format!(
                    "{}/{list}/{number}#issuecomment-{id}",
                    repo.full_name
                ))
                .into();
            (comment.id, value)
        });
        comments.collect::<Vec<_>>()
    };
    let mut all: Vec<(u64, Value)> = repo.issues.iter().flat_map(each).collect();
    all.sort_by_key(|(id, _)| *id);
    if ask.param("direction") == Some("desc") {
        all.reverse();
    }
    Answer::page(
        inner,
        ask,
        all.into_iter().map(|(_, value)| value).collect(),
    )
}

/// GitHub: `/repos/O/R/issues/comments/ID/reactions`, and the same below `pulls` of a comment on a line.
pub(super) fn github(
    inner: &Inner,
    state: &mut State,
    ask: &Ask,
    name: &str,
    (list, id): (&str, &str),
) -> Answer {
    let found = match list {
        "issues" => comment(state, name, id),
        _ => line(state, name, id),
    };
    let Some(id) = found else {
        return Answer::not_found();
    };
    let shown = |reaction: &Reaction| json!({ "id": 1, "user": user(&reaction.login), "content": reaction.content });
    if ask.method == http::Method::GET {
        let all = state.of(id).map(shown).collect();
        return Answer::page(inner, ask, all);
    }
    let content = ask.text("content").unwrap_or_default().to_owned();
    let known = [
        "+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes",
    ];
    if !known.contains(&content.as_str()) {
        return Answer::invalid(json!([{ "field": "content", "code": "invalid" }]));
    }
    let login = ask.account.login.clone();
    let is_new = state.react(id, &login, &content);
    let body = json!({ "id": 1, "user": user(&login), "content": content });
    Answer::new(if is_new { 201 } else { 200 }, body)
}

/// GitLab: `…/notes/ID/award_emoji` of a note that its item has.
pub(super) fn gitlab(
    inner: &Inner,
    state: &mut State,
    ask: &Ask,
    id: u64,
    user: fn(&str) -> Value,
) -> Answer {
    let shown = |reaction: &Reaction| json!({ "id": 1, "user": user(&reaction.login), "name": reaction.content });
    if ask.method == http::Method::GET {
        let all = state.of(id).map(shown).collect();
        return Answer::page(inner, ask, all);
    }
    let name = ask.param("name").or_else(|| ask.text("name"));
    let (name, login) = (
        name.unwrap_or_default().to_owned(),
        ask.account.login.clone(),
    );
    match state.react(id, &login, &name) {
        true => Answer::new(201, json!({ "id": 1, "user": user(&login), "name": name })),
        false => {
            let message = "404 Award Emoji Name has already been taken Not Found";
            Answer::new(404, json!({ "message": message }))
        }
    }
}

/// The id, if there is such a comment in the repository.
fn comment(state: &State, repo: &str, id: &str) -> Option<u64> {
    let id = id.parse().ok()?;
    let mut comments = state.repo(repo)?.issues.iter().flat_map(|it| &it.comments);
    comments.any(|comment| comment.id == id).then_some(id)
}

/// The id, if there is such a comment on a line in the repository.
fn line(state: &State, repo: &str, id: &str) -> Option<u64> {
    let id = id.parse().ok()?;
    let pulls = state.repo(repo)?.issues.iter();
    let mut reviews = pulls
        .filter_map(|it| it.pull.as_ref())
        .flat_map(|it| &it.reviews);
    reviews
        .any(|review| review.id == id && matches!(review.of, ReviewOf::Line(..)))
        .then_some(id)
}

/// GitLab: `/projects/P/events?action=commented`.
pub(super) fn events(inner: &Inner, ask: &Ask, repo: &Repo) -> Answer {
    let event = |issue: &Issue, (id, at): (u64, DateTime<Utc>), note: Value| {
        let kind = note["type"].as_str().unwrap_or("Note").to_owned();
        let value = json!({
            "id": id, "project_id": repo.id, "action_name": "commented on",
            "target_type": kind, "target_id": id, "target_iid": id,
            "target_title": issue.title, "created_at": time(at), "note": note,
        });
        (id, value)
    };
    let each = |issue: &Issue| {
        let comments = issue.comments.iter().map(|comment| {
            let at = (comment.id, comment.created_at);
            event(issue, at, shapes::note(issue, comment))
        });
        let reviews = issue.pull.iter().flat_map(|pull| &pull.reviews);
        let reviews = reviews.filter(|it| !it.body.is_empty()).map(|review| {
            let at = (review.id, review.at);
            event(issue, at, shapes::review(issue, review))
        });
        comments.chain(reviews).collect::<Vec<_>>()
    };
    let mut all: Vec<(u64, Value)> = repo.issues.iter().flat_map(each).collect();
    all.sort_by_key(|(id, _)| *id);
    if ask.param("sort") != Some("asc") {
        all.reverse();
    }
    Answer::page(
        inner,
        ask,
        all.into_iter().map(|(_, value)| value).collect(),
    )
}
