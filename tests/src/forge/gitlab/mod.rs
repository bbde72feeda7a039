//! GitLab's REST API over the same state, with GitLab's own error messages.
//!
//! A merge request is a pull request of the state. Issues and merge requests are numbered apart, as on GitLab, so every
//! item is found by its kind and its `iid`; below that, the state names it by the number that it has on GitHub.

mod actions;
mod discussions;
mod graphql;
mod items;
mod merge_requests;
pub(super) mod pipelines;
pub(super) mod shapes;

use serde_json::{Value, json};

use super::Inner;
use super::rest::{Answer, Ask};
use super::state::{Issue, Keyset, Repo, State};
use super::{git, people, protection, reactions};
pub(super) use shapes::user_id;

/// Issues or merge requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Issue,
    MergeRequest,
}

impl Kind {
    pub(super) fn named(list: &str) -> Option<Self> {
        match list {
            "issues" => Some(Self::Issue),
            "merge_requests" => Some(Self::MergeRequest),
            _ => None,
        }
    }

    fn holds(self, issue: &Issue) -> bool {
        issue.pull.is_some() == (self == Self::MergeRequest)
    }

    /// The item of this kind with this `iid`.
    pub(super) fn find(self, repo: &Repo, iid: u64) -> Option<&Issue> {
        let mut issues = repo.issues.iter();
        issues.find(|issue| self.holds(issue) && issue.iid == iid)
    }
}

/// An item of a request, and what the request asks for below it.
#[derive(Clone, Copy)]
struct Place<'a> {
    repo: &'a str,
    kind: Kind,
    /// By which the state finds it.
    number: u64,
}

impl Place<'_> {
    fn find<'s>(&self, state: &'s State) -> Option<(&'s Repo, &'s Issue)> {
        let repo = state.repo(self.repo)?;
        let issue = repo.issue(self.number)?;
        self.kind.holds(issue).then_some((repo, issue))
    }

    /// The item as it is now.
    fn answer(&self, inner: &Inner, state: &State, status: u16) -> Answer {
        match self.find(state) {
            Some((repo, issue)) => {
                let mut value = shapes::item(inner, repo, issue);
                if issue.pull.is_some() {
                    value["head_pipeline"] = pipelines::of_head(repo, issue).into();
                }
                if let Some(pull) = issue.pull.as_ref().filter(|_| issue.open) {
                    let merges = git::can_merge(&repo.git_dir, &pull.head, &pull.base);
                    value["has_conflicts"] = (!merges).into();
                }
                Answer::new(status, value)
            }
            None => missing(""),
        }
    }
}

/// A 404 in GitLab's words: `404 Project Not Found`.
fn missing(what: &str) -> Answer {
    let what = match what {
        "" => "404 Not found".to_owned(),
        what => format!("404 {what} Not Found"),
    };
    Answer::new(404, json!({ "message": what }))
}

fn bad(message: &str) -> Answer {
    Answer::new(400, json!({ "message": message }))
}

pub(super) fn dispatch(inner: &Inner, state: &mut State, ask: &Ask) -> Answer {
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    match (ask.method.as_str(), segments.as_slice()) {
        ("POST", ["graphql"]) => graphql::authored(state, ask),
        ("GET", ["user"]) => {
            let mut me = shapes::user(&ask.account.login);
            // Clients compare its base with their own.
            me["web_url"] = inner.html(&ask.account.login).into();
            Answer::ok(me)
        }
        ("GET", ["version" | "metadata"]) => {
            Answer::ok(json!({ "version": "16.7.0", "revision": "0000000", "enterprise": false }))
        }
        ("GET", ["groups", group, "members", "all"]) => {
            people::members(inner, state, ask, people::Of::Group(group))
        }
        ("GET", ["groups", group, list]) => match Kind::named(list) {
            Some(kind) => of_group(inner, state, ask, group, kind),
            None => missing(""),
        },
        ("GET", [list @ ("issues" | "merge_requests")]) => match Kind::named(list) {
            Some(kind) => {
                let mine = ask.param("scope") != Some("all");
                let login = &ask.account.login;
                let all = state
                    .repos
                    .iter()
                    .filter(|repo| !repo.hidden)
                    .flat_map(|repo| items::of(repo, ask, kind));
                let own = all.filter(|(_, issue)| !mine || issue.author == *login);
                items::page(inner, ask, own.collect())
            }
            None => missing(""),
        },
        (_, ["projects", id, rest @ ..]) => project(inner, state, ask, id, rest),
        _ => Answer::new(404, json!({ "error": "404 Not Found" })),
    }
}

