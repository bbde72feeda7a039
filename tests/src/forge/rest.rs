//! REST requests: the part of GitHub's API that the trackers use, and a little more.

use base64::Engine;
use chrono::Utc;
use http::Method;
use serde_json::{Value, json};

use super::shapes::{comment_json, event_json, issue_json, labels_json, repo_json, user};
use super::state::{Account, Issue, Repo, State};
use super::{
    Inner, checks, git, graphql, organizations, people, protection, pulls, reactions, search,
};

/// Which forge's API a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    GitHub,
    GitLab,
}

impl Api {
    /// The path of its base, without a slash at its end.
    pub(super) fn base(self) -> &'static str {
        match self {
            Self::GitHub => "/api/v3",
            Self::GitLab => "/api/v4",
        }
    }

    /// Items of a page that asks for no number.
    fn per_page(self) -> usize {
        match self {
            Self::GitHub => 30,
            Self::GitLab => 20,
        }
    }
}

/// A parsed request.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) api: Api,
    pub(super) method: Method,
    /// Below the API's base, unescaped.
    pub(super) segments: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) path: String,
    pub(super) raw_query: String,
    pub(super) body: Value,
    pub(super) account: Account,
    /// On GitHub, the repository that it is about: its id and full name.
    pub(super) repository: Option<(u64, String)>,
}

impl Ask {
    /// Finds the repository that it is about.
    pub(super) fn locate(&mut self, state: &State) {
        let segments: Vec<&str> = self.segments.iter().map(String::as_str).collect();
        let repo = match (self.api, segments.as_slice()) {
            (Api::GitHub, ["repos", owner, name, ..]) => {
                let full_name = format!("{owner}/{name}");
                state.repo(&full_name).or_else(|| state.renamed(&full_name))
            }
            (Api::GitHub, ["repositories", id, ..]) => {
                state.repos.iter().find(|repo| repo.id.to_string() == *id)
            }
            _ => None,
        };
        self.repository = repo.map(|repo| (repo.id, repo.full_name.clone()));
    }

    /// How GitHub writes the path in the addresses of other pages: by the repository's id.
    fn path_of_pages(&self) -> String {
        let by_name = self.path.strip_prefix("/repos/");
        let rest = by_name.and_then(|path| path.splitn(3, '/').nth(2));
        match (&self.repository, rest) {
            (Some((id, _)), Some(rest)) => format!("/repositories/{id}/{rest}"),
            _ => self.path.clone(),
        }
    }

    pub(super) fn param(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.body[field].as_str()
    }

    fn number(&self, name: &str, default: usize) -> usize {
        let value = self.param(name).and_then(|value| value.parse().ok());
        value.unwrap_or(default)
    }
}

/// An answer, before its headers.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
    pub(super) link: Option<String>,
    pub(super) location: Option<String>,
    /// Others.
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Answer {
    pub(super) fn new(status: u16, body: Value) -> Self {
        Self {
            status,
            body,
            ..Self::default()
        }
    }

    pub(super) fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    pub(super) fn not_found() -> Self {
        Self::new(404, json!({ "message": "Not Found", "status": "404" }))
    }

    pub(super) fn invalid(errors: Value) -> Self {
        let body = json!({ "message": "Validation Failed", "errors": errors, "status": "422" });
        Self::new(422, body)
    }

    /// One page of a list, with the `Link` header.
    pub(super) fn page(inner: &Inner, ask: &Ask, all: Vec<Value>) -> Self {
        Self::page_of(inner, ask, all, |value| value)
    }

    /// The same of a long list, of which only the page gets its shape.
    pub(super) fn page_of<T>(
        inner: &Inner,
        ask: &Ask,
        all: Vec<T>,
        shape: impl Fn(T) -> Value,
    ) -> Self {
        let total = all.len();
        let (items, link) = cut(inner, ask, all);
        debug_assert!(items.len() <= total);
        let headers = match ask.api {
            Api::GitHub => Vec::new(),
            Api::GitLab => vec![
                ("x-total", total.to_string()),
                ("x-page", ask.number("page", 1).to_string()),
                (
                    "x-per-page",
                    ask.number("per_page", ask.api.per_page()).to_string(),
                ),
            ],
        };
        Self {
            link,
            headers,
            ..Self::ok(Value::Array(items.into_iter().map(shape).collect()))
        }
    }
}

