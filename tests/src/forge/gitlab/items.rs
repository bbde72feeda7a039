//! Issues and merge requests: lists, new issues, edits.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::super::Inner;
use super::super::rest::{Answer, Ask, has};
use super::super::state::{Issue, Keyset, Repo, State};
use super::{Kind, Place, actions, missing, names, shapes};

/// The items of a repository that a list asks for.
pub(super) fn of<'r>(repo: &'r Repo, ask: &Ask, kind: Kind) -> Vec<(&'r Repo, &'r Issue)> {
    let wanted = ask.param("state").unwrap_or("all");
    let labels = names(&Value::from(ask.param("labels").unwrap_or_default()));
    let since = ask.param("updated_after");
    let since = since.and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    let confidential = ask.param("confidential").map(|it| it == "true");
    let numbers: Vec<&str> = ask
        .query
        .iter()
        .filter(|(key, _)| key == "iids[]")
        .map(|(_, number)| number.as_str())
        .collect();
    let fits = |issue: &&Issue| {
        let state = match wanted {
            "opened" => issue.open,
            "closed" => !issue.open && issue.pull.as_ref().is_none_or(|pull| !pull.merged),
            "merged" => issue.pull.as_ref().is_some_and(|pull| pull.merged),
            _ => true,
        };
        let branch = |key: &str, of: fn(&super::super::state::Pull) -> &str| {
            let own = issue.pull.as_ref().map(of);
            ask.param(key).is_none_or(|branch| own == Some(branch))
        };
        state
            && !issue.deleted
            && since.is_none_or(|since| issue.updated_at >= since)
            && kind.holds(issue)
            && confidential.is_none_or(|wanted| issue.confidential == wanted)
            && (numbers.is_empty() || numbers.contains(&issue.iid.to_string().as_str()))
            && labels.iter().all(|label| has(issue, label))
            && branch("source_branch", |pull| &pull.head)
            && branch("target_branch", |pull| &pull.base)
    };
    let found = repo.issues.iter().filter(fits);
    found.map(|issue| (repo, issue)).collect()
}

/// By what a list is ordered.
fn place(ask: &Ask, issue: &Issue) -> (DateTime<Utc>, u64) {
    let at = match ask.param("order_by") {
        Some("updated_at") => issue.updated_at,
        _ => issue.created_at,
    };
    (at, issue.id)
}

/// A page of them: by default the newest is first.
pub(super) fn page(inner: &Inner, ask: &Ask, mut found: Vec<(&Repo, &Issue)>) -> Answer {
    found.sort_by_key(|(_, issue)| place(ask, issue));
    if ask.param("sort") != Some("asc") {
        found.reverse();
    }
    let shape = |(repo, issue)| shapes::item(inner, repo, issue);
    Answer::page_of(inner, ask, found, shape)
}

/// The same of the issues of a project, whose pages may be requested by keyset: what comes after the last row of the page
/// before, wherever that is now.
pub(super) fn page_by(
    inner: &Inner,
    ask: &Ask,
    mut found: Vec<(&Repo, &Issue)>,
    keyset: Keyset,
) -> Answer {
    match keyset {
        _ if ask.param("pagination") != Some("keyset") => return page(inner, ask, found),
        Keyset::Ignored => return page(inner, ask, found),
        Keyset::Refused => {
            let error = "Keyset pagination is not yet available for this type of request";
            return Answer::new(405, json!({ "error": error }));
        }
        Keyset::Served => {}
    }
    let per_page = ask.param("per_page").and_then(|it| it.parse().ok());
    let per_page = per_page.unwrap_or(20_usize).clamp(1, 100);
    found.sort_by_key(|(_, issue)| place(ask, issue));
    let ascending = ask.param("sort") == Some("asc");
    if !ascending {
        found.reverse();
    }
    let named = |(at, id): (DateTime<Utc>, u64)| format!("{}-{id}", at.timestamp_micros());
    if let Some(cursor) = ask.param("cursor") {
        let last = cursor.split_once('-').and_then(|(at, id)| {
            let at = DateTime::from_timestamp_micros(at.parse().ok()?)?;
            Some((at.timestamp_micros(), id.parse::<u64>().ok()?))
        });
        let Some(last) = last else {
            return Answer::new(400, json!({ "error": "cursor is invalid" }));
        };
        found.retain(|(_, issue)| {
            let (at, id) = place(ask, issue);
            let own = (at.timestamp_micros(), id);
            if ascending { own > last } else { own < last }
        });
    }
    let is_last = found.len() <= per_page;
    found.truncate(per_page);
    let link = found.last().filter(|_| !is_last).map(|(_, issue)| {
        let mut url = inner.api_url.clone();
        url.set_path(&format!("{}{}", ask.api.base(), ask.path));
        let others = ask.query.iter().filter(|(key, _)| key != "cursor");
        url.query_pairs_mut()
            .extend_pairs(others)
            .append_pair("cursor", &named(place(ask, issue)));
        format!("<{url}>; rel=\"next\"")
    });
    let all = found.into_iter();
    let all = all.map(|(repo, issue)| shapes::item(inner, repo, issue));
    Answer {
        link,
        ..Answer::ok(Value::Array(all.collect()))
    }
}

