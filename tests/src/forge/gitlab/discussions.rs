//! Notes and discussions.

use chrono::Utc;
use serde_json::{Value, json};

use super::super::rest::{Answer, Ask};
use super::super::state::{Issue, State};
use super::super::{Inner, reactions, threads};
use super::{Place, actions, missing, shapes};

/// All notes of an item, oldest first; `system` ones too unless they are filtered out.
fn all(issue: &Issue, system: bool) -> Vec<Value> {
    let comments = issue.comments.iter();
    let comments = comments.map(|comment| (comment.created_at, shapes::note(issue, comment)));
    let events = issue.events.iter().filter(|_| system);
    let events = events.map(|event| (event.at, shapes::system_note(issue, event)));
    let reviews = issue.pull.iter().flat_map(|pull| &pull.reviews);
    let reviews = reviews.flat_map(|review| {
        let decides = shapes::verdict(issue, review).filter(|_| system);
        // A review without a summary leaves no note of its reviewer.
        let says = (!review.body.is_empty()).then(|| shapes::review(issue, review));
        decides
            .into_iter()
            .chain(says)
            .map(|note| (review.at, note))
    });
    let edits = issue.edits.iter().filter(|_| system);
    let edits = edits.map(|edit| (edit.at, shapes::edit_note(issue, edit)));
    let mut all: Vec<_> = comments.chain(events).chain(edits).chain(reviews).collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, note)| note).collect()
}

pub(super) fn notes(
    inner: &Inner,
    state: &mut State,
    ask: &Ask,
    place: Place<'_>,
    rest: &[&str],
) -> Answer {
    match (ask.method.as_str(), rest) {
        ("GET", []) => match place.find(state) {
            Some((_, issue)) => {
                let filter = ask.param("activity_filter");
                let mut notes = all(issue, filter != Some("only_comments"));
                notes.retain(|note| filter != Some("only_activity") || note["system"] == true);
                if ask.param("sort") != Some("asc") {
                    notes.reverse();
                }
                Answer::page(inner, ask, notes)
            }
            None => missing(""),
        },
        ("POST", []) => match write(state, ask, place) {
            Ok((id, _)) => one(state, place, id, 201),
            Err(answer) => *answer,
        },
        (_, [id, "award_emoji"]) => match place.find(state).and_then(|(_, it)| note_id(it, id)) {
            Some(id) => reactions::gitlab(inner, state, ask, id, shapes::user),
            None => missing("Note"),
        },
        (_, [id]) => match id.parse() {
            Ok(id) => change(state, ask, place, id),
            Err(_) => missing("Note"),
        },
        _ => missing(""),
    }
}

/// The id, if the item has such a note.
fn note_id(issue: &Issue, id: &str) -> Option<u64> {
    let id = id.parse().ok()?;
    let comments = issue.comments.iter().map(|comment| comment.id);
    let reviews = issue.pull.iter().flat_map(|pull| &pull.reviews);
    let mut all = comments.chain(reviews.map(|review| review.id));
    all.any(|own| own == id).then_some(id)
}

/// Writes a note; returns its id. A note that holds nothing but actions is none.
fn write(state: &mut State, ask: &Ask, place: Place<'_>) -> Result<(u64, String), Box<Answer>> {
    let Some(text) = ask.text("body") else {
        let answer = Answer::new(400, json!({ "error": "body is missing" }));
        return Err(Box::new(answer));
    };
    if text.chars().count() > 1_000_000 {
        let body = json!({ "message": "400 Bad request - Note is too long (maximum is 1000000 characters)" });
        return Err(Box::new(Answer::new(400, body)));
    }
    let (text, commands) = actions::extract(text);
    let login = ask.account.login.clone();
    actions::run(state, place, &login, &commands);
    if text.trim().is_empty() {
        let answer = match commands.is_empty() {
            true => Answer::new(
                400,
                json!({ "message": "400 Bad request - Note can't be blank" }),
            ),
            false => Answer::new(
                202,
                json!({ "commands_changes": {}, "summary": ["Applied commands."] }),
            ),
        };
        return Err(Box::new(answer));
    }
    match state.comment(place.repo, place.number, &login, &text) {
        Some(comment) => {
            let internal = ["internal", "confidential"]
                .iter()
                .any(|key| ask.body[*key] == true);
            let repo = state.repo_mut(place.repo);
            let issue = repo.and_then(|repo| repo.issue_mut(place.number));
            let own = issue.and_then(|issue| issue.comments.last_mut());
            own.into_iter().for_each(|own| own.internal = internal);
            Ok((comment.id, text))
        }
        None => Err(Box::new(missing(""))),
    }
}

fn one(state: &State, place: Place<'_>, id: u64, status: u16) -> Answer {
    let note = place.find(state).and_then(|(_, issue)| {
        let comment = issue.comments.iter().find(|comment| comment.id == id)?;
        Some(shapes::note(issue, comment))
    });
    note.map_or_else(|| missing("Note"), |note| Answer::new(status, note))
}