/// The requested page of a list, and its `Link` header.
pub(super) fn cut<T>(inner: &Inner, ask: &Ask, all: Vec<T>) -> (Vec<T>, Option<String>) {
    let per_page = ask.number("per_page", ask.api.per_page()).clamp(1, 100);
    let page = ask.number("page", 1).max(1);
    let last = all.len().div_ceil(per_page).max(1);
    let items = all
        .into_iter()
        .skip((page - 1) * per_page)
        .take(per_page)
        .collect();
    let address = |to: usize| {
        let mut url = inner.api_url.clone();
        url.set_path(&format!("{}{}", ask.api.base(), ask.path_of_pages()));
        url.query_pairs_mut()
            .extend_pairs(ask.query.iter().filter(|(key, _)| key != "page"))
            .append_pair("page", &to.to_string());
        url
    };
    let mut links = Vec::new();
    if page < last {
        links.push(format!("<{}>; rel=\"next\"", address(page + 1)));
        links.push(format!("<{}>; rel=\"last\"", address(last)));
    }
    if page > 1 {
        links.push(format!("<{}>; rel=\"first\"", address(1)));
        links.push(format!("<{}>; rel=\"prev\"", address(page - 1)));
    }
    (items, (!links.is_empty()).then(|| links.join(", ")))
}

pub(super) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = (byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn dispatch(inner: &Inner, state: &mut State, ask: &Ask) -> Answer {
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["user"] if ask.account.is_app => Answer::new(
            403,
            json!({ "message": "Resource not accessible by integration" }),
        ),
        ["user"] => Answer::ok(user(&ask.account.login)),
        ["users", login] => Answer::ok(user(login)),
        ["orgs", org, "teams", team, "members"] => {
            people::team(inner, state, ask, &format!("{org}/{team}"))
        }
        ["orgs", org, "repos"] => organizations::repositories(inner, state, ask, org),
        ["installation", "repositories"] => organizations::of_installation(inner, state, ask),
        ["graphql"] => graphql::dispatch(inner, state, ask),
        ["rate_limit"] => Answer::ok(json!({ "rate": { "limit": 5000 } })),
        ["search", "issues"] => search::issues(inner, state, ask),
        ["repos", owner, name, rest @ ..] => {
            let full_name = format!("{owner}/{name}");
            if state.repo(&full_name).is_some() {
                return in_repo(inner, state, ask, &full_name, rest);
            }
            match state.renamed(&full_name) {
                Some(repo) => moved(inner, ask, repo.id),
                None => Answer::not_found(),
            }
        }
        ["repositories", id, rest @ ..] => {
            let found = state.repos.iter().find(|repo| repo.id.to_string() == *id);
            match found.map(|repo| repo.full_name.clone()) {
                Some(full_name) => in_repo(inner, state, ask, &full_name, rest),
                None => Answer::not_found(),
            }
        }
        _ => Answer::not_found(),
    }
}

/// A renamed repository redirects to its id.
fn moved(inner: &Inner, ask: &Ask, id: u64) -> Answer {
    let rest: Vec<&str> = ask.path.split('/').skip(4).collect();
    let mut url = inner.api_url.clone();
    url.set_path(&format!("/api/v3/repositories/{id}/{}", rest.join("/")));
    if rest.is_empty() {
        url.set_path(&format!("/api/v3/repositories/{id}"));
    }
    url.set_query((!ask.raw_query.is_empty()).then_some(&ask.raw_query));
    let status = if ask.method == Method::GET { 301 } else { 307 };
    Answer {
        location: Some(url.to_string()),
        ..Answer::new(
            status,
            json!({ "message": "Moved Permanently", "url": url.as_str() }),
        )
    }
}

