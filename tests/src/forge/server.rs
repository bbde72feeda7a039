//! The forge's HTTP server: faults, authentication, routing to REST, git or the page, and the records.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::response::Response;
use base64::Engine;
use chrono::Utc;
use futures::StreamExt as _;
use http::{HeaderMap, Method, Request, StatusCode, header};
use serde_json::{Value, json};

use super::fault::{self, Kind};
use super::rest::{self, Answer, Api, Ask};
use super::state::{Account, Partition, Seen, Write};
use super::{Inner, apps, faults_of_people, git, gitlab, page};

const MAX_JSON: usize = 4 << 20;

pub(super) async fn handle(inner: Arc<Inner>, request: Request<Body>) -> Response {
    let method = request.method().to_string();
    let target = request.uri().to_string();
    let (request, asked) = with_query(request, &target).await;
    let fault = {
        let mut state = inner.lock();
        if state
            .accounts
            .keys()
            .any(|token| target.contains(token.as_str()))
        {
            state.leaks.push(format!("{method} {target}"));
        }
        fault::take(&mut state.faults, &method, &asked)
    };
    let partition = account(&inner, request.headers())
        .and_then(|account| inner.lock().partitions.get(&account.client).copied());
    let response = match partition {
        None => with_fault(&inner, request, fault).await,
        Some(Partition::Reset) => broken(),
        Some(Partition::AnswersLost) => with_fault(&inner, request, Some(Kind::DropAfter)).await,
        Some(Partition::Silence) => {
            // The client gives up, or the network is back and knows nothing of the connection.
            loop {
                let healed = inner.healed.notified();
                if !inner.is_partitioned(request.headers()) {
                    break broken();
                }
                healed.await;
            }
        }
    };
    let seen = Seen {
        at: Utc::now(),
        method,
        target,
        status: response.status().as_u16(),
    };
    inner.lock().seen.push(seen);
    inner.changed.notify_waiters();
    response
}

/// What a fault is matched with: the target, and below it what GraphQL is asked for, since all of that has one address.
async fn with_query(request: Request<Body>, target: &str) -> (Request<Body>, String) {
    if !target.ends_with("/graphql") {
        return (request, target.to_owned());
    }
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await;
    let body = body.unwrap_or_default();
    let asked = format!("{target}\n{}", String::from_utf8_lossy(&body));
    (Request::from_parts(head, Body::from(body)), asked)
}