pub(super) fn create(inner: &Inner, state: &mut State, ask: &Ask, name: &str) -> Answer {
    let Some(title) = ask.text("title").filter(|title| !title.is_empty()) else {
        return Answer::new(400, json!({ "error": "title is missing" }));
    };
    let (body, commands) = actions::extract(ask.text("description").unwrap_or_default());
    let labels = names(&ask.body["labels"]);
    let login = &ask.account.login;
    let Some(number) = state.add_issue(name, login, (title, &body), &labels, None) else {
        return missing("Project");
    };
    let place = Place {
        repo: name,
        kind: Kind::Issue,
        number,
    };
    if let Some(issue) = state.repo_mut(name).and_then(|repo| repo.issue_mut(number)) {
        issue.confidential = ask.body["confidential"].as_bool().unwrap_or(false);
    }
    actions::run(state, place, login, &commands);
    place.answer(inner, state, 201)
}

pub(super) fn edit(inner: &Inner, state: &mut State, ask: &Ask, place: Place<'_>) -> Answer {
    let login = ask.account.login.clone();
    let mut commands = Vec::new();
    let repo = state.repo_mut(place.repo);
    let Some(issue) = repo.and_then(|repo| repo.issue_mut(place.number)) else {
        return missing("");
    };
    if let Some(title) = ask.text("title") {
        let own = issue.title.clone();
        retitle(issue, title);
        issue.title = own;
    }
    let mut body = None;
    if let Some(text) = ask.text("description") {
        let (text, found) = actions::extract(text);
        (body, commands) = (Some(text), found);
    }
    state.edit(
        place.repo,
        place.number,
        (ask.text("title"), body.as_deref()),
        &login,
    );
    let repo = state.repo_mut(place.repo);
    let Some(issue) = repo.and_then(|repo| repo.issue_mut(place.number)) else {
        return missing("");
    };
    match ask.text("state_event") {
        Some("close") => issue.open = false,
        Some("reopen") => issue.open = true,
        _ => {}
    }
    if let Some(confidential) = ask.body["confidential"].as_bool() {
        issue.confidential = confidential;
    }
    issue.updated_at = Utc::now();
    let (current, wanted) = (issue.labels.clone(), &ask.body["labels"]);
    let mut add = names(&ask.body["add_labels"]);
    let mut remove = names(&ask.body["remove_labels"]);
    if !wanted.is_null() {
        let wanted = names(wanted);
        remove.extend(current.into_iter().filter(|label| !wanted.contains(label)));
        add.extend(wanted);
    }
    for (labels, on) in [(remove, false), (add, true)] {
        for label in labels {
            state.label(place.repo, place.number, &label, &login, on);
        }
    }
    actions::run(state, place, &login, &commands);
    place.answer(inner, state, 200)
}

/// The beginning of a merge request's title makes it a draft.
pub(super) fn retitle(issue: &mut Issue, title: &str) {
    title.clone_into(&mut issue.title);
    if let Some(pull) = &mut issue.pull {
        pull.draft = is_draft(title);
    }
}

pub(super) fn is_draft(title: &str) -> bool {
    let title = title.to_lowercase();
    ["draft:", "[draft]", "(draft)"]
        .iter()
        .any(|begin| title.starts_with(begin))
}