fn in_repo(inner: &Inner, state: &mut State, ask: &Ask, name: &str, rest: &[&str]) -> Answer {
    let Some(repo) = state.repo(name) else {
        return Answer::not_found();
    };
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let mut shown = repo_json(inner, repo);
            let push = people::may_push(state, name, &ask.account.login);
            shown["permissions"] = json!({ "admin": false, "push": push, "pull": true });
            Answer::ok(shown)
        }
        ("GET", ["issues"]) => list_issues(inner, ask, repo),
        ("POST", ["issues"]) => create_issue(inner, state, ask, name),
        ("GET", ["labels"]) => Answer::page(inner, ask, all_labels(repo)),
        ("GET", ["contents", path @ ..]) => contents(ask, repo, &path.join("/")),
        ("GET", ["branches", branch @ ..]) => branch_json(repo, &branch.join("/")),
        // Some clients escape the slashes of a ref.
        ("DELETE", ["git", "refs", name @ ..]) => match name.join("/").strip_prefix("heads/") {
            Some(branch) => remove_branch(repo, branch),
            None => Answer::not_found(),
        },
        ("GET", ["rules", "branches", branch @ ..]) => protection::rules(repo, &branch.join("/")),
        ("GET", ["rulesets", id]) => protection::ruleset(id),
        ("GET", ["git", "ref", "heads", branch @ ..]) => branch_json(repo, &branch.join("/")),
        ("GET", ["commits", named, "check-runs"]) => checks::runs(inner, ask, repo, named),
        ("GET", ["commits", named, "status"]) => checks::status(repo, named),
        ("GET", ["actions", "jobs", id, "logs"]) => checks::log(inner, repo, id),
        ("GET", ["collaborators", login, "permission"]) => people::permission(state, name, login),
        ("GET", ["issues", "events"]) => {
            let mut events: Vec<_> = repo
                .issues
                .iter()
                .flat_map(|issue| issue.events.iter().map(move |event| (issue, event)))
                .collect();
            // The newest first.
            events.sort_by_key(|(_, event)| std::cmp::Reverse(event.id));
            let all = events.into_iter().map(|(issue, event)| {
                let mut shown = event_json(event);
                shown["issue"] = issue_json(inner, repo, issue);
                shown
            });
            Answer::page(inner, ask, all.collect())
        }
        ("GET", ["issues", "comments"]) => reactions::comments(inner, ask, repo),
        (_, [list @ ("issues" | "pulls"), "comments", id, "reactions"]) => {
            reactions::github(inner, state, ask, name, (list, id))
        }
        (_, ["issues", "comments", id]) => one_comment(inner, state, ask, name, id),
        (_, ["issues", number, rest @ ..]) => match number.parse() {
            Ok(number) => in_issue(inner, state, ask, name, number, rest),
            Err(_) => Answer::not_found(),
        },
        (_, ["pulls", rest @ ..]) => pulls::dispatch(inner, state, ask, name, rest),
        _ => Answer::not_found(),
    }
}

fn in_issue(
    inner: &Inner,
    state: &mut State,
    ask: &Ask,
    name: &str,
    number: u64,
    rest: &[&str],
) -> Answer {
    let Some((repo, issue)) = state
        .repo(name)
        .and_then(|repo| Some((repo, repo.issue(number)?)))
    else {
        return Answer::not_found();
    };
    if issue.deleted {
        return Answer::new(
            410,
            json!({ "message": "This issue was deleted", "status": "410" }),
        );
    }
    if let Some((to, new)) = &issue.moved {
        return transferred(inner, ask, (to, *new), rest);
    }
    match (ask.method.as_str(), rest) {
        ("GET", []) => Answer::ok(issue_json(inner, repo, issue)),
        ("PATCH", []) => edit_issue(inner, state, ask, name, number),
        ("GET", ["events" | "timeline"]) => {
            let labels = issue
                .events
                .iter()
                .map(|event| (event.id, event_json(event)));
            let titles = issue.edits.iter().filter(|edit| edit.of_title);
            let titles = titles.map(|edit| (edit.id, people::renamed_json(edit)));
            let mut all: Vec<(u64, Value)> = labels.chain(titles).collect();
            all.sort_by_key(|(id, _)| *id);
            Answer::page(inner, ask, all.into_iter().map(|(_, it)| it).collect())
        }
        ("GET", ["labels"]) => Answer::page(inner, ask, labels_json(issue)),
        ("GET", ["dependencies", "blocked_by"]) => {
            let blockers = state.blockers(name, number).into_iter();
            let blockers = blockers.map(|(repo, issue)| issue_json(inner, repo, issue));
            Answer::page(inner, ask, blockers.collect())
        }
        ("POST" | "PUT", ["labels"]) => add_labels(state, ask, name, number),
        ("DELETE", ["labels", label]) => {
            if !state.label(name, number, label, &ask.account.login, false) {
                return Answer::new(404, json!({ "message": "Label does not exist" }));
            }
            current_labels(state, name, number)
        }
        ("GET", ["comments"]) => {
            let all = issue
                .comments
                .iter()
                .map(|comment| comment_json(inner, repo, comment));
            Answer::page(inner, ask, all.collect())
        }
        ("POST", ["comments"]) => create_comment(inner, state, ask, name, number),
        ("POST" | "DELETE", ["assignees"]) => assign(inner, state, ask, name, number),
        _ => Answer::not_found(),
    }
}