async fn with_fault(inner: &Arc<Inner>, request: Request<Body>, fault: Option<Kind>) -> Response {
    match fault {
        None => route(inner, request).await,
        Some(Kind::Delay(by)) => {
            tokio::time::sleep(by).await;
            route(inner, request).await
        }
        Some(Kind::Late(by)) => {
            let response = route(inner, request).await;
            tokio::time::sleep(by).await;
            response
        }
        Some(Kind::Slow {
            late,
            bytes_a_second,
        }) => {
            tokio::time::sleep(late).await;
            slowed(route(inner, request).await, bytes_a_second)
        }
        Some(Kind::Drop) => broken(),
        Some(Kind::DropAfter) => {
            finish(route(inner, request).await).await;
            broken()
        }
        Some(Kind::StatusAfter(status)) => {
            finish(route(inner, request).await).await;
            plain(status, "{\"message\":\"injected after the effect\"}")
        }
        Some(Kind::Without(field)) => changed(route(inner, request).await, &field, None).await,
        Some(Kind::Renamed(field)) => {
            let name = format!("{field}_of_another_version");
            changed(route(inner, request).await, &field, Some(&name)).await
        }
        Some(Kind::Status {
            status,
            headers,
            body,
        }) => {
            let mut response = plain(status, &body);
            for (name, value) in headers {
                if let (Ok(name), Ok(value)) = (name.parse::<header::HeaderName>(), value.parse()) {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        }
    }
}

impl Inner {
    fn is_partitioned(&self, headers: &HeaderMap) -> bool {
        account(self, headers)
            .is_some_and(|account| self.lock().partitions.contains_key(&account.client))
    }
}

/// The same answer, of which so many bytes pass in a second.
fn slowed(response: Response, bytes_a_second: u32) -> Response {
    /// Each piece waits for its own time, which is more than a timer's precision.
    const PIECE: usize = 16 * 1024;
    let (parts, body) = response.into_parts();
    let pieces = body.into_data_stream().flat_map(|data| {
        let pieces: Vec<_> = match data {
            Ok(mut data) => std::iter::from_fn(move || {
                (!data.is_empty()).then(|| Ok(data.split_to(data.len().min(PIECE))))
            })
            .collect(),
            Err(error) => vec![Err(error)],
        };
        futures::stream::iter(pieces)
    });
    let slow = pieces.then(move |piece| async move {
        let bytes = piece.as_ref().map_or(0, Bytes::len);
        let share = bytes as f64 / f64::from(bytes_a_second);
        tokio::time::sleep(Duration::from_secs_f64(share)).await;
        piece
    });
    Response::from_parts(parts, Body::from_stream(slow))
}

/// The answer without a field of its object, or of those in its list, or with another name for it. In an answer to
/// GraphQL, which has all of its objects below `data`, in each of them.
async fn changed(response: Response, field: &str, name: Option<&str>) -> Response {
    let (mut parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    match &mut value {
        Value::Array(items) => items.iter_mut().for_each(|it| change(it, field, name)),
        one if one.get("data").is_some() => change_all(one, field, name),
        one => change(one, field, name),
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(value.to_string()))
}

fn change(value: &mut Value, field: &str, name: Option<&str>) {
    let object = value.as_object_mut();
    if let Some(object) = object
        && let Some(taken) = object.remove(field)
        && let Some(name) = name
    {
        object.insert(name.to_owned(), taken);
    }
}

fn change_all(value: &mut Value, field: &str, name: Option<&str>) {
    change(value, field, name);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|it| change_all(it, field, name)),
        Value::Object(object) => object
            .values_mut()
            .for_each(|it| change_all(it, field, name)),
        _ => {}
    }
}

/// Reads a streamed answer to its end, so that its effect is complete.
async fn finish(response: Response) {
    let _ = to_bytes(response.into_body(), usize::MAX).await;
}

/// A response whose body fails at once: hyper closes the connection before a byte is sent.
fn broken() -> Response {
    let failing = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("dropped"))]);
    Response::builder()
        .header(header::CONTENT_LENGTH, 1000)
        .body(Body::from_stream(failing))
        .unwrap_or_default()
}

fn plain(status: u16, body: &str) -> Response {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_owned()))
        .unwrap_or_default()
}

async fn route(inner: &Arc<Inner>, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    for speaks in [Api::GitHub, Api::GitLab] {
        if let Some(rest) = path.strip_prefix(speaks.base()) {
            return api(inner, speaks, rest.to_owned(), request).await;
        }
    }
    // Both forges have theirs there.
    if path == "/api/graphql" {
        let (request, asked) = with_query(request, &path).await;
        let speaks = match asked.contains("authoredMergeRequests") {
            true => Api::GitLab,
            false => Api::GitHub,
        };
        return api(inner, speaks, "/graphql".to_owned(), request).await;
    }
    if let Some((repo, rest)) = path.trim_start_matches('/').split_once(".git/") {
        return git_http(inner, repo, rest, request).await;
    }
    let inner = inner.clone();
    let html = tokio::task::spawn_blocking(move || page::render(&inner, &path)).await;
    match html {
        Ok(Some(html)) => Response::builder()
            .header(header::CONTENT_TYPE, "text/html; charset=utf-8")
            .header(
                header::CONTENT_SECURITY_POLICY,
                "default-src 'none'; style-src 'unsafe-inline'",
            )
            .body(Body::from(html))
            .unwrap_or_default(),
        _ => plain(404, "{\"message\":\"Not Found\"}"),
    }
}

async fn git_http(inner: &Arc<Inner>, repo: &str, rest: &str, request: Request<Body>) -> Response {
    let Some(account) = account(inner, request.headers()) else {
        let mut response = plain(401, "credentials are needed");
        response.headers_mut().insert(
            header::WWW_AUTHENTICATE,
            header::HeaderValue::from_static("Basic realm=\"forge\""),
        );
        return response;
    };
    let git_dir = {
        let state = inner.lock();
        let repo = state.repo(repo).or_else(|| state.renamed(repo));
        let repo = repo.filter(|repo| !repo.hidden);
        repo.map(|repo| (repo.git_dir.clone(), repo.archived))
    };
    let Some((git_dir, archived)) = git_dir else {
        return plain(404, "no such repository");
    };
    let query = request.uri().query().unwrap_or_default();
    let push = rest == "git-receive-pack" || query.contains("service=git-receive-pack");
    if let Some(grant) = &account.grant
        && !grant.git(repo, push)
    {
        return plain(403, "this token may not do that");
    }
    if push && archived {
        return plain(403, "This repository was archived so it is read-only.");
    }
    if push && !account.may_write {
        return plain(403, "this token may not push");
    }
    match git::serve(&git_dir, rest, &account, request).await {
        Ok(response) if rest == "git-receive-pack" => noted(inner, &account, response),
        Ok(response) => response,
        Err(error) => plain(500, &error.to_string()),
    }
}

