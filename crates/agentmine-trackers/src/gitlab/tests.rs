//! What GitLab may do to a client, played by wiremock. The contract suite and `tests/it/gitlab.rs` cover the
//! ordinary paths over the fake forge.

use std::sync::LazyLock;
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::{GitLab, Secret};
use agentmine_runtime::permit::{BootInstant, Permit};
use chrono::Utc;
use serde_json::{Value, json};
use url::Url;
use wiremock::matchers::{header, method, path, query_param, query_param_is_missing};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::GitLabTracker;
use super::api::host_of;
use crate::forge::RequestLimits;
use crate::{LabelRequest, NewIssue, NewPullRequest, OurIssue, Tracker, TrackerError};

const TOKEN: &str = "glpat-secretsecretsecret";
const LABEL: &str = "coding agent";

/// A permit that lasts for the whole test.
static PERMIT: LazyLock<Permit> =
    LazyLock::new(|| Permit::of(BootInstant::now(), Duration::from_secs(600)));

fn tracker(server: &MockServer) -> GitLabTracker {
    tracker_of(server, &["group/sub/demo"], &[])
}

fn tracker_of(server: &MockServer, projects: &[&str], groups: &[&str]) -> GitLabTracker {
    let named = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    with_config(
        server,
        GitLab {
            projects: named(projects),
            groups: named(groups),
            ..GitLab::default()
        },
    )
}

fn with_config(server: &MockServer, config: GitLab) -> GitLabTracker {
    let config = GitLab {
        api_url: Url::parse(&format!("{}/api/v4/", server.uri())).unwrap(),
        token: Some(Secret::new(TOKEN)),
        ..config
    };
    let limits = RequestLimits {
        tries: 3,
        pause: Duration::from_millis(2),
        max_wait: Duration::from_secs(3),
        timeout: Duration::from_secs(2),
        turn: Duration::from_secs(1),
        max_body: 1 << 20,
    };
    GitLabTracker::with_limits(&config, limits).unwrap()
}

fn item(server: &MockServer) -> ItemRef {
    ItemRef {
        tracker: TrackerKind::GitLab,
        host: host_of(&Url::parse(&server.uri()).unwrap()).unwrap(),
        repo_id: "42".into(),
        repo_path: "group/sub/demo".into(),
        kind: ItemKind::Issue,
        number: 7,
    }
}

fn issue(iid: u64, updated_at: &str) -> Value {
    json!({
        "id": 100 + iid, "iid": iid, "project_id": 42, "title": "t", "description": null, "state": "opened",
        "web_url": "http://forge.test/7", "references": { "full": format!("group/sub/demo#{iid}") },
        "author": null, "labels": [LABEL], "assignees": [], "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": updated_at, "confidential": false,
    })
}

