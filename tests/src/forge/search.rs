//! `GET /search/issues`, with the qualifiers that configurations use.

use serde_json::{Value, json};

use super::rest::{self, Answer, Ask};
use super::state::{Issue, Repo, State};
use super::{Inner, shapes};

pub(super) fn issues(inner: &Inner, state: &State, ask: &Ask) -> Answer {
    let words = words(ask.param("q").unwrap_or_default());
    let kinds = [
        "is:issue",
        "is:pr",
        "is:pull-request",
        "type:issue",
        "type:pr",
    ];
    if !words.iter().any(|word| kinds.contains(&word.as_str())) {
        let message = "Query must include 'is:issue' or 'is:pull-request'";
        return Answer::invalid(json!([{ "message": message, "resource": "Search" }]));
    }
    let mut found: Vec<(&Repo, &Issue)> = state
        .repos
        .iter()
        .flat_map(|repo| repo.issues.iter().map(move |issue| (repo, issue)))
        .filter(|(repo, issue)| words.iter().all(|word| fits(repo, issue, word)))
        .collect();
    found.sort_by_key(|(_, issue)| issue.created_at);
    if ask.param("order") != Some("asc") {
        found.reverse();
    }
    let total = found.len();
    let all = found
        .into_iter()
        .map(|(repo, issue)| shapes::issue_json(inner, repo, issue));
    let (items, link) = rest::cut(inner, ask, all.collect());
    Answer {
        link,
        ..Answer::ok(json!({
            "total_count": total, "incomplete_results": false, "items": Value::Array(items),
        }))
    }
}

/// Splits at blanks. Quoted blanks do not split; the quotes are dropped.
pub(super) fn words(query: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    let mut chars = query.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' if quoted => words
                .last_mut()
                .into_iter()
                .for_each(|word| word.extend(chars.next())),
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().into_iter().for_each(|word| word.push(c)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

pub(super) fn fits(repo: &Repo, issue: &Issue, word: &str) -> bool {
    if let Some(rest) = word.strip_prefix('-') {
        return !fits(repo, issue, rest);
    }
    let Some((key, value)) = word.split_once(':') else {
        let text = format!("{} {}", issue.title, issue.body).to_lowercase();
        return text.contains(&word.to_lowercase());
    };
    match (key, value) {
        ("is" | "state", "open") => issue.open,
        ("is" | "state", "closed") => !issue.open,
        ("is" | "type", "issue") => issue.pull.is_none(),
        ("is" | "type", "pr" | "pull-request") => issue.pull.is_some(),
        ("label", value) => rest::has(issue, value),
        ("repo", value) => repo.full_name.eq_ignore_ascii_case(value),
        ("org" | "user", value) => repo.owner().eq_ignore_ascii_case(value),
        ("author", value) => issue.author.eq_ignore_ascii_case(value),
        ("assignee", value) => issue.assignees.iter().any(|login| login == value),
        _ => false,
    }
}