/// A transferred issue redirects to where it is now.
fn transferred(inner: &Inner, ask: &Ask, (to, number): (&str, u64), rest: &[&str]) -> Answer {
    let mut url = inner.api_url.clone();
    let path = format!("/api/v3/repos/{to}/issues/{number}/{}", rest.join("/"));
    url.set_path(path.trim_end_matches('/'));
    url.set_query((!ask.raw_query.is_empty()).then_some(&ask.raw_query));
    let status = if ask.method == Method::GET { 301 } else { 307 };
    Answer {
        location: Some(url.to_string()),
        ..Answer::new(status, json!({ "message": "Moved Permanently" }))
    }
}

fn list_issues(inner: &Inner, ask: &Ask, repo: &Repo) -> Answer {
    let labels: Vec<&str> = ask
        .param("labels")
        .map(|labels| {
            labels
                .split(',')
                .filter(|label| !label.is_empty())
                .collect()
        })
        .unwrap_or_default();
    let wanted = ask.param("state").unwrap_or("open");
    let mut found: Vec<&Issue> = repo
        .issues
        .iter()
        .filter(|issue| issue.moved.is_none() && !issue.deleted)
        .filter(|issue| wanted == "all" || issue.open == (wanted == "open"))
        .filter(|issue| labels.iter().all(|label| has(issue, label)))
        .collect();
    if ask.param("direction") != Some("asc") {
        found.reverse();
    }
    let all = found
        .into_iter()
        .map(|issue| issue_json(inner, repo, issue));
    Answer::page(inner, ask, all.collect())
}

pub(super) fn has(issue: &Issue, label: &str) -> bool {
    issue
        .labels
        .iter()
        .any(|own| own.eq_ignore_ascii_case(label))
}

fn create_issue(inner: &Inner, state: &mut State, ask: &Ask, name: &str) -> Answer {
    let Some(title) = ask.text("title").filter(|title| !title.is_empty()) else {
        return Answer::invalid(json!([{ "field": "title", "code": "missing_field" }]));
    };
    let labels = strings(&ask.body["labels"]);
    let text = (title, ask.text("body").unwrap_or_default());
    let number = state.add_issue(name, &ask.account.login, text, &labels, None);
    let repo = state.repo(name);
    match repo.and_then(|repo| Some((repo, repo.issue(number?)?))) {
        Some((repo, issue)) => Answer::new(201, issue_json(inner, repo, issue)),
        None => Answer::not_found(),
    }
}

fn edit_issue(inner: &Inner, state: &mut State, ask: &Ask, name: &str, number: u64) -> Answer {
    let texts = (ask.text("title"), ask.text("body"));
    state.edit(name, number, texts, &ask.account.login);
    if let Some(issue) = state.repo_mut(name).and_then(|repo| repo.issue_mut(number)) {
        if let Some(open) = ask.text("state") {
            issue.open = open == "open";
        }
        issue.updated_at = Utc::now();
    }
    let repo = state.repo(name);
    match repo.and_then(|repo| Some((repo, repo.issue(number)?))) {
        Some((repo, issue)) => Answer::ok(issue_json(inner, repo, issue)),
        None => Answer::not_found(),
    }
}

fn add_labels(state: &mut State, ask: &Ask, name: &str, number: u64) -> Answer {
    let labels = match &ask.body {
        Value::Array(_) => strings(&ask.body),
        body => strings(&body["labels"]),
    };
    if labels.is_empty()
        || labels
            .iter()
            .any(|label| label.is_empty() || label.len() > 50)
    {
        return Answer::invalid(
            json!([{ "resource": "Label", "field": "name", "code": "invalid" }]),
        );
    }
    for label in &labels {
        state.label(name, number, label, &ask.account.login, true);
    }
    current_labels(state, name, number)
}

fn current_labels(state: &State, name: &str, number: u64) -> Answer {
    match state.repo(name).and_then(|repo| repo.issue(number)) {
        Some(issue) => Answer::ok(Value::Array(labels_json(issue))),
        None => Answer::not_found(),
    }
}

fn create_comment(inner: &Inner, state: &mut State, ask: &Ask, name: &str, number: u64) -> Answer {
    let body = ask.text("body").unwrap_or_default();
    if body.trim().is_empty() || body.chars().count() > 65_536 {
        return Answer::invalid(
            json!([{ "field": "body", "code": "invalid", "message": "body is too long or missing" }]),
        );
    }
    let comment = state.comment(name, number, &ask.account.login, body);
    match comment.zip(state.repo(name)) {
        Some((comment, repo)) => Answer::new(201, comment_json(inner, repo, &comment)),
        None => Answer::not_found(),
    }
}

