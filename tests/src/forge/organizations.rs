//! GitHub's lists of an organization's and of an installation's repositories.

use serde_json::{Value, json};

use super::rest::{self, Answer, Ask};
use super::state::{Repo, State};
use super::{Inner, shapes};

/// The repositories of an organization, by the time of their creation. A user's namespace is none, and one without a
/// repository is not known. What an App's token sees of it is public, and nothing here is.
pub(super) fn repositories(inner: &Inner, state: &State, ask: &Ask, name: &str) -> Answer {
    let own = |repo: &&Repo| repo.owner().eq_ignore_ascii_case(name);
    let mut found: Vec<&Repo> = state.repos.iter().filter(own).collect();
    if found.is_empty() || state.users.contains(name) {
        return Answer::not_found();
    }
    found.retain(|repo| !repo.hidden && !ask.account.is_app);
    let ascending = ask.param("direction") == Some("asc");
    found.sort_by_key(|repo| repo.id);
    if !ascending {
        found.reverse();
    }
    let all = found.into_iter().map(|repo| shapes::repo_json(inner, repo));
    Answer::page(inner, ask, all.collect())
}

/// What the token of an installation sees.
pub(super) fn of_installation(inner: &Inner, state: &State, ask: &Ask) -> Answer {
    let Some(grant) = &ask.account.grant else {
        let message = "You must authenticate with an installation access token";
        return Answer::new(403, json!({ "message": message }));
    };
    let covered = |repo: &&Repo| !repo.hidden && grant.covers(&repo.full_name);
    let found = state.repos.iter().filter(covered);
    let all: Vec<Value> = found.map(|repo| shapes::repo_json(inner, repo)).collect();
    let total = all.len();
    let (items, link) = rest::cut(inner, ask, all);
    Answer {
        link,
        ..Answer::ok(json!({ "total_count": total, "repositories": items }))
    }
}