/// The answer to a push, which is noted when git has ended.
fn noted(inner: &Arc<Inner>, account: &Account, response: Response) -> Response {
    let (inner, login) = (Arc::clone(inner), account.login.clone());
    let (parts, body) = response.into_parts();
    let end = futures::stream::once(async move { inner.note_push(&login) });
    let end = end.filter_map(|()| std::future::ready(None));
    let body = Body::from_stream(body.into_data_stream().chain(end));
    Response::from_parts(parts, body)
}

/// Whose token it is: GitLab's own header, `Bearer`, `token`, or the password (or user name) of basic authentication.
fn account(inner: &Inner, headers: &HeaderMap) -> Option<Account> {
    let candidates = tokens(headers)?;
    let state = inner.lock();
    let found = candidates.iter();
    let mut found = found.filter_map(|token| state.accounts.get(token));
    let is_installed = |id: u64| {
        let mut all = state.apps.iter().flat_map(|app| &app.installations);
        all.any(|installation| installation.id == id)
    };
    let valid = |account: &&Account| {
        let grant = account.grant.as_ref();
        grant.is_none_or(|grant| grant.until > Utc::now() && is_installed(grant.installation))
    };
    found.find(valid).cloned()
}

/// What may be the token of a request.
fn tokens(headers: &HeaderMap) -> Option<Vec<String>> {
    if let Some(token) = headers.get("private-token") {
        return Some(vec![token.to_str().ok()?.to_owned()]);
    }
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    Some(match scheme.to_ascii_lowercase().as_str() {
        "bearer" | "token" => vec![rest.trim().to_owned()],
        "basic" => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(rest.trim())
                .ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (user, password) = text.split_once(':')?;
            vec![password.to_owned(), user.to_owned()]
        }
        _ => Vec::new(),
    })
}

async fn api(inner: &Arc<Inner>, speaks: Api, path: String, request: Request<Body>) -> Response {
    let token = tokens(request.headers()).and_then(|all| all.into_iter().next());
    let token = token.unwrap_or_default();
    let signed = token.matches('.').count() == 2 && token.starts_with("ey");
    let known = account(inner, request.headers());
    let Some(account) = known.or_else(|| signed.then(Account::nobody)) else {
        return plain(
            401,
            match speaks {
                Api::GitHub => "{\"message\":\"Bad credentials\",\"status\":\"401\"}",
                Api::GitLab => "{\"message\":\"401 Unauthorized\"}",
            },
        );
    };
    let (parts, body) = request.into_parts();
    let body = match to_bytes(body, MAX_JSON).await {
        Ok(bytes) if bytes.is_empty() => Value::Null,
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => value,
            Err(_) => return plain(400, "{\"message\":\"Problems parsing JSON\"}"),
        },
        Err(_) => return plain(413, "{\"message\":\"too large\"}"),
    };
    let reads = matches!(parts.method, Method::GET | Method::HEAD) || path == "/graphql";
    let mut ask = Ask {
        api: speaks,
        method: parts.method.clone(),
        segments: path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(rest::unescape)
            .collect(),
        query: url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect(),
        path,
        raw_query: parts.uri.query().unwrap_or_default().to_owned(),
        body,
        account,
        repository: None,
    };
    let recursion = parts.headers.get("x-gitlab-event-uuid");
    let recursion = recursion.and_then(|it| it.to_str().ok().map(str::to_owned));
    let work = inner.clone();
    let installation = ask.account.grant.as_ref().map(|grant| grant.installation);
    let answer = tokio::task::spawn_blocking(move || {
        ask.locate(&work.lock());
        let of_app = apps::dispatch(&mut work.lock(), &token, &ask);
        let refused = || ask.account.grant.as_ref()?.refusal(&ask, reads);
        match of_app.or_else(refused) {
            Some(answer) => answer,
            None if signed => Answer::new(401, json!({ "message": "Bad credentials" })),
            None => answer(&work, &ask, reads, recursion.as_deref()),
        }
    })
    .await;
    let answer = answer.unwrap_or_else(|error| {
        Answer::new(
            500,
            json!({ "message": format!("the forge is broken: {error}") }),
        )
    });
    respond(inner, (speaks, installation), &parts.headers, answer)
}