/// The items of a group and its subgroups. The namespace of a user is no group.
fn of_group(inner: &Inner, state: &State, ask: &Ask, group: &str, kind: Kind) -> Answer {
    let below = format!("{}/", group.to_lowercase());
    let is_in = |repo: &&Repo| repo.full_name.to_lowercase().starts_with(&below);
    let mut repos = state.repos.iter().filter(is_in).peekable();
    if repos.peek().is_none() || state.users.contains(group) {
        return missing("Group");
    }
    items::page(
        inner,
        ask,
        repos.flat_map(|repo| items::of(repo, ask, kind)).collect(),
    )
}

fn project(inner: &Inner, state: &mut State, ask: &Ask, id: &str, rest: &[&str]) -> Answer {
    let by_id = state.repos.iter().find(|repo| repo.id.to_string() == *id);
    let Some(name) = by_id
        .or_else(|| state.repo(id))
        .map(|repo| repo.full_name.clone())
    else {
        return match state.renamed(id) {
            Some(repo) => moved(inner, ask, repo.id),
            None => missing("Project"),
        };
    };
    let Some(repo) = state.repo(&name) else {
        return missing("Project");
    };
    if let Some(answer) = pipelines::dispatch(inner, state, ask, &name, rest) {
        return answer;
    }
    match (ask.method.as_str(), rest) {
        ("GET", []) => Answer::ok(shapes::project(inner, repo)),
        ("GET", ["labels"]) => Answer::page(inner, ask, shapes::labels(repo)),
        ("GET", ["events"]) => reactions::events(inner, ask, repo),
        ("GET", ["members", "all"]) => {
            people::members(inner, state, ask, people::Of::Project(&name))
        }
        ("GET" | "HEAD", ["repository", "files", path]) => file(ask, repo, path),
        ("GET", ["repository", "branches", branch]) => match protection::branch(repo, branch) {
            Some(branch) => Answer::ok(branch),
            None => missing("Branch"),
        },
        ("DELETE", ["repository", "branches", branch]) => {
            match git::remove_branch(&repo.git_dir, branch) {
                true => Answer::new(204, Value::Null),
                false => missing("Branch"),
            }
        }
        ("GET", ["protected_branches"]) => {
            Answer::page(inner, ask, protection::protected_branches(repo))
        }
        (method, [list @ ("issues" | "merge_requests"), rest @ ..]) => {
            let Some(kind) = Kind::named(list) else {
                return missing("");
            };
            match (method, rest, kind) {
                ("GET", [], kind) => {
                    let keyset = match kind {
                        Kind::Issue => state.keyset,
                        Kind::MergeRequest => Keyset::Ignored,
                    };
                    items::page_by(inner, ask, items::of(repo, ask, kind), keyset)
                }
                ("POST", [], Kind::Issue) => items::create(inner, state, ask, &name),
                ("POST", [], Kind::MergeRequest) => {
                    merge_requests::create(inner, state, ask, &name)
                }
                (_, [iid, rest @ ..], kind) => {
                    let Ok(iid) = iid.parse() else {
                        return bad("iid is invalid");
                    };
                    let Some(issue) = kind.find(repo, iid) else {
                        return missing("");
                    };
                    let place = Place {
                        repo: &name,
                        kind,
                        number: issue.number,
                    };
                    below_item(inner, state, ask, place, rest)
                }
                (_, [], _) => Answer::new(405, json!({ "error": "405 Not Allowed" })),
            }
        }
        _ => Answer::new(404, json!({ "error": "404 Not Found" })),
    }
}