fn change(state: &mut State, ask: &Ask, place: Place<'_>, id: u64) -> Answer {
    let repo = state.repo_mut(place.repo);
    let Some(issue) = repo.and_then(|repo| repo.issue_mut(place.number)) else {
        return missing("");
    };
    let Some(at) = issue.comments.iter().position(|comment| comment.id == id) else {
        return missing("Note");
    };
    if ask.method != http::Method::GET && issue.comments[at].author != ask.account.login {
        return Answer::new(403, json!({ "message": "403 Forbidden" }));
    }
    match ask.method.as_str() {
        "PUT" => {
            let (text, commands) = actions::extract(ask.text("body").unwrap_or_default());
            let comment = &mut issue.comments[at];
            comment.body = text;
            comment.edits += 1;
            comment.updated_at = Utc::now();
            issue.updated_at = comment.updated_at;
            actions::run(state, place, &ask.account.login.clone(), &commands);
            one(state, place, id, 200)
        }
        "DELETE" => {
            issue.comments.remove(at);
            Answer::new(204, Value::Null)
        }
        _ => one(state, place, id, 200),
    }
}

/// GitLab names a discussion by 40 hexadecimal digits.
fn name(root: u64) -> String {
    format!("{root:040x}")
}

pub(super) fn dispatch(
    inner: &Inner,
    state: &mut State,
    ask: &Ask,
    place: Place<'_>,
    rest: &[&str],
) -> Answer {
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let all = discussions(state, place);
            Answer::page(
                inner,
                ask,
                all.into_iter().map(|(_, value)| value).collect(),
            )
        }
        ("POST", []) => match write(state, ask, place) {
            Ok((id, _)) => {
                state.threads.insert(id, id);
                discussion(state, place, &name(id), 201)
            }
            Err(answer) => *answer,
        },
        ("GET", [id]) => discussion(state, place, id, 200),
        ("PUT", [id]) => {
            let root = u64::from_str_radix(id, 16).unwrap_or_default();
            let is_line = |(_, issue): (_, &Issue)| threads::begins(issue, root);
            if !place.find(state).is_some_and(is_line) {
                return missing("Discussion");
            }
            let resolved = ask.param("resolved").or_else(|| ask.text("resolved"));
            let is_resolved = resolved == Some("true") || ask.body["resolved"] == true;
            threads::resolve(state, (place.repo, place.number), root, is_resolved);
            discussion(state, place, id, 200)
        }
        ("POST", [id, "notes"]) => {
            let Ok(root) = u64::from_str_radix(id, 16) else {
                return missing("Discussion");
            };
            if place
                .find(state)
                .is_some_and(|(_, issue)| threads::begins(issue, root))
            {
                let text = ask.text("body").unwrap_or_default().to_owned();
                let (text, commands) = actions::extract(&text);
                let login = ask.account.login.clone();
                actions::run(state, place, &login, &commands);
                let reply = threads::add(state, (place.repo, place.number), root, (&login, &text));
                return match (reply, place.find(state)) {
                    (Some(reply), Some((_, issue))) => {
                        Answer::new(201, shapes::review(issue, &reply))
                    }
                    _ => missing("Discussion"),
                };
            }
            if one(state, place, root, 200).status != 200 {
                return missing("Discussion");
            }
            match write(state, ask, place) {
                Ok((reply, _)) => {
                    state.threads.insert(root, root);
                    state.threads.insert(reply, root);
                    one(state, place, reply, 201)
                }
                Err(answer) => *answer,
            }
        }
        _ => missing("Discussion"),
    }
}

fn discussion(state: &State, place: Place<'_>, id: &str, status: u16) -> Answer {
    let mut all = discussions(state, place).into_iter();
    match all.find(|(name, _)| name == id) {
        Some((_, value)) => Answer::new(status, value),
        None => missing("Discussion"),
    }
}

/// Comments by their discussion; one that nobody can reply to is alone.
fn discussions(state: &State, place: Place<'_>) -> Vec<(String, Value)> {
    let Some((_, issue)) = place.find(state) else {
        return Vec::new();
    };
    let root = |id: u64| state.threads.get(&id).copied();
    let roots = issue
        .comments
        .iter()
        .filter(|comment| root(comment.id).is_none_or(|root| root == comment.id));
    let value = |first: u64| {
        let members = issue.comments.iter();
        let members =
            members.filter(|comment| comment.id == first || root(comment.id) == Some(first));
        let notes: Vec<Value> = members
            .map(|comment| shapes::note(issue, comment))
            .collect();
        let alone = root(first).is_none();
        json!({ "id": name(first), "individual_note": alone, "notes": notes })
    };
    let on_lines = threads::threads(issue).into_iter().map(|(root, members)| {
        let notes: Vec<Value> = members
            .iter()
            .map(|member| shapes::review(issue, member))
            .collect();
        let value = json!({ "id": name(root), "individual_note": false, "notes": notes });
        (name(root), value)
    });
    roots
        .map(|comment| (name(comment.id), value(comment.id)))
        .chain(on_lines)
        .collect()
}