fn note(id: u64, author: u64, body: &str) -> Value {
    json!({
        "id": id, "author": { "id": author, "username": "bot" }, "body": body, "system": false,
        "created_at": "2026-01-01T00:00:00.000Z", "internal": false, "confidential": null,
    })
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

async fn on(server: &MockServer, verb: &str, at: &str, answer: ResponseTemplate) {
    Mock::given(method(verb))
        .and(path(format!("/api/v4{at}")))
        .respond_with(answer)
        .mount(server)
        .await;
}

async fn count(server: &MockServer, verb: &str, at: &str) -> usize {
    let all = server.received_requests().await.unwrap();
    let same = all.iter().filter(|request| {
        request.method.as_str() == verb && request.url.path() == format!("/api/v4{at}")
    });
    same.count()
}

async fn with_me() -> MockServer {
    let server = MockServer::start().await;
    let me = ok(json!({ "id": 5, "username": "bot" }));
    on(&server, "GET", "/user", me).await;
    server
}

fn new_pull() -> NewPullRequest {
    NewPullRequest {
        head: "x".into(),
        base: "main".into(),
        title: "t".into(),
        body: String::new(),
        draft: false,
    }
}

const NOTES: &str = "/projects/42/issues/7/notes";

/// GitLab serves 50,000 rows by offset.
#[tokio::test]
async fn a_list_by_offset_ends_at_the_servers_limit() {
    let server = with_me().await;
    on(&server, "GET", "/groups/octo/merge_requests", ok(json!([]))).await;
    let uri = server.uri();
    let next = move |request: &Request| {
        let page = request.url.query_pairs().find(|(key, _)| key == "page");
        let page: u64 = page.map_or(1, |(_, page)| page.parse().unwrap());
        let next = page + 1;
        let link = format!("<{uri}/api/v4/groups/octo/issues?page={next}>; rel=\"next\"");
        ok(json!([])).insert_header("link", link.as_str())
    };
    Mock::given(path("/api/v4/groups/octo/issues"))
        .respond_with(next)
        .mount(&server)
        .await;
    let tracker = tracker_of(&server, &[], &["octo"]);
    assert_eq!(tracker.candidates(LABEL).await.unwrap(), []);
    assert_eq!(tracker.skipped(), []);
    assert_eq!(count(&server, "GET", "/groups/octo/issues").await, 500);
}

/// Notes that the token may not read are taken out of a page after it was cut.
#[tokio::test]
async fn a_short_or_empty_page_of_notes_is_not_the_last_one() {
    let server = with_me().await;
    for (page, body) in [
        ("3", json!([note(9, 6, "last")])),
        ("2", json!([])),
        ("1", json!([note(1, 5, "first")])),
    ] {
        let mut answer = ok(body);
        let next: u32 = page.parse::<u32>().unwrap() + 1;
        if next < 4 {
            let link = format!("<{}/api/v4{NOTES}?page={next}>; rel=\"next\"", server.uri());
            answer = answer.insert_header("link", link.as_str());
        }
        let mock = Mock::given(path(format!("/api/v4{NOTES}")));
        match page {
            "1" => mock.respond_with(answer).mount(&server).await,
            page => {
                let mock = mock.and(query_param("page", page));
                mock.respond_with(answer)
                    .with_priority(1)
                    .mount(&server)
                    .await;
            }
        }
    }
    let comments = tracker(&server).comments(&item(&server)).await.unwrap();
    let seen: Vec<_> = comments
        .iter()
        .map(|it| (it.body.as_str(), it.ours))
        .collect();
    // A namesake is not us: only the id counts.
    assert_eq!(seen, [("first", true), ("last", false)]);
}

#[tokio::test]
async fn a_namesakes_marker_is_not_ours() {
    let server = with_me().await;
    let theirs = ok(json!([note(1, 6, "text\n\n<!-- m -->")]));
    on(&server, "GET", NOTES, theirs).await;
    let created = ResponseTemplate::new(201).set_body_json(note(2, 5, "text"));
    on(&server, "POST", NOTES, created).await;
    let (tracker, item) = (tracker(&server), item(&server));
    let id = tracker.upsert_comment(&item, "m", "text", &PERMIT);
    assert_eq!(id.await.unwrap(), "2");
    assert_eq!(count(&server, "POST", NOTES).await, 1);
}

/// The label itself may be deleted, and events may lag behind the item.
#[tokio::test]
async fn the_newest_event_of_the_label_decides() {
    let server = MockServer::start().await;
    let now = Utc::now().to_rfc3339();
    let event = |id: u64, action: &str, label: Value| json!({ "id": id, "action": action, "label": label, "created_at": "2026-01-02T00:00:00.000Z" });
    let named = |name: &str| json!({ "name": name });
    let cases = [
        (
            "2026-01-03T00:00:00.000Z",
            json!([
                event(3, "add", named(LABEL)),
                event(4, "remove", named(LABEL)),
                event(9, "add", named(LABEL)),
                event(11, "add", Value::Null),
                event(12, "add", named("Coding agent")),
            ]),
            Some("9"),
        ),
        (
            now.as_str(),
            json!([
                event(3, "add", named(LABEL)),
                event(4, "remove", named(LABEL))
            ]),
            None,
        ),
        (now.as_str(), json!([]), None),
        ("2026-01-03T00:00:00.000Z", json!([]), Some("item-107")),
    ];
    for (updated_at, events, expected) in cases {
        let at = "/api/v4/projects/42/issues/7";
        let issue = Mock::given(path(at)).respond_with(ok(issue(7, updated_at)));
        let _issue = issue.mount_as_scoped(&server).await;
        let events_at = format!("{at}/resource_label_events");
        let events = Mock::given(path(events_at)).respond_with(ok(events));
        let _events = events.mount_as_scoped(&server).await;
        let request = tracker(&server).label_request(&item(&server), LABEL).await;
        let found = match request.unwrap() {
            LabelRequest::By { trigger, .. } => Some(trigger),
            LabelRequest::Unknown => None,
            LabelRequest::Absent => panic!("it has the label"),
        };
        assert_eq!(found.as_deref(), expected);
    }
}

#[tokio::test]
async fn a_conflict_whose_merge_request_is_not_shown_yet_is_looked_up_again() {
    let server = MockServer::start().await;
    let list = "/projects/42/merge_requests";
    let said = json!({ "message": ["Another open merge request already exists for this source branch: !3"] });
    let conflict = ResponseTemplate::new(409).set_body_json(said);
    on(&server, "POST", list, conflict).await;
    let found = json!([{
        "iid": 3, "web_url": "u", "state": "opened", "draft": false, "source_branch": "x", "source_project_id": 42,
    }, {
        "iid": 4, "web_url": "u", "state": "opened", "draft": false, "source_branch": "x", "source_project_id": 43,
    }]);
    let at = format!("/api/v4{list}");
    let empty = Mock::given(method("GET"))
        .and(path(at))
        .and(query_param("state", "all"));
    let empty = empty.respond_with(ok(json!([]))).up_to_n_times(1);
    empty.with_priority(1).mount(&server).await;
    on(&server, "GET", list, ok(found)).await;
    let (tracker, item, new) = (tracker(&server), item(&server), new_pull());
    let pull = tracker.create_pull_request(&item, &new, &PERMIT);
    // That of the fork is not ours.
    assert_eq!(pull.await.unwrap().number, 3);
}

#[tokio::test]
async fn a_push_that_the_server_does_not_show_yet_is_waited_for() {
    let server = MockServer::start().await;
    let list = "/projects/42/merge_requests";
    let unknown = json!({ "message": { "source_branch": ["does not exist"] } });
    let at = format!("/api/v4{list}");
    let first = Mock::given(method("POST")).and(path(at));
    let first = first.respond_with(ResponseTemplate::new(400).set_body_json(unknown));
    let first = first.up_to_n_times(1).with_priority(1);
    first.mount(&server).await;
    let opened = json!({
        "iid": 3, "web_url": "u", "state": "opened", "draft": false, "source_branch": "x", "source_project_id": 42,
    });
    on(&server, "POST", list, ok(opened)).await;
    on(&server, "GET", list, ok(json!([]))).await;
    let (tracker, item, new) = (tracker(&server), item(&server), new_pull());
    let pull = tracker.create_pull_request(&item, &new, &PERMIT);
    assert_eq!(pull.await.unwrap().number, 3);
}

#[tokio::test]
async fn a_project_that_is_to_be_deleted_is_read_only() {
    let server = MockServer::start().await;
    let project = json!({
        "id": 42, "path_with_namespace": "group/sub/demo", "default_branch": "main", "http_url_to_repo": "u",
        "archived": false, "marked_for_deletion_on": "2026-11-30",
    });
    on(&server, "GET", "/projects/42", ok(project)).await;
    let error = tracker(&server).repository(&item(&server)).await;
    let error = error.unwrap_err().to_string();
    let expected = "group/sub/demo is to be deleted, so that nothing can be written to it. hint: restore it, or stop the task";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_project_without_merge_requests_is_refused_before_the_work() {
    for (level, is_refused) in [("disabled", true), ("private", false), ("enabled", false)] {
        let server = MockServer::start().await;
        let project = json!({
            "id": 42, "path_with_namespace": "group/sub/demo", "default_branch": "main",
            "http_url_to_repo": "http://forge.test/g/d.git", "merge_requests_access_level": level,
        });
        on(&server, "GET", "/projects/42", ok(project)).await;
        let found = tracker(&server).repository(&item(&server)).await;
        let said = found.err().map(|error| error.to_string());
        let names =
            |said: &String| said.contains("merge requests are turned off in group/sub/demo");
        assert_eq!(
            said.as_ref().is_some_and(names),
            is_refused,
            "{level}: {said:?}"
        );
        assert_eq!(said.is_some(), is_refused, "{level}: {said:?}");
    }
}

#[tokio::test]
async fn an_archived_project_is_skipped_while_it_is_archived() {
    let server = with_me().await;
    let project = |archived: bool| {
        ok(json!({
            "id": 42, "path_with_namespace": "group/sub/demo", "default_branch": "main", "http_url_to_repo": "u",
            "archived": archived,
        }))
    };
    let at = "/api/v4/projects/group%2Fsub%2Fdemo";
    // The first scan asks twice.
    let archived = Mock::given(method("GET")).and(path(at));
    let archived = archived.respond_with(project(true)).up_to_n_times(2);
    archived.mount(&server).await;
    let later = Mock::given(method("GET")).and(path(at));
    later.respond_with(project(false)).mount(&server).await;
    for list in ["issues", "merge_requests"] {
        on(
            &server,
            "GET",
            &format!("/projects/42/{list}"),
            ok(json!([])),
        )
        .await;
    }
    let tracker = tracker(&server);
    assert_eq!(tracker.candidates(LABEL).await.unwrap(), []);
    let skipped = tracker.skipped();
    assert_eq!(skipped.len(), 1);
    assert!(
        skipped[0].reason.contains("demo is archived"),
        "{skipped:?}"
    );
    assert_eq!(count(&server, "GET", "/projects/42/issues").await, 0);
    assert_eq!(tracker.candidates(LABEL).await.unwrap(), []);
    assert_eq!(tracker.skipped(), []);
    assert_ne!(count(&server, "GET", "/projects/42/issues").await, 0);
}

#[tokio::test]
async fn pages_are_followed_although_the_server_names_its_outer_address() {
    let server = MockServer::start().await;
    let project = json!({
        "id": 42, "path_with_namespace": "group/sub/demo", "default_branch": "main", "http_url_to_repo": "u",
    });
    let page = |number: u64| ok(json!([issue(number, "2026-01-03T00:00:00.000Z")]));
    let at = "/api/v4/projects/42/issues";
    for (second, next) in [(1, "https://git.example"), (2, "http://10.0.0.1:8080")] {
        let link = format!(
            "<{next}{at}?page={}&per_page=100>; rel=\"next\"",
            second + 1
        );
        let mock = Mock::given(method("GET")).and(path(at));
        let mock = match second {
            1 => mock.and(query_param_is_missing("page")),
            page => mock.and(query_param("page", page.to_string())),
        };
        let answer = page(second).insert_header("link", link.as_str());
        mock.respond_with(answer)
            .with_priority(1)
            .mount(&server)
            .await;
    }
    let last = Mock::given(method("GET")).and(path(at));
    let last = last.and(query_param("page", "3"));
    last.respond_with(page(3))
        .with_priority(1)
        .mount(&server)
        .await;
    for (at, body) in [
        ("/projects/group%2Fsub%2Fdemo", project),
        ("/projects/42/merge_requests", json!([])),
        ("/projects/42/issues/1/resource_label_events", json!([])),
        ("/projects/42/issues/2/resource_label_events", json!([])),
        ("/projects/42/issues/3/resource_label_events", json!([])),
    ] {
        on(&server, "GET", at, ok(body)).await;
    }
    let found = tracker(&server).candidates(LABEL).await.unwrap();
    let numbers: Vec<u64> = found.iter().map(|it| it.item.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[tokio::test]
async fn changes_are_asked_for_by_the_servers_clock() {
    let server = MockServer::start().await;
    let project = json!({
        "id": 42, "path_with_namespace": "group/sub/demo", "default_branch": "main", "http_url_to_repo": "u",
    });
    for (at, body) in [
        ("/projects/group%2Fsub%2Fdemo", project),
        ("/projects/42/issues", json!([])),
        ("/projects/42/merge_requests", json!([])),
    ] {
        let late = ok(body).insert_header("date", "Thu, 01 Jan 2026 10:00:00 GMT");
        on(&server, "GET", at, late).await;
    }
    let tracker = tracker(&server);
    for _ in 0..2 {
        tracker.candidates(LABEL).await.unwrap();
    }
    assert_eq!(since(&server).await, ["2026-01-01T09:55:00Z"; 2]);
}

/// The times since when changes were requested.
async fn since(server: &MockServer) -> Vec<String> {
    let requests = server.received_requests().await.unwrap();
    let since = requests.iter().flat_map(|it| it.url.query_pairs());
    let since = since.filter(|(key, _)| key == "updated_after");
    since.map(|(_, value)| value.into_owned()).collect()
}

/// A list of a single page is read whole each time.
#[tokio::test]
async fn changes_of_own_merge_requests_are_asked_for_by_the_servers_clock() {
    let server = MockServer::start().await;
    let empty = ok(json!([])).insert_header("date", "Thu, 01 Jan 2026 10:00:00 GMT");
    let next = format!(
        "<{}/api/v4/merge_requests?page=2>; rel=\"next\"",
        server.uri()
    );
    let first = empty.clone().insert_header("link", next.as_str());
    let second = Mock::given(path("/api/v4/merge_requests")).and(query_param("page", "2"));
    let second = second.respond_with(empty).with_priority(1);
    second.mount(&server).await;
    on(&server, "GET", "/merge_requests", first).await;
    let tracker = tracker(&server);
    for _ in 0..2 {
        tracker.open_pulls(&[item(&server)]).await.unwrap();
    }
    assert_eq!(since(&server).await, ["2026-01-01T09:55:00Z"]);
}

#[tokio::test]
async fn what_is_new_in_a_group_is_asked_for_by_the_servers_clock() {
    let server = MockServer::start().await;
    for list in ["issues", "merge_requests"] {
        let empty = ok(json!([])).insert_header("date", "Thu, 01 Jan 2026 10:00:00 GMT");
        on(&server, "GET", &format!("/groups/group/{list}"), empty).await;
    }
    let tracker = tracker_of(&server, &[], &["group"]);
    let places: Vec<ItemRef> = ["1", "2", "3"]
        .map(|id| ItemRef {
            repo_id: id.into(),
            repo_path: format!("group/p{id}"),
            ..item(&server)
        })
        .into();
    for expected in [3, 0, 0] {
        let news = tracker.with_news(places.clone()).await.unwrap();
        assert_eq!(news.len(), expected);
    }
    // The first list is requested by our clock: nothing is known of the server's.
    assert_eq!(since(&server).await[2..], ["2026-01-01T09:55:00Z"; 2]);
}

#[tokio::test]
async fn an_item_of_a_list_that_cannot_be_read_skips_itself() {
    let server = MockServer::start().await;
    let project = json!({
        "id": 42, "path_with_namespace": "group/sub/demo", "default_branch": "main", "http_url_to_repo": "u",
    });
    let mut odd = issue(1, "2026-01-03T00:00:00.000Z");
    odd["title"] = Value::Null;
    let mut homeless = issue(2, "2026-01-03T00:00:00.000Z");
    homeless["references"]["full"] = "nowhere".into();
    let list = json!([odd, homeless, issue(3, "2026-01-03T00:00:00.000Z")]);
    for (at, body) in [
        ("/projects/group%2Fsub%2Fdemo", project),
        ("/projects/42/issues", list),
        ("/projects/42/merge_requests", json!([])),
        ("/projects/42/issues/3/resource_label_events", json!([])),
    ] {
        on(&server, "GET", at, ok(body)).await;
    }
    let found = tracker(&server).candidates(LABEL).await.unwrap();
    let numbers: Vec<u64> = found.iter().map(|it| it.item.number).collect();
    assert_eq!(numbers, [3]);
}

#[tokio::test]
async fn a_project_without_a_branch_or_with_an_unsafe_address_is_refused() {
    for (branch, url, part) in [
        (Value::Null, "https://forge.test/g/d.git", "has no branch"),
        (
            "main".into(),
            "https://u:p@forge.test/g/d.git",
            "not plain https",
        ),
        ("main".into(), "ssh://git@forge.test/g/d", "not plain https"),
    ] {
        let server = MockServer::start().await;
        let project = json!({
            "id": 42, "path_with_namespace": "g/d", "default_branch": branch, "http_url_to_repo": url,
        });
        on(&server, "GET", "/projects/42", ok(project)).await;
        let error = tracker(&server)
            .repository(&item(&server))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn every_request_carries_the_token_and_no_error_does() {
    let server = MockServer::start().await;
    let echo = json!({ "message": format!("401 Unauthorized: {TOKEN}") });
    Mock::given(header("authorization", format!("Bearer {TOKEN}").as_str()))
        .respond_with(ResponseTemplate::new(401).set_body_json(echo))
        .mount(&server)
        .await;
    let error = tracker(&server).login().await.unwrap_err();
    assert!(
        matches!(error, TrackerError::Unauthorized { .. }),
        "{error}"
    );
    assert!(!format!("{error} {error:?}").contains(TOKEN), "{error}");
}

#[test]
fn a_configuration_without_token_or_projects_is_refused() {
    let mut config = GitLab::default();
    let error = GitLabTracker::new(&config).unwrap_err();
    assert!(
        matches!(error, TrackerError::Unauthorized { .. }),
        "{error}"
    );
    config.token = Some(Secret::new(TOKEN));
    let error = GitLabTracker::new(&config).unwrap_err();
    assert!(matches!(error, TrackerError::Invalid { .. }), "{error}");
    config.groups = vec!["group".into()];
    assert!(GitLabTracker::new(&config).is_ok());
}

#[tokio::test]
async fn what_the_token_does_not_allow_is_named() {
    let server = MockServer::start().await;
    let answers = [
        ("/api/v4/user", json!({ "id": 1, "username": "bot" })),
        (
            "/api/v4/personal_access_tokens/self",
            json!({ "scopes": ["read_api"] }),
        ),
        (
            "/api/v4/projects/group%2Fsub%2Fdemo",
            json!({ "permissions": { "project_access": { "access_level": 20 }, "group_access": null } }),
        ),
    ];
    for (at, body) in answers {
        Mock::given(method("GET"))
            .and(path(at))
            .respond_with(ResponseTemplate::new(200).set_body_json(body))
            .mount(&server)
            .await;
    }
    let access = tracker(&server).access().await.unwrap();
    assert_eq!(access.login, "bot");
    assert_eq!(access.scopes.unwrap(), ["read_api"]);
    let [scope, project] = access.missing.as_slice() else {
        panic!("{:?}", access.missing)
    };
    assert!(scope.contains("no scope `api`"), "{scope}");
    assert!(
        project.contains("not a Developer of group/sub/demo"),
        "{project}"
    );
}

fn merge_request(id: u64) -> Value {
    json!({
        "id": id, "iid": id, "project_id": 42, "source_project_id": 42, "state": "opened", "sha": "abc",
        "web_url": "http://forge.test/mr", "source_branch": "work", "target_branch": "main",
        "updated_at": "2026-01-01T00:00:00.000Z",
    })
}

/// An expired project token is replaced by one with its own user.
#[tokio::test]
async fn the_open_merge_requests_of_former_accounts_are_ours_too() {
    let server = with_me().await;
    for (author, scope, id) in [(None, "created_by_me", 1), (Some("old_bot"), "all", 2)] {
        let mut mock = Mock::given(path("/api/v4/merge_requests")).and(query_param("scope", scope));
        if let Some(author) = author {
            mock = mock.and(query_param("author_username", author));
        }
        mock.respond_with(ok(json!([merge_request(id)])))
            .mount(&server)
            .await;
    }
    let former = GitLab {
        projects: vec!["group/sub/demo".into()],
        former_logins: vec!["old_bot".into()],
        ..GitLab::default()
    };
    let tracker = with_config(&server, former);
    let open = tracker.open_pulls(&[item(&server)]).await.unwrap();
    let numbers: Vec<_> = open.pulls.iter().map(|pull| pull.number).collect();
    assert_eq!(numbers, [1, 2]);
}

/// A pipeline that a person started again leaves the jobs of the one before in the list.
#[tokio::test]
async fn of_the_jobs_of_a_name_the_newest_counts() {
    let server = with_me().await;
    let job = |id: u64, name: &str, status: &str| {
        json!({
            "id": id, "name": name, "status": status, "allow_failure": false, "description": null,
            "finished_at": "2026-01-01T00:00:00.000Z",
        })
    };
    let jobs = json!([
        job(11, "test", "failed"),
        job(12, "lint", "success"),
        job(21, "test", "success"),
        job(22, "lint", "failed"),
    ]);
    on(
        &server,
        "GET",
        "/projects/42/repository/commits/abc/statuses",
        ok(jobs),
    )
    .await;
    let pipelines = json!([{ "id": 2, "status": "failed", "updated_at": null }]);
    on(&server, "GET", "/projects/42/pipelines", ok(pipelines)).await;
    let tracker = tracker(&server);
    let checks = tracker.checks(&item(&server), "abc").await.unwrap();
    let red: Vec<_> = checks.red.iter().map(|red| red.name.as_str()).collect();
    assert_eq!(red, ["lint"]);
}

/// A server may fail on the events of one issue alone, for ever.
#[tokio::test]
async fn an_item_that_the_server_cannot_show_keeps_no_other_one_from_its_task() {
    let server = with_me().await;
    let issues = json!([
        issue(7, "2026-01-01T00:00:00.000Z"),
        issue(8, "2026-01-01T00:00:00.000Z")
    ]);
    on(&server, "GET", "/groups/octo/issues", ok(issues)).await;
    on(&server, "GET", "/groups/octo/merge_requests", ok(json!([]))).await;
    let broken = ResponseTemplate::new(500);
    on(
        &server,
        "GET",
        "/projects/42/issues/7/resource_label_events",
        broken,
    )
    .await;
    let event = json!([{
        "id": 3, "action": "add", "label": { "name": LABEL }, "user": { "id": 9, "username": "hana" },
        "created_at": "2026-01-01T00:00:00.000Z",
    }]);
    on(
        &server,
        "GET",
        "/projects/42/issues/8/resource_label_events",
        ok(event),
    )
    .await;
    let tracker = tracker_of(&server, &[], &["octo"]);
    let found = tracker.candidates(LABEL).await.unwrap();
    let numbers: Vec<_> = found.iter().map(|it| it.item.number).collect();
    assert_eq!(numbers, [8]);
}

/// Tokens of a project or a group have their own accounts; such a one is ours where the token is.
#[tokio::test]
async fn accounts_of_programs_are_known_by_field_and_name_and_our_own_is_ours() {
    let server = MockServer::start().await;
    let user = |id: u64, name: &str| json!({ "id": id, "username": name });
    let marked = |bot: bool| json!({ "id": 8, "username": "helper", "bot": bot });
    let said = |id: u64, author: Value| {
        json!({
            "id": id, "author": author, "body": "text", "system": false, "internal": false,
            "created_at": "2026-01-01T00:00:00.000Z",
        })
    };
    let notes = json!([
        said(1, user(5, "project_42_bot_ab12")),
        said(2, user(6, "project_42_bot_cd34")),
        said(3, user(7, "group_9_bot_ef56")),
        said(4, marked(true)),
        said(5, marked(false)),
        said(6, user(10, "project_42_bottom")),
        said(7, user(11, "project_manager")),
    ]);
    for (at, body) in [
        ("/api/v4/user", user(5, "project_42_bot_ab12")),
        ("/api/v4/projects/42/issues/7/notes", notes),
    ] {
        Mock::given(method("GET"))
            .and(path(at))
            .respond_with(ResponseTemplate::new(200).set_body_json(body))
            .mount(&server)
            .await;
    }
    let tracker = tracker(&server);
    let comments = tracker.comments(&item(&server)).await.unwrap();
    let programs: Vec<bool> = comments.iter().map(|it| it.author.is_program()).collect();
    assert_eq!(programs, [true, true, true, true, false, false, false]);
    let ours: Vec<bool> = comments.iter().map(|it| it.ours).collect();
    assert_eq!(ours, [true, false, false, false, false, false, false]);
    assert!(tracker.is_us(&comments[0].author).await.unwrap());
    assert!(!tracker.is_us(&comments[1].author).await.unwrap());
}

/// Once AgentMine has answered, what members of the project say among themselves asks for nothing.
#[tokio::test]
async fn internal_notes_are_no_part_of_a_thread() {
    let server = with_me().await;
    let note = |id: u64, author: u64, internal: bool| {
        let body = match author {
            5 => "It is so now. <!-- agentmine:task=1:x -->",
            _ => "Why?",
        };
        json!({
            "id": id, "author": { "id": author, "username": "x" }, "body": body, "system": false, "internal": internal,
            "created_at": "2026-01-01T00:00:00.000Z",
        })
    };
    let discussions = json!([
        { "id": "a", "notes": [note(1, 9, false), note(2, 5, false), note(3, 9, true)] },
        { "id": "b", "notes": [note(4, 9, true)] },
    ]);
    let at = "/projects/42/merge_requests/7/discussions";
    on(&server, "GET", at, ok(discussions)).await;
    let pull = ItemRef {
        kind: ItemKind::PullRequest,
        ..item(&server)
    };
    let threads = tracker(&server).threads(&pull).await.unwrap();
    let [thread] = threads.as_slice() else {
        panic!("{threads:?}");
    };
    assert_eq!(thread.comments, ["1", "2"]);
    assert!(thread.answered, "{thread:?}");
}

/// All issues of a large project take longer to list than a dashboard is held, and are more than the server shows.
#[tokio::test]
async fn an_issue_of_ours_is_looked_for_among_those_of_our_accounts() {
    let server = with_me().await;
    let mut own = issue(9, "2026-01-01T00:00:00.000Z");
    own["description"] = "text <!-- m -->".into();
    own["author"] = json!({ "id": 4, "username": "old_bot" });
    for (key, author, answer) in [
        ("author_id", "5", json!([])),
        ("author_username", "old_bot", json!([own])),
    ] {
        let mock = Mock::given(method("GET")).and(path("/api/v4/projects/42/issues"));
        let mock = mock.and(query_param(key, author));
        mock.respond_with(ok(answer)).mount(&server).await;
    }
    let config = GitLab {
        projects: vec!["group/sub/demo".into()],
        former_logins: vec!["old_bot".into()],
        ..GitLab::default()
    };
    let tracker = with_config(&server, config);
    let new = NewIssue {
        title: "t",
        body: "text <!-- m -->",
        marker: "<!-- m -->",
    };
    let found = tracker.issue_of_ours(&item(&server), &new, &PERMIT).await;
    assert_eq!(found.unwrap(), OurIssue::Found(9));
}