fn below_item(
    inner: &Inner,
    state: &mut State,
    ask: &Ask,
    place: Place<'_>,
    rest: &[&str],
) -> Answer {
    let Some((_, issue)) = place.find(state).filter(|(_, issue)| !issue.deleted) else {
        return missing("");
    };
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let mut answer = place.answer(inner, state, 200);
            let is_request = place.kind == Kind::MergeRequest;
            if is_request && !state.finds_conflicts(place.repo, place.number) {
                answer.body["has_conflicts"] = false.into();
                answer.body["merge_status"] = "checking".into();
                answer.body["detailed_merge_status"] = "checking".into();
            }
            answer
        }
        ("PUT", []) => items::edit(inner, state, ask, place),
        ("PUT", ["merge"]) if place.kind == Kind::MergeRequest => {
            merge_requests::merge(inner, state, ask, place)
        }
        ("GET", ["resource_label_events"]) => {
            let events = issue.events.iter();
            let events = events.map(|event| shapes::label_event(issue, event));
            Answer::page(inner, ask, events.collect())
        }
        ("GET", ["links"]) if place.kind == Kind::Issue => {
            let blockers = state.blockers(place.repo, place.number).into_iter();
            let linked = blockers.map(|(repo, other)| {
                let mut linked = shapes::item(inner, repo, other);
                linked["link_type"] = "is_blocked_by".into();
                linked
            });
            Answer::page(inner, ask, linked.collect())
        }
        (_, ["notes", rest @ ..]) => discussions::notes(inner, state, ask, place, rest),
        (_, ["discussions", rest @ ..]) => discussions::dispatch(inner, state, ask, place, rest),
        _ => Answer::new(404, json!({ "error": "404 Not Found" })),
    }
}

/// A renamed project redirects to its id.
fn moved(inner: &Inner, ask: &Ask, id: u64) -> Answer {
    let rest: Vec<&str> = ask.path.split('/').skip(3).collect();
    let mut url = inner.api_url.clone();
    let path = format!("/api/v4/projects/{id}/{}", rest.join("/"));
    url.set_path(path.trim_end_matches('/'));
    url.set_query((!ask.raw_query.is_empty()).then_some(&ask.raw_query));
    match ask.method.as_str() {
        "GET" | "HEAD" => Answer {
            location: Some(url.to_string()),
            ..Answer::new(301, json!({ "message": "Moved Permanently" }))
        },
        _ => Answer::new(
            405,
            json!({ "message": "Non GET methods are not allowed for moved projects" }),
        ),
    }
}

fn file(ask: &Ask, repo: &Repo, path: &str) -> Answer {
    use base64::Engine;
    let Some(reference) = ask.param("ref") else {
        return Answer::new(400, json!({ "error": "ref is missing" }));
    };
    let Some(commit) = repo.sha(reference) else {
        return missing("Commit");
    };
    let place = format!("{commit}:{path}");
    let kind = git::try_out(&repo.git_dir, &["cat-file", "-t", &place]);
    if kind.as_deref().map(str::trim) != Some("blob") {
        return missing("File");
    }
    let text = git::must(&repo.git_dir, &["cat-file", "blob", &place]);
    Answer::ok(json!({
        "file_name": path.rsplit('/').next(), "file_path": path, "size": text.len(), "encoding": "base64",
        "content": base64::engine::general_purpose::STANDARD.encode(&text), "ref": reference,
        "commit_id": commit, "last_commit_id": commit, "execute_filemode": false,
    }))
}

/// A list that is an array, or names separated by commas.
fn names(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => text
            .split(',')
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect(),
        Value::Array(items) => items
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}