fn answer(inner: &Inner, ask: &Ask, reads: bool, recursion: Option<&str>) -> Answer {
    let mut state = inner.lock().by(&ask.account.login, recursion);
    let installation = ask.account.grant.as_ref().map(|grant| grant.installation);
    if state
        .rate_of(installation)
        .is_some_and(|(left, reset)| *left == 0 && *reset > Utc::now())
    {
        return match ask.api {
            Api::GitHub => Answer::new(
                403,
                json!({ "message": "API rate limit exceeded for user" }),
            ),
            // Plain text.
            Api::GitLab => Answer::new(429, Value::from("Retry later\n")),
        };
    }
    if !reads && !ask.account.may_write {
        return Answer::new(
            403,
            match ask.api {
                Api::GitHub => {
                    json!({ "message": "Resource not accessible by personal access token" })
                }
                Api::GitLab => json!({
                    "error": "insufficient_scope", "scope": "api",
                    "error_description": "The request requires higher privileges than provided by the access token.",
                }),
            },
        );
    }
    let refused = faults_of_people::repository(&state, ask)
        .and_then(|repo| faults_of_people::refusal(repo, ask, reads));
    if let Some(answer) = refused {
        return answer;
    }
    let answer = match ask.api {
        Api::GitHub => rest::dispatch(inner, &mut state, ask),
        Api::GitLab => gitlab::dispatch(inner, &mut state, ask),
    };
    if !reads {
        state.writes.push(Write {
            at: Utc::now(),
            login: ask.account.login.clone(),
            client: ask.account.client.clone(),
            method: ask.method.to_string(),
            path: rest::unescape(&ask.path),
            body: ask.body.clone(),
            status: answer.status,
        });
    }
    answer
}

fn respond(
    inner: &Inner,
    (speaks, installation): (Api, Option<u64>),
    asked: &HeaderMap,
    answer: Answer,
) -> Response {
    let body = match &answer.body {
        Value::Null => Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        body => serde_json::to_vec(body).unwrap_or_default(),
    };
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let etag = format!("W/\"{:016x}\"", hasher.finish());
    let known = asked
        .get(header::IF_NONE_MATCH)
        .is_some_and(|value| value == etag.as_str());
    let unchanged = known && answer.status == 200;
    // On GitLab an unchanged answer counts.
    let free = unchanged && speaks == Api::GitHub;
    let (left, reset) = count(inner, installation, free);
    let (prefix, kind) = match (speaks, &answer.body) {
        (Api::GitHub, _) => ("x-ratelimit", "application/json; charset=utf-8"),
        (Api::GitLab, Value::String(_)) => ("ratelimit", "text/plain"),
        (Api::GitLab, _) => ("ratelimit", "application/json"),
    };
    let mut builder = Response::builder()
        .status(if unchanged {
            StatusCode::NOT_MODIFIED.as_u16()
        } else {
            answer.status
        })
        .header(header::CONTENT_TYPE, kind)
        .header(format!("{prefix}-limit"), 5000)
        .header(format!("{prefix}-remaining"), left)
        .header(format!("{prefix}-reset"), reset);
    if answer.status == 429 {
        let wait = (reset - Utc::now().timestamp()).max(0);
        builder = builder.header(header::RETRY_AFTER, wait);
    }
    if answer.status == 200 {
        builder = builder.header(header::ETAG, &etag);
    }
    if let Some(link) = &answer.link {
        builder = builder.header(header::LINK, link);
    }
    if let Some(location) = &answer.location {
        builder = builder.header(header::LOCATION, location);
    }
    for (name, value) in &answer.headers {
        builder = builder.header(*name, value);
    }
    let body = if unchanged { Vec::new() } else { body };
    builder.body(Body::from(body)).unwrap_or_default()
}

/// Counts a request towards the rate limit; as on GitHub, an unchanged answer is free.
fn count(inner: &Inner, installation: Option<u64>, free: bool) -> (u64, i64) {
    let mut state = inner.lock();
    match state.rate_of(installation) {
        Some((left, reset)) => {
            if !free {
                *left = left.saturating_sub(1);
            }
            (*left, reset.timestamp())
        }
        None => (4999, Utc::now().timestamp() + 3600),
    }
}