fn one_comment(inner: &Inner, state: &mut State, ask: &Ask, name: &str, id: &str) -> Answer {
    let Some(repo) = state.repo_mut(name) else {
        return Answer::not_found();
    };
    let place = repo.issues.iter().enumerate().find_map(|(index, issue)| {
        let at = issue
            .comments
            .iter()
            .position(|comment| comment.id.to_string() == id)?;
        Some((index, at))
    });
    let Some((index, at)) = place else {
        return Answer::not_found();
    };
    let issue = &mut repo.issues[index];
    if ask.method != Method::GET && issue.comments[at].author != ask.account.login {
        return Answer::new(403, json!({ "message": "You cannot edit this comment" }));
    }
    match ask.method.as_str() {
        "PATCH" => {
            let comment = &mut issue.comments[at];
            comment.body = ask.body["body"].as_str().unwrap_or_default().to_owned();
            comment.edits += 1;
            comment.updated_at = Utc::now();
            issue.updated_at = comment.updated_at;
        }
        "DELETE" => {
            issue.comments.remove(at);
            return Answer::new(204, Value::Null);
        }
        _ => {}
    }
    let comment = issue.comments[at].clone();
    match state.repo(name) {
        Some(repo) => Answer::ok(comment_json(inner, repo, &comment)),
        None => Answer::not_found(),
    }
}

fn assign(inner: &Inner, state: &mut State, ask: &Ask, name: &str, number: u64) -> Answer {
    let who = strings(&ask.body["assignees"]);
    if let Some(issue) = state.repo_mut(name).and_then(|repo| repo.issue_mut(number)) {
        issue.assignees.retain(|login| !who.contains(login));
        if ask.method == Method::POST {
            issue.assignees.extend(who);
        }
        issue.updated_at = Utc::now();
    }
    let repo = state.repo(name);
    match repo.and_then(|repo| Some((repo, repo.issue(number)?))) {
        Some((repo, issue)) => Answer::new(201, issue_json(inner, repo, issue)),
        None => Answer::not_found(),
    }
}

fn contents(ask: &Ask, repo: &Repo, path: &str) -> Answer {
    let reference = ask.param("ref").unwrap_or(&repo.default_branch);
    let Some(commit) = repo.sha(reference).or_else(|| {
        let hash = reference.len() == 40 && reference.chars().all(|c| c.is_ascii_hexdigit());
        hash.then(|| reference.to_owned())
    }) else {
        return Answer::new(
            404,
            json!({ "message": format!("No commit found for the ref {reference}") }),
        );
    };
    let place = format!("{commit}:{path}");
    match git::try_out(&repo.git_dir, &["cat-file", "-t", &place])
        .as_deref()
        .map(str::trim)
    {
        Some("blob") => {}
        Some("tree") => {
            let names = git::must(&repo.git_dir, &["ls-tree", "--name-only", &place]);
            let entries = names.lines().map(|name| json!({ "name": name }));
            return Answer::ok(Value::Array(entries.collect()));
        }
        _ => return Answer::not_found(),
    }
    let text = git::must(&repo.git_dir, &["cat-file", "blob", &place]);
    let mut packed = base64::engine::general_purpose::STANDARD.encode(&text);
    // GitHub inserts line breaks, and clients have to cope with that.
    let mut at = 60;
    while at < packed.len() {
        packed.insert(at, '\n');
        at += 61;
    }
    let (packed, encoding) = match text.len() {
        0..=1_000_000 => (packed, "base64"),
        _ => (String::new(), "none"),
    };
    Answer::ok(json!({
        "type": "file", "encoding": encoding, "size": text.len(), "path": path,
        "name": path.rsplit('/').next(), "content": packed,
    }))
}

fn branch_json(repo: &Repo, branch: &str) -> Answer {
    match repo.sha(branch) {
        Some(sha) => Answer::ok(json!({
            "name": branch, "ref": format!("refs/heads/{branch}"),
            "commit": { "sha": sha }, "object": { "type": "commit", "sha": sha },
        })),
        None => Answer::not_found(),
    }
}

fn remove_branch(repo: &Repo, branch: &str) -> Answer {
    match git::remove_branch(&repo.git_dir, branch) {
        true => Answer::new(204, Value::Null),
        false => Answer::new(422, json!({ "message": "Reference does not exist" })),
    }
}

fn all_labels(repo: &Repo) -> Vec<Value> {
    let mut names: Vec<&String> = repo.issues.iter().flat_map(|issue| &issue.labels).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .map(|name| json!({ "name": name }))
        .collect()
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
