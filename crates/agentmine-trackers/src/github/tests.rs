//! What GitHub may do to a client, played by wiremock. The contract suite covers the ordinary paths
//! over the fake forge.

use std::time::{Duration, Instant};

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::{GitHub, Secret};
use agentmine_runtime::permit::{BootInstant, Permit};
use chrono::{SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};
use url::Url;
use wiremock::matchers::{
    header, header_exists, method, path, query_param, query_param_is_missing,
};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::GitHubTracker;
use super::api::{host_of, split_path};
use crate::forge::{RequestLimits, clone_url};
use crate::{BranchRemoval, Marker, NewIssue, NewPullRequest, OurIssue, Tracker, TrackerError};

const TOKEN: &str = "ghp_secretsecretsecret";
const LABEL: &str = "coding agent";

/// A permit that lasts for the whole test.
fn permit() -> Permit {
    Permit::of(BootInstant::now(), std::time::Duration::from_secs(600))
}

fn tracker(server: &MockServer) -> GitHubTracker {
    tracker_of(&server.uri(), &["octo/demo"])
}

fn tracker_of(api: &str, repositories: &[&str]) -> GitHubTracker {
    tracker_with(api, repositories, None)
}

fn tracker_with(api: &str, repositories: &[&str], query: Option<&str>) -> GitHubTracker {
    let config = GitHub {
        api_url: Url::parse(api).unwrap(),
        token: Some(Secret::new(TOKEN)),
        repositories: repositories.iter().map(ToString::to_string).collect(),
        query: query.map(str::to_owned),
        ..GitHub::default()
    };
    let limits = RequestLimits {
        tries: 3,
        pause: Duration::from_millis(2),
        max_wait: Duration::from_secs(3),
        timeout: Duration::from_secs(2),
        turn: Duration::from_secs(1),
        max_body: 1 << 20,
    };
    GitHubTracker::with_limits(&config, limits).unwrap()
}

fn item(server: &MockServer) -> ItemRef {
    ItemRef {
        tracker: TrackerKind::GitHub,
        host: host_of(&Url::parse(&server.uri()).unwrap()).unwrap(),
        repo_id: "42".into(),
        repo_path: "octo/demo".into(),
        kind: ItemKind::Issue,
        number: 7,
    }
}

fn repo(id: u64) -> Value {
    json!({ "id": id, "full_name": "octo/demo", "default_branch": "main", "clone_url": "http://forge.test/octo/demo.git" })
}

fn issue(server: &MockServer, number: u64, updated_at: &str) -> Value {
    json!({
        "id": 100 + number, "number": number, "title": "t", "body": null, "state": "open",
        "html_url": "http://forge.test/7", "repository_url": format!("{}/repos/octo/demo", server.uri()),
        "user": null, "labels": [{ "name": LABEL }], "assignees": [], "updated_at": updated_at,
    })
}

async fn on(server: &MockServer, verb: &str, at: &str, answer: ResponseTemplate) {
    Mock::given(method(verb))
        .and(path(at))
        .respond_with(answer)
        .mount(server)
        .await;
}

async fn with_repo() -> MockServer {
    let server = MockServer::start().await;
    on(&server, "GET", "/repos/octo/demo", ok(repo(42))).await;
    server
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

async fn count(server: &MockServer, verb: &str, at: &str) -> usize {
    let all = server.received_requests().await.unwrap();
    let same = |request: &&Request| request.method.as_str() == verb && request.url.path() == at;
    all.iter().filter(same).count()
}

#[tokio::test]
async fn a_short_limit_is_waited_for() {
    let server = MockServer::start().await;
    let limited = ResponseTemplate::new(429).insert_header("retry-after", "1");
    Mock::given(path("/user"))
        .respond_with(limited)
        .up_to_n_times(1)
        .mount(&server)
        .await;
    on(&server, "GET", "/user", ok(json!({ "login": "bot" }))).await;
    let begin = Instant::now();
    assert_eq!(tracker(&server).login().await.unwrap(), "bot");
    assert!(begin.elapsed() >= Duration::from_millis(900));
}

#[tokio::test]
async fn a_long_limit_is_reported_and_no_further_request_is_made() {
    let server = MockServer::start().await;
    let limited = ResponseTemplate::new(403)
        .insert_header("x-ratelimit-remaining", "0")
        .insert_header(
            "x-ratelimit-reset",
            (Utc::now().timestamp() + 600).to_string().as_str(),
        );
    on(&server, "GET", "/user", limited).await;
    let tracker = tracker(&server);
    for _ in 0..2 {
        match tracker.login().await.unwrap_err() {
            TrackerError::RateLimited { until, .. } => {
                assert!(until - Utc::now() > TimeDelta::seconds(500));
            }
            error => panic!("{error}"),
        }
    }
    assert_eq!(count(&server, "GET", "/user").await, 1);
}

/// A tracker whose GraphQL answers first with this error, and then that nobody edited the item.
async fn with_graphql_error(error: Value, answer: ResponseTemplate) -> MockServer {
    let server = with_repo().await;
    on(
        &server,
        "GET",
        "/repos/octo/demo/issues/7/events",
        ok(json!([])),
    )
    .await;
    let said = json!({ "data": null, "errors": [error] });
    Mock::given(path("/graphql"))
        .respond_with(answer.set_body_json(said))
        .up_to_n_times(1)
        .mount(&server)
        .await;
    let item = json!({ "lastEditedAt": null, "editor": null, "userContentEdits": { "nodes": [] } });
    let data = json!({ "data": { "repository": { "issueOrPullRequest": item } } });
    on(&server, "POST", "/graphql", ok(data)).await;
    server
}

#[tokio::test]
async fn a_limit_in_the_errors_of_graphql_is_waited_for() {
    let error = json!({ "type": "RATE_LIMITED", "message": "API rate limit exceeded" });
    let limited = ResponseTemplate::new(200).insert_header("x-ratelimit-remaining", "0");
    let soon = (Utc::now().timestamp() + 1).to_string();
    let short = limited
        .clone()
        .insert_header("x-ratelimit-reset", soon.as_str());
    let server = with_graphql_error(error.clone(), short).await;
    let edits = tracker(&server).edits(&item(&server), Utc::now()).await;
    assert!(edits.unwrap().is_empty());
    assert_eq!(count(&server, "POST", "/graphql").await, 2);

    let late = (Utc::now().timestamp() + 600).to_string();
    let long = limited.insert_header("x-ratelimit-reset", late.as_str());
    let server = with_graphql_error(error, long).await;
    let tracker = tracker(&server);
    let edits = tracker.edits(&item(&server), Utc::now()).await;
    let error = edits.unwrap_err();
    assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
    assert_eq!(count(&server, "POST", "/graphql").await, 1);
    // The limit of GraphQL is not that of REST.
    let requested = tracker.requested(&item(&server), "1").await;
    assert!(requested.unwrap().is_none());
}

#[tokio::test]
async fn an_error_of_graphql_without_a_type_is_tried_again() {
    let said = "Something went wrong while executing your query. Please include `1` when reporting this issue.";
    let error = json!({ "message": said });
    let server = with_graphql_error(error, ResponseTemplate::new(200)).await;
    let edits = tracker(&server).edits(&item(&server), Utc::now()).await;
    assert!(edits.unwrap().is_empty());
    let error = json!({ "type": "NOT_FOUND", "message": "Could not resolve to a Repository" });
    let server = with_graphql_error(error, ResponseTemplate::new(200)).await;
    let edits = tracker(&server).edits(&item(&server), Utc::now()).await;
    let error = edits.unwrap_err();
    assert!(matches!(error, TrackerError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_limited_write_is_sent_again_since_it_did_not_happen() {
    let server = with_repo().await;
    let labels = "/repos/octo/demo/issues/7/labels";
    let limited = ResponseTemplate::new(403)
        .insert_header("retry-after", "0")
        .set_body_json(json!({ "message": "You have exceeded a secondary rate limit" }));
    Mock::given(path(labels))
        .respond_with(limited)
        .up_to_n_times(1)
        .mount(&server)
        .await;
    on(&server, "POST", labels, ok(json!([]))).await;
    let tracker = tracker(&server);
    tracker
        .set_labels(&item(&server), &["x".into()], &[], &permit())
        .await
        .unwrap();
    assert_eq!(count(&server, "POST", labels).await, 2);
}

#[tokio::test]
async fn refused_credentials_name_the_variable_and_never_the_token() {
    let server = MockServer::start().await;
    let echo = json!({ "message": format!("Bad credentials: {TOKEN}") });
    on(
        &server,
        "GET",
        "/user",
        ResponseTemplate::new(401).set_body_json(echo),
    )
    .await;
    let error = tracker(&server).login().await.unwrap_err();
    assert!(
        matches!(error, TrackerError::Unauthorized { .. }),
        "{error}"
    );
    let text = format!("{error} {error:?}");
    assert!(text.contains("GITHUB_PERSONAL_ACCESS_TOKEN"), "{text}");
    assert!(!text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn an_echoed_token_is_in_no_refusal() {
    let server = with_repo().await;
    let echo = json!({ "message": format!("no: {TOKEN}") });
    let labels = "/repos/octo/demo/issues/7/labels";
    on(
        &server,
        "POST",
        labels,
        ResponseTemplate::new(422).set_body_json(echo),
    )
    .await;
    let error = tracker(&server)
        .set_labels(&item(&server), &["x".into()], &[], &permit())
        .await
        .unwrap_err();
    assert!(matches!(error, TrackerError::Refused { .. }));
    assert!(!format!("{error:?}").contains(TOKEN));
}

#[tokio::test]
async fn a_server_fault_is_tried_again_and_then_reported() {
    let server = MockServer::start().await;
    Mock::given(path("/user"))
        .respond_with(ResponseTemplate::new(502))
        .up_to_n_times(2)
        .mount(&server)
        .await;
    on(&server, "GET", "/user", ok(json!({ "login": "bot" }))).await;
    assert_eq!(tracker(&server).login().await.unwrap(), "bot");

    let server = MockServer::start().await;
    on(&server, "GET", "/user", ResponseTemplate::new(503)).await;
    let error = tracker(&server).login().await.unwrap_err();
    assert!(matches!(error, TrackerError::Unavailable { .. }));
    assert_eq!(count(&server, "GET", "/user").await, 3);
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let tracker = tracker_of(&format!("http://{closed}/"), &["octo/demo"]);
    let error = tracker.login().await.unwrap_err();
    assert!(matches!(error, TrackerError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn all_pages_are_read() {
    let server = with_repo().await;
    let second = format!(
        "<{}/repos/octo/demo/issues?page=2>; rel=\"next\", <x>; rel=\"last\"",
        server.uri()
    );
    Mock::given(path("/repos/octo/demo/issues"))
        .and(query_param("page", "2"))
        .respond_with(ok(json!([issue(&server, 2, "2026-01-01T00:00:00Z")])))
        .mount(&server)
        .await;
    let first = ok(json!([issue(&server, 1, "2026-01-01T00:00:00Z")]))
        .insert_header("link", second.as_str());
    on(&server, "GET", "/repos/octo/demo/issues", first).await;
    let event = json!([{ "id": 5, "event": "labeled", "label": { "name": LABEL } }]);
    for number in [1, 2] {
        on(
            &server,
            "GET",
            &format!("/repos/octo/demo/issues/{number}/events"),
            ok(event.clone()),
        )
        .await;
    }
    let found = tracker(&server).candidates(LABEL).await.unwrap();
    let numbers: Vec<u64> = found.iter().map(|one| one.item.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(found[0].trigger, "5");
}

#[tokio::test]
async fn a_next_page_elsewhere_gets_no_token() {
    let elsewhere = MockServer::start().await;
    let server = with_repo().await;
    let link = format!("<{}/issues?page=2>; rel=\"next\"", elsewhere.uri());
    let first = ok(json!([])).insert_header("link", link.as_str());
    on(&server, "GET", "/repos/octo/demo/issues", first).await;
    let error = tracker(&server).candidates(LABEL).await.unwrap_err();
    assert!(error.to_string().contains("another origin"), "{error}");
    assert!(elsewhere.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn pages_in_a_circle_end() {
    let server = with_repo().await;
    let link = format!(
        "<{}/repos/octo/demo/issues?page=2>; rel=\"next\"",
        server.uri()
    );
    let page = ok(json!([])).insert_header("link", link.as_str());
    on(&server, "GET", "/repos/octo/demo/issues", page).await;
    let error = tracker(&server).candidates(LABEL).await.unwrap_err();
    assert!(error.to_string().contains("no end"), "{error}");
}

#[tokio::test]
async fn a_redirect_elsewhere_gets_no_token() {
    let elsewhere = MockServer::start().await;
    let server = MockServer::start().await;
    let target = format!("{}/user", elsewhere.uri());
    let moved = ResponseTemplate::new(301).insert_header("location", target.as_str());
    on(&server, "GET", "/user", moved).await;
    assert!(tracker(&server).login().await.is_err());
    assert!(elsewhere.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_unchanged_list_is_not_read_again_and_asks_for_no_events() {
    let server = with_repo().await;
    let list = "/repos/octo/demo/issues";
    Mock::given(path(list))
        .and(header("if-none-match", "\"v1\""))
        .respond_with(ResponseTemplate::new(304))
        .mount(&server)
        .await;
    let full =
        ok(json!([issue(&server, 7, "2026-01-01T00:00:00Z")])).insert_header("etag", "\"v1\"");
    on(&server, "GET", list, full).await;
    let events = "/repos/octo/demo/issues/7/events";
    let event = json!([{ "id": 5, "event": "labeled", "label": { "name": LABEL } }]);
    on(&server, "GET", events, ok(event)).await;
    let tracker = tracker(&server);
    let first = tracker.candidates(LABEL).await.unwrap();
    assert_eq!(first, tracker.candidates(LABEL).await.unwrap());
    assert_eq!(first.len(), 1);
    assert_eq!(
        (
            count(&server, "GET", list).await,
            count(&server, "GET", events).await
        ),
        (2, 1)
    );
}

/// GitHub shows whole seconds, and events may lag behind the list of items.
#[tokio::test]
async fn a_label_set_again_within_the_same_second_is_another_trigger() {
    let server = with_repo().await;
    let now = Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true);
    let issues = ok(json!([issue(&server, 1, &now)]));
    on(&server, "GET", "/repos/octo/demo/issues", issues).await;
    let tracker = tracker(&server);
    for trigger in ["3", "9"] {
        let labelled = json!([{ "id": trigger.parse::<u64>().unwrap(), "event": "labeled", "label": { "name": LABEL } }]);
        let at = "/repos/octo/demo/issues/1/events";
        let events = Mock::given(method("GET")).and(path(at));
        let _served = events
            .respond_with(ok(labelled))
            .mount_as_scoped(&server)
            .await;
        let found = tracker.candidates(LABEL).await.unwrap();
        assert_eq!(found[0].trigger, trigger);
    }
}

#[tokio::test]
async fn the_newest_labelling_is_the_trigger_and_a_lagging_one_waits() {
    let server = with_repo().await;
    let now = Utc::now().to_rfc3339();
    on(
        &server,
        "GET",
        "/repos/octo/demo/issues",
        ok(json!([
            issue(&server, 1, "2026-01-01T00:00:00Z"),
            issue(&server, 2, &now),
            issue(&server, 3, "2026-01-01T00:00:00Z"),
            issue(&server, 4, &now),
        ])),
    )
    .await;
    let event = |id: u64, event: &str, label: &str| json!({ "id": id, "event": event, "label": { "name": label } });
    let events = [
        json!([
            event(3, "labeled", "Coding Agent"),
            event(4, "unlabeled", LABEL),
            event(9, "labeled", LABEL),
            event(11, "labeled", "bug")
        ]),
        json!([event(3, "labeled", LABEL), event(4, "unlabeled", LABEL)]),
        json!([{ "id": 1, "event": "closed" }]),
        json!([]),
    ];
    for (number, events) in events.into_iter().enumerate() {
        let at = format!("/repos/octo/demo/issues/{}/events", number + 1);
        on(&server, "GET", &at, ok(events)).await;
    }
    let found = tracker(&server).candidates(LABEL).await.unwrap();
    let triggers: Vec<(u64, &str)> = found
        .iter()
        .map(|one| (one.item.number, one.trigger.as_str()))
        .collect();
    assert_eq!(triggers, [(1, "9"), (3, "item-103")]);
}

#[tokio::test]
async fn a_missing_repository_does_not_stop_the_others() {
    let server = with_repo().await;
    on(&server, "GET", "/repos/octo/demo/issues", ok(json!([]))).await;
    let tracker = tracker_of(&server.uri(), &["octo/gone", "octo/demo"]);
    assert_eq!(tracker.candidates(LABEL).await.unwrap(), []);
}

#[tokio::test]
async fn an_archived_repository_is_skipped_while_it_is_archived() {
    let server = MockServer::start().await;
    let mut archived = repo(42);
    archived["archived"] = true.into();
    let at = "/repos/octo/demo";
    let mock = Mock::given(method("GET")).and(path(at));
    let mock = mock.respond_with(ok(archived)).up_to_n_times(2);
    mock.mount(&server).await;
    on(&server, "GET", at, ok(repo(42))).await;
    let list = "/repos/octo/demo/issues";
    let unchanged = Mock::given(path(list)).and(header("if-none-match", "\"v1\""));
    let unchanged = unchanged.respond_with(ResponseTemplate::new(304));
    unchanged.mount(&server).await;
    let full = json!([issue(&server, 7, "2026-01-01T00:00:00Z")]);
    on(
        &server,
        "GET",
        list,
        ok(full).insert_header("etag", "\"v1\""),
    )
    .await;
    let event = json!([{ "id": 5, "event": "labeled", "label": { "name": LABEL } }]);
    on(
        &server,
        "GET",
        "/repos/octo/demo/issues/7/events",
        ok(event),
    )
    .await;
    let tracker = tracker(&server);
    for _ in 0..2 {
        // It is no fault of the scan as a whole.
        assert_eq!(tracker.candidates(LABEL).await.unwrap(), []);
        let skipped = tracker.skipped();
        assert_eq!(skipped.len(), 1);
        assert!(
            skipped[0].reason.contains("octo/demo is archived"),
            "{skipped:?}"
        );
    }
    assert_eq!(tracker.candidates(LABEL).await.unwrap().len(), 1);
    assert_eq!(tracker.skipped(), []);
}

#[tokio::test]
async fn what_concerns_one_repository_or_item_skips_nothing_else() {
    let server = with_repo().await;
    let forbidden = json!({ "message": "Resource protected by organization SAML enforcement." });
    let refusal = ResponseTemplate::new(403).set_body_json(forbidden);
    on(&server, "GET", "/repos/octo/secret/issues", refusal).await;
    let mut odd = issue(&server, 3, "2026-01-01T00:00:00Z");
    odd["title"] = Value::Null;
    let list = json!([
        issue(&server, 1, "2026-01-01T00:00:00Z"),
        issue(&server, 2, "2026-01-01T00:00:00Z"),
        odd,
    ]);
    on(&server, "GET", "/repos/octo/demo/issues", ok(list)).await;
    // The first was transferred since it was listed.
    let gone = ResponseTemplate::new(404);
    on(&server, "GET", "/repos/octo/demo/issues/1/events", gone).await;
    let events = json!([
        { "id": null, "event": "labeled" },
        { "id": 5, "event": "labeled", "label": { "name": LABEL } },
    ]);
    on(
        &server,
        "GET",
        "/repos/octo/demo/issues/2/events",
        ok(events),
    )
    .await;
    let tracker = tracker_of(&server.uri(), &["octo/secret", "octo/demo"]);
    let found = tracker.candidates(LABEL).await.unwrap();
    let numbers: Vec<u64> = found.iter().map(|one| one.item.number).collect();
    assert_eq!(numbers, [2]);

    let only = tracker_of(&server.uri(), &["octo/secret"]);
    let error = only.candidates(LABEL).await.unwrap_err();
    assert!(matches!(error, TrackerError::Forbidden { .. }), "{error}");
    assert!(error.to_string().contains("SAML"), "{error}");
}

#[tokio::test]
async fn an_issue_is_gone_if_it_was_deleted_or_if_issues_were_turned_off() {
    for (said, why) in [
        ("This issue was deleted", "the item was deleted"),
        (
            "Issues are disabled for this repo",
            "issues were turned off in the repository",
        ),
    ] {
        let server = with_repo().await;
        let gone = ResponseTemplate::new(410).set_body_json(json!({ "message": said }));
        on(&server, "GET", "/repos/octo/demo/issues/7", gone).await;
        let found = tracker(&server).item(&item(&server)).await.unwrap();
        assert_eq!(found.closed(), Some(why));
    }
}

#[tokio::test]
async fn a_branch_that_a_rule_keeps_is_not_taken_for_one_that_is_gone() {
    for (said, is_gone) in [
        ("Reference does not exist", true),
        (
            "Repository rule violations found\n\nCannot delete this branch\n\n",
            false,
        ),
    ] {
        let server = with_repo().await;
        let at = json!({ "object": { "sha": "c1" } });
        on(&server, "GET", "/repos/octo/demo/git/ref/heads/x", ok(at)).await;
        let refusal = ResponseTemplate::new(422).set_body_json(json!({ "message": said }));
        on(
            &server,
            "DELETE",
            "/repos/octo/demo/git/refs/heads/x",
            refusal,
        )
        .await;
        let (tracker, item, permit) = (tracker(&server), item(&server), permit());
        match tracker.remove_branch(&item, "x", "c1", &permit).await {
            Ok(BranchRemoval::Gone) => assert!(is_gone, "{said}"),
            Err(TrackerError::Refused { detail, .. }) => {
                assert!(!is_gone && detail.contains("Cannot delete"), "{detail}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_repository_without_pull_requests_is_refused_before_the_work() {
    for (has, is_refused) in [
        (json!(false), true),
        (json!(true), false),
        (Value::Null, false),
    ] {
        let server = MockServer::start().await;
        let mut shown = repo(42);
        shown["has_pull_requests"] = has;
        on(&server, "GET", "/repos/octo/demo", ok(shown)).await;
        let found = tracker(&server).repository(&item(&server)).await;
        let said = found.err().map(|error| error.to_string());
        let names = |said: &String| said.contains("pull requests are turned off in octo/demo");
        assert_eq!(said.as_ref().is_some_and(names), is_refused, "{said:?}");
        assert_eq!(said.is_some(), is_refused, "{said:?}");
    }
}

#[tokio::test]
async fn a_token_that_lacks_single_sign_on_gets_its_own_hint() {
    let server = with_repo().await;
    let forbidden = json!({ "message": "Resource protected by organization SAML enforcement." });
    let refusal = ResponseTemplate::new(403)
        .insert_header(
            "x-github-sso",
            "required; url=https://github.com/orgs/octo/sso?authorization_request=A1",
        )
        .set_body_json(forbidden);
    on(&server, "GET", "/repos/octo/demo/issues", refusal).await;
    let error = tracker(&server)
        .candidates(LABEL)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("authorize the token for"), "{error}");
    assert!(!error.contains("authorization_request"), "{error}");
    assert!(!error.contains("read and write"), "{error}");
}

/// The search answers 200 without what belongs to them.
#[tokio::test]
async fn organizations_that_the_search_omits_are_reported() {
    let server = with_repo().await;
    let partial = ok(json!({ "items": [] })).insert_header(
        "x-github-sso",
        "partial-results; organizations=21955855,20582480",
    );
    let first = Mock::given(path("/search/issues")).respond_with(partial);
    let first = first.up_to_n_times(2).with_priority(1);
    first.mount(&server).await;
    on(&server, "GET", "/search/issues", ok(json!({ "items": [] }))).await;
    let tracker = tracker_with(&server.uri(), &[], Some("label:x"));
    assert!(tracker.candidates(LABEL).await.unwrap().is_empty());
    let skipped = tracker.skipped();
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(
        skipped[0].reason.contains("21955855,20582480"),
        "{skipped:?}"
    );
    // The owner of the token has authorized it.
    assert!(tracker.candidates(LABEL).await.unwrap().is_empty());
    assert_eq!(tracker.skipped(), []);
}

/// The limit ends the search for pull requests; the issues were found before.
#[tokio::test]
async fn what_was_read_before_the_search_is_limited_is_used() {
    let server = with_repo().await;
    let listed = json!([issue(&server, 1, "2026-01-01T00:00:00Z")]);
    on(&server, "GET", "/repos/octo/demo/issues", ok(listed)).await;
    let event = json!([{ "id": 5, "event": "labeled", "label": { "name": LABEL } }]);
    for number in [1, 2] {
        let at = format!("/repos/octo/demo/issues/{number}/events");
        on(&server, "GET", &at, ok(event.clone())).await;
    }
    let limited = ResponseTemplate::new(403)
        .insert_header("retry-after", "600")
        .set_body_json(json!({ "message": "You have exceeded a secondary rate limit." }));
    let searched = json!({ "items": [issue(&server, 2, "2026-01-01T00:00:00Z")] });
    let first = Mock::given(path("/search/issues")).respond_with(ok(searched));
    let first = first.up_to_n_times(1).with_priority(1);
    first.mount(&server).await;
    on(&server, "GET", "/search/issues", limited).await;
    let tracker = tracker_with(&server.uri(), &["octo/demo"], Some("org:octo"));
    let found = tracker.candidates(LABEL).await.unwrap();
    let numbers: Vec<u64> = found.iter().map(|it| it.item.number).collect();
    assert_eq!(numbers, [1, 2]);
    let skipped = tracker.skipped();
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0].what, "the search");
    let reason = &skipped[0].reason;
    assert!(
        reason.contains("limits the rate of requests until"),
        "{reason}"
    );
}

/// 403, 404, 5xx, broken JSON and a list that is none, each in its own repository beside a sound one.
#[tokio::test]
async fn one_repositorys_fault_stops_no_others_scan_and_is_reported_until_it_ends() {
    let server = with_repo().await;
    on(&server, "GET", "/user", ok(json!({ "login": "bot" }))).await;
    let event = json!([{ "id": 5, "event": "labeled", "label": { "name": LABEL } }]);
    let list = json!([issue(&server, 1, "2026-01-01T00:00:00Z")]);
    on(&server, "GET", "/repos/octo/demo/issues", ok(list)).await;
    on(
        &server,
        "GET",
        "/repos/octo/demo/issues/1/events",
        ok(event),
    )
    .await;
    let forbidden = ResponseTemplate::new(403)
        .insert_header("x-accepted-github-permissions", "issues=read")
        .set_body_json(json!({ "message": "Resource not accessible by integration" }));
    let broken = ResponseTemplate::new(200).set_body_string("{\"id\": 1,");
    let faults = [
        ("octo/forbidden", forbidden),
        ("octo/gone", ResponseTemplate::new(404)),
        ("octo/failing", ResponseTemplate::new(500)),
        ("octo/bad-gateway", ResponseTemplate::new(502)),
        ("octo/broken", broken),
        ("octo/list", ok(json!({ "id": 42 }))),
    ];
    let mut names = Vec::new();
    for (name, answer) in faults {
        on(&server, "GET", &format!("/repos/{name}/issues"), answer).await;
        names.push(name);
    }
    names.push("octo/demo");
    let tracker = tracker_of(&server.uri(), &names);
    for _ in 0..2 {
        let found = tracker.candidates(LABEL).await.unwrap();
        assert_eq!(found.len(), 1);
        let skipped: Vec<String> = tracker.skipped().into_iter().map(|it| it.what).collect();
        let mut expected = names[..6].to_vec();
        expected.sort_unstable();
        assert_eq!(skipped, expected);
    }
    let skipped = tracker.skipped();
    let forbidden = skipped.iter().find(|it| it.what == "octo/forbidden");
    let reason = &forbidden.unwrap().reason;
    assert!(
        reason.contains("needs the permission issues=read"),
        "{reason}"
    );

    let server = with_repo().await;
    Mock::given(path("/repos/octo/late/issues"))
        .respond_with(ResponseTemplate::new(404))
        .up_to_n_times(1)
        .mount(&server)
        .await;
    let mut late = repo(43);
    late["full_name"] = "octo/late".into();
    on(&server, "GET", "/repos/octo/late", ok(late)).await;
    for name in ["demo", "late"] {
        on(
            &server,
            "GET",
            &format!("/repos/octo/{name}/issues"),
            ok(json!([])),
        )
        .await;
    }
    let tracker = tracker_of(&server.uri(), &["octo/late", "octo/demo"]);
    tracker.candidates(LABEL).await.unwrap();
    assert_eq!(tracker.skipped().len(), 1);
    tracker.candidates(LABEL).await.unwrap();
    assert_eq!(tracker.skipped(), []);
}

/// Twenty items of one repository: three requests at first, one conditional one while nothing changes, and three for an
/// item that is added.
#[tokio::test]
async fn a_scan_costs_three_requests_at_first_and_one_that_is_free_afterwards() {
    let server = with_repo().await;
    let list = "/repos/octo/demo/issues";
    let items = |numbers: std::ops::RangeInclusive<u64>| {
        let items = numbers.map(|number| issue(&server, number, "2026-01-01T00:00:00Z"));
        ok(Value::Array(items.collect()))
    };
    let event = |number: u64| json!({ "id": 500 + number, "event": "labeled", "label": { "name": LABEL }, "issue": { "number": number } });
    Mock::given(path(list))
        .and(header("if-none-match", "\"v1\""))
        .respond_with(ResponseTemplate::new(304))
        .up_to_n_times(2)
        .mount(&server)
        .await;
    let first = items(1..=20).insert_header("etag", "\"v1\"");
    Mock::given(path(list))
        .respond_with(first)
        .up_to_n_times(1)
        .mount(&server)
        .await;
    on(&server, "GET", list, items(1..=21)).await;
    let events = ok(Value::Array((1..=20).map(event).collect()));
    on(&server, "GET", "/repos/octo/demo/issues/events", events).await;
    let of_late = "/repos/octo/demo/issues/21/events";
    on(&server, "GET", of_late, ok(json!([event(21)]))).await;
    let tracker = tracker(&server);
    let mut asked = 0;
    let mut requests = async || {
        let before = asked;
        asked = server.received_requests().await.unwrap().len();
        asked - before
    };
    let found = tracker.candidates(LABEL).await.unwrap();
    assert_eq!(requests().await, 3);
    assert_eq!(found.len(), 20);
    assert!(
        found
            .iter()
            .all(|it| it.trigger == (500 + it.item.number).to_string())
    );
    for _ in 0..2 {
        assert_eq!(tracker.candidates(LABEL).await.unwrap(), found);
        assert_eq!(requests().await, 1);
    }
    let more = tracker.candidates(LABEL).await.unwrap();
    assert_eq!(requests().await, 3);
    assert_eq!((more.len(), more[20].trigger.as_str()), (21, "521"));
}

/// What is not on an item is not removed: the answer to the first write says what is.
#[tokio::test]
async fn a_label_move_is_two_writes() {
    let server = with_repo().await;
    let labels = "/repos/octo/demo/issues/7/labels";
    let shown = json!([{ "name": "bug" }, { "name": "Coding Agent" }, { "name": "coding agent processing" }]);
    on(&server, "POST", labels, ok(shown)).await;
    let deleted = "/repos/octo/demo/issues/7/labels/coding%20agent";
    on(&server, "DELETE", deleted, ok(json!([]))).await;
    let absent = ["coding agent", "coding agent done", "coding agent failed"];
    tracker(&server)
        .set_labels(
            &item(&server),
            &["coding agent processing".into()],
            &absent.map(String::from),
            &permit(),
        )
        .await
        .unwrap();
    let writes = server.received_requests().await.unwrap();
    let writes = writes.iter().filter(|it| it.method.as_str() != "GET");
    assert_eq!(writes.count(), 2);
}

/// An item may have a hundred labels, of which the server shows thirty if nobody asks for more.
#[tokio::test]
async fn a_label_beyond_the_first_thirty_is_removed_too() {
    let server = with_repo().await;
    let labels = "/repos/octo/demo/issues/7/labels";
    let all: Vec<Value> = (0..40)
        .map(|n| json!({ "name": format!("l{n}") }))
        .collect();
    let page = Mock::given(method("GET")).and(path(labels));
    let page = page.and(query_param("per_page", "100"));
    page.respond_with(ok(Value::Array(all.clone())))
        .with_priority(1)
        .mount(&server)
        .await;
    on(&server, "GET", labels, ok(Value::Array(all[..30].to_vec()))).await;
    let removed = format!("{labels}/l39");
    on(&server, "DELETE", &removed, ok(json!([]))).await;
    tracker(&server)
        .set_labels(&item(&server), &[], &["l39".into()], &permit())
        .await
        .unwrap();
    assert_eq!(count(&server, "DELETE", &removed).await, 1);
}

/// A server that is away is not asked for each of its repositories.
#[tokio::test]
async fn a_server_that_is_away_ends_the_scan_early() {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .respond_with(ResponseTemplate::new(500))
        .mount(&server)
        .await;
    let names: Vec<String> = (0..60).map(|n| format!("octo/r{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let error = tracker_of(&server.uri(), &names).candidates(LABEL).await;
    let error = error.unwrap_err();
    assert!(matches!(error, TrackerError::Unavailable { .. }), "{error}");
    let asked = server.received_requests().await.unwrap().len();
    assert!(asked < 60, "{asked} requests");
}

#[tokio::test]
async fn an_odd_search_result_skips_itself() {
    let server = with_repo().await;
    let mut homeless = issue(&server, 1, "2026-01-01T00:00:00Z");
    homeless["repository_url"] = "http://forge.test/elsewhere".into();
    let mut hidden = issue(&server, 2, "2026-01-01T00:00:00Z");
    hidden["repository_url"] = format!("{}/repos/octo/hidden", server.uri()).into();
    let found =
        json!({ "items": [homeless, hidden, {}, issue(&server, 4, "2026-01-01T00:00:00Z")] });
    on(&server, "GET", "/search/issues", ok(found)).await;
    on(
        &server,
        "GET",
        "/repos/octo/hidden",
        ResponseTemplate::new(403),
    )
    .await;
    let event = json!([{ "id": 5, "event": "labeled", "label": { "name": LABEL } }]);
    on(
        &server,
        "GET",
        "/repos/octo/demo/issues/4/events",
        ok(event),
    )
    .await;
    let config = GitHub {
        api_url: Url::parse(&server.uri()).unwrap(),
        token: Some(Secret::new(TOKEN)),
        repositories: Vec::new(),
        query: Some("org:octo".into()),
        ..GitHub::default()
    };
    let tracker = GitHubTracker::with_limits(&config, RequestLimits::default()).unwrap();
    let found = tracker.candidates(LABEL).await.unwrap();
    let numbers: Vec<u64> = found.iter().map(|one| one.item.number).collect();
    assert_eq!(numbers, [4]);
}

#[tokio::test]
async fn a_server_that_names_a_time_is_not_asked_before_it() {
    let server = MockServer::start().await;
    let down = ResponseTemplate::new(503).insert_header("retry-after", "600");
    on(&server, "GET", "/user", down).await;
    let tracker = tracker(&server);
    for _ in 0..3 {
        tracker.login().await.unwrap_err();
    }
    assert_eq!(count(&server, "GET", "/user").await, 1);
}

#[tokio::test]
async fn the_oldest_item_is_first_across_repositories() {
    let server = with_repo().await;
    let other = json!({ "id": 43, "full_name": "octo/other", "default_branch": "main", "clone_url": "http://forge.test/octo/other.git" });
    on(&server, "GET", "/repos/octo/other", ok(other)).await;
    let event = json!([{ "id": 5, "event": "labeled", "label": { "name": LABEL } }]);
    for (repo, number, year) in [("demo", 1, 2024), ("demo", 2, 2022), ("other", 3, 2023)] {
        let events = format!("/repos/octo/{repo}/issues/{number}/events");
        on(&server, "GET", &events, ok(event.clone())).await;
        let mut issue = issue(&server, number, "2026-01-01T00:00:00Z");
        issue["created_at"] = format!("{year}-01-01T00:00:00Z").into();
        let list = format!("/repos/octo/{repo}/issues");
        Mock::given(path(&list))
            .and(query_param("sort", "created"))
            .and(query_param("direction", "asc"))
            .respond_with(ok(json!([issue])))
            .up_to_n_times(1)
            .mount(&server)
            .await;
        on(&server, "GET", &list, ok(json!([]))).await;
    }
    let tracker = tracker_of(&server.uri(), &["octo/demo", "octo/other"]);
    let found = tracker.candidates(LABEL).await.unwrap();
    let numbers: Vec<u64> = found.iter().map(|one| one.item.number).collect();
    assert_eq!(numbers, [3, 1]);
}

#[tokio::test]
async fn another_repository_under_the_same_name_is_not_taken() {
    let server = MockServer::start().await;
    on(&server, "GET", "/repos/octo/demo", ok(repo(43))).await;
    let tracker = tracker(&server);
    let error = tracker
        .set_labels(&item(&server), &["x".into()], &[], &permit())
        .await
        .unwrap_err();
    assert!(matches!(error, TrackerError::NotFound { .. }), "{error}");
    assert_eq!(
        count(&server, "POST", "/repos/octo/demo/issues/7/labels").await,
        0
    );
}

#[tokio::test]
async fn label_names_are_escaped_in_addresses() {
    let server = with_repo().await;
    Mock::given(method("DELETE"))
        .respond_with(ResponseTemplate::new(404))
        .mount(&server)
        .await;
    let labels = ["a/b ?#%".to_owned()];
    let shown = ok(json!([{ "name": "a/b ?#%" }]));
    on(&server, "GET", "/repos/octo/demo/issues/7/labels", shown).await;
    tracker(&server)
        .set_labels(&item(&server), &[], &labels, &permit())
        .await
        .unwrap();
    let all = server.received_requests().await.unwrap();
    let sent = all
        .iter()
        .find(|request| request.method.as_str() == "DELETE")
        .unwrap();
    assert_eq!(
        sent.url.path(),
        "/repos/octo/demo/issues/7/labels/a%2Fb%20%3F%23%25"
    );
}

#[tokio::test]
async fn a_reply_past_the_cap_is_refused() {
    let server = MockServer::start().await;
    on(
        &server,
        "GET",
        "/user",
        ResponseTemplate::new(200).set_body_string("x".repeat(2 << 20)),
    )
    .await;
    let error = tracker(&server).login().await.unwrap_err();
    assert!(
        error.to_string().contains("larger than 1048576 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_pull_request_whose_answer_was_lost_is_looked_up() {
    let server = with_repo().await;
    let pulls = "/repos/octo/demo/pulls";
    on(&server, "POST", pulls, ResponseTemplate::new(500)).await;
    let side = json!({ "ref": "x", "repo": { "id": 42 } });
    let found =
        json!([{ "number": 3, "html_url": "u", "state": "open", "head": side, "base": side }]);
    on(&server, "GET", pulls, ok(found)).await;
    let pull = tracker(&server)
        .create_pull_request(&item(&server), &new_pull(), &permit())
        .await
        .unwrap();
    assert_eq!(pull.number, 3);
    assert_eq!(count(&server, "POST", pulls).await, 1);
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

#[tokio::test]
async fn a_push_that_the_api_does_not_show_yet_is_waited_for() {
    let server = with_repo().await;
    let pulls = "/repos/octo/demo/pulls";
    let unknown = json!({
        "message": "Validation Failed",
        "errors": [{ "resource": "PullRequest", "field": "head", "code": "invalid" }],
    });
    let unknown = ResponseTemplate::new(422).set_body_json(unknown);
    let first = Mock::given(method("POST")).and(path(pulls));
    let first = first.respond_with(unknown.clone()).up_to_n_times(1);
    first.with_priority(1).mount(&server).await;
    let side = json!({ "ref": "x", "repo": { "id": 42 } });
    let opened =
        json!({ "number": 3, "html_url": "u", "state": "open", "head": side, "base": side });
    on(&server, "POST", pulls, ok(opened)).await;
    on(&server, "GET", pulls, ok(json!([]))).await;
    let (tracker, item) = (tracker(&server), item(&server));
    let (new, permit) = (new_pull(), permit());
    let pull = tracker.create_pull_request(&item, &new, &permit);
    assert_eq!(pull.await.unwrap().number, 3);

    let server = with_repo().await;
    on(&server, "POST", pulls, unknown).await;
    on(&server, "GET", pulls, ok(json!([]))).await;
    let tracker = self::tracker(&server);
    let error = tracker.create_pull_request(&item, &new, &permit);
    let error = error.await.unwrap_err();
    assert!(matches!(error, TrackerError::Unavailable { .. }), "{error}");
}

/// A branch may be named after drafts.
#[tokio::test]
async fn a_refusal_that_names_a_branch_of_drafts_is_final() {
    let server = with_repo().await;
    let pulls = "/repos/octo/demo/pulls";
    let said = json!({
        "message": "Validation Failed",
        "errors": [{
            "resource": "PullRequest", "code": "custom",
            "message": "No commits between main and docs/7-draft-rfc",
        }],
    });
    let refused = ResponseTemplate::new(422).set_body_json(said);
    on(&server, "POST", pulls, refused).await;
    on(&server, "GET", pulls, ok(json!([]))).await;
    let (tracker, item, permit) = (tracker(&server), item(&server), permit());
    for draft in [false, true] {
        let new = NewPullRequest {
            draft,
            ..new_pull()
        };
        let error = tracker.create_pull_request(&item, &new, &permit).await;
        let error = error.unwrap_err();
        assert!(matches!(error, TrackerError::Refused { .. }), "{error}");
    }
    assert_eq!(count(&server, "POST", pulls).await, 2);
}

/// The numbers of new comments do not fit into 32 bits.
#[tokio::test]
async fn a_resolved_thread_is_known_by_the_whole_number_of_its_first_comment() {
    const FIRST: u64 = 3_000_000_000;
    for shown in [json!(FIRST.to_string()), json!(FIRST)] {
        let server = with_repo().await;
        on(&server, "GET", "/user", ok(json!({ "login": "bot" }))).await;
        let comment = json!({
            "id": FIRST, "user": null, "body": "Why?", "path": "a.rs", "line": 1, "created_at": "2026-01-01T00:00:00Z",
        });
        let list = "/repos/octo/demo/pulls/7/comments";
        on(&server, "GET", list, ok(json!([comment]))).await;
        let node = json!({
            "id": "PRRT_1", "isResolved": true, "comments": { "nodes": [{ "fullDatabaseId": shown }] },
        });
        let page =
            json!({ "pageInfo": { "hasNextPage": false, "endCursor": null }, "nodes": [node] });
        let data =
            json!({ "data": { "repository": { "pullRequest": { "reviewThreads": page } } } });
        on(&server, "POST", "/graphql", ok(data)).await;
        let item = ItemRef {
            kind: ItemKind::PullRequest,
            ..item(&server)
        };
        let threads = tracker(&server).threads(&item).await.unwrap();
        let seen: Vec<_> = threads
            .iter()
            .map(|it| (it.id.as_str(), it.resolved))
            .collect();
        assert_eq!(seen, [("3000000000", true)]);
        let asked = server.received_requests().await.unwrap();
        let is_asked = |it: &Request| String::from_utf8_lossy(&it.body).contains("fullDatabaseId");
        assert!(asked.iter().any(is_asked));
    }
}

fn tracker_of_former(server: &MockServer, former: &[&str]) -> GitHubTracker {
    let config = GitHub {
        api_url: Url::parse(&server.uri()).unwrap(),
        token: Some(Secret::new(TOKEN)),
        repositories: vec!["octo/demo".into()],
        former_logins: former.iter().map(ToString::to_string).collect(),
        ..GitHub::default()
    };
    GitHubTracker::with_limits(&config, RequestLimits::default()).unwrap()
}

/// All issues of a large repository take longer to list than a dashboard is held.
#[tokio::test]
async fn an_issue_of_ours_is_looked_for_among_those_of_our_accounts() {
    let list = "/repos/octo/demo/issues";
    let own = |server: &MockServer, login: &str| {
        let mut own = issue(server, 9, "2026-01-01T00:00:00Z");
        own["body"] = "text <!-- m -->".into();
        own["user"] = json!({ "login": login });
        ok(json!([own]))
    };
    let new = NewIssue {
        title: "t",
        body: "text <!-- m -->",
        marker: "<!-- m -->",
    };
    let server = with_repo().await;
    on(&server, "GET", "/user", ok(json!({ "login": "bot" }))).await;
    for (creator, answer) in [
        ("bot", ok(json!([]))),
        ("gone", ResponseTemplate::new(422)),
        ("old", own(&server, "old")),
    ] {
        let mock = Mock::given(method("GET")).and(path(list));
        let mock = mock.and(query_param("creator", creator));
        mock.respond_with(answer).mount(&server).await;
    }
    let tracker = tracker_of_former(&server, &["gone", "old"]);
    let found = tracker.issue_of_ours(&item(&server), &new, &permit()).await;
    assert_eq!(found.unwrap(), OurIssue::Found(9));

    // Some servers find no issue of an App by its creator. One that finds another issue or a pull request of it finds all.
    for (finds, listed) in [("nothing", 1_u64), ("another", 0), ("it", 0)] {
        let server = with_repo().await;
        let login = json!({ "login": "miner[bot]" });
        on(&server, "GET", "/user", ok(login.clone())).await;
        let mut another = issue(&server, 8, "2026-01-01T00:00:00Z");
        another["user"] = login;
        let answer = match finds {
            "nothing" => ok(json!([])),
            "another" => ok(json!([another])),
            _ => own(&server, "miner[bot]"),
        };
        for (creator, answer) in [("miner[bot]", answer), ("old", ok(json!([])))] {
            let mock = Mock::given(method("GET")).and(path(list));
            let mock = mock.and(query_param("creator", creator));
            mock.respond_with(answer).mount(&server).await;
        }
        let mock = Mock::given(method("GET")).and(path(list));
        let mock = mock.and(query_param_is_missing("creator"));
        let all = mock.respond_with(own(&server, "miner[bot]"));
        all.expect(listed).mount(&server).await;
        let opened = issue(&server, 10, "2026-01-01T00:00:00Z");
        on(&server, "POST", list, ok(opened)).await;
        let tracker = tracker_of_former(&server, &["old"]);
        let found = tracker.issue_of_ours(&item(&server), &new, &permit()).await;
        match (finds, found.unwrap()) {
            ("another", OurIssue::Opened { number, .. }) => assert_eq!(number, 10),
            (_, found) => assert_eq!(found, OurIssue::Found(9), "{finds}"),
        }
    }
}

#[tokio::test]
async fn without_check_runs_jobs_of_actions_and_statuses_are_the_checks() {
    let server = with_repo().await;
    let refused = json!({ "message": "Resource not accessible by personal access token" });
    let refused = ResponseTemplate::new(403).set_body_json(refused);
    let commit = "a".repeat(40);
    let at = |part: &str| format!("/repos/octo/demo/{part}");
    on(
        &server,
        "GET",
        &at(&format!("commits/{commit}/check-runs")),
        refused.clone(),
    )
    .await;
    let statuses = json!({ "statuses": [{ "context": "ci/other", "state": "failure" }] });
    on(
        &server,
        "GET",
        &at(&format!("commits/{commit}/status")),
        ok(statuses),
    )
    .await;
    let workflows = json!({ "workflow_runs": [
        { "id": 1, "status": "completed", "conclusion": "success" },
        { "id": 2, "status": "completed", "conclusion": "failure" },
    ] });
    on(&server, "GET", &at("actions/runs"), ok(workflows)).await;
    let jobs = json!({ "jobs": [
        { "id": 21, "name": "build", "status": "completed", "conclusion": "success" },
        { "id": 22, "name": "test", "status": "completed", "conclusion": "failure" },
    ] });
    on(&server, "GET", &at("actions/runs/2/jobs"), ok(jobs)).await;
    let checks = tracker(&server).checks(&item(&server), &commit).await;
    let checks = checks.unwrap();
    let red = checks
        .red
        .iter()
        .map(|it| (it.name.as_str(), it.log.as_deref()));
    let red: Vec<(&str, Option<&str>)> = red.collect();
    assert_eq!(red, [("test", Some("22")), ("ci/other", None)]);
    assert!(!checks.pending);

    let server = with_repo().await;
    for part in ["check-runs", "status"] {
        let at = at(&format!("commits/{commit}/{part}"));
        on(&server, "GET", &at, refused.clone()).await;
    }
    on(&server, "GET", &at("actions/runs"), refused).await;
    let error = tracker(&server).checks(&item(&server), &commit).await;
    let error = error.unwrap_err();
    assert!(matches!(error, TrackerError::Forbidden { .. }), "{error}");
}

#[tokio::test]
async fn an_account_that_is_renamed_keeps_its_one_comment() {
    let server = with_repo().await;
    on(
        &server,
        "GET",
        "/user",
        ok(json!({ "login": "bot", "id": 1 })),
    )
    .await;
    let comment = |id: u64, body: &str| {
        json!({
            "id": id, "body": body, "created_at": "2026-01-01T00:00:00Z",
            "user": { "login": "renamed", "id": 1, "type": "User" },
        })
    };
    let list = "/repos/octo/demo/issues/7/comments";
    let marker = Marker::new(TrackerKind::GitHub, "n").unwrap();
    let old = comment(1, &marker.append("before"));
    let twin = comment(2, &marker.append("text"));
    let first = Mock::given(method("GET")).and(path(list));
    let first = first.respond_with(ok(json!([old]))).up_to_n_times(1);
    first.with_priority(1).mount(&server).await;
    on(&server, "GET", list, ok(json!([old, twin]))).await;
    on(&server, "POST", list, ok(twin)).await;
    let one = "/repos/octo/demo/issues/comments";
    on(&server, "PATCH", &format!("{one}/1"), ok(old.clone())).await;
    on(
        &server,
        "DELETE",
        &format!("{one}/2"),
        ResponseTemplate::new(204),
    )
    .await;
    let (tracker, item, permit) = (tracker(&server), item(&server), permit());
    for _ in 0..2 {
        let written = tracker.upsert_comment(&item, "n", "text", &permit);
        assert_eq!(written.await.unwrap(), "1");
    }
    assert_eq!(count(&server, "POST", list).await, 1);
    // What is assigned to it, or mentions it, has the new name as well; anybody who takes the old one is somebody else.
    assert_eq!(tracker.own_login().await.unwrap(), "renamed");
    for (login, ours) in [("renamed", true), ("bot", false)] {
        let person = crate::people::Person {
            login: login.into(),
            id: None,
            is_bot: false,
        };
        assert_eq!(tracker.is_us(&person).await.unwrap(), ours, "{login}");
    }
}

#[tokio::test]
async fn what_was_submitted_too_quickly_is_waited_out() {
    let server = with_repo().await;
    let too_soon =
        json!({ "message": "Validation Failed", "errors": ["was submitted too quickly"] });
    let too_soon = ResponseTemplate::new(422).set_body_json(too_soon);
    on(
        &server,
        "GET",
        "/user",
        ok(json!({ "login": "bot", "id": 1 })),
    )
    .await;
    for at in [
        "/repos/octo/demo/pulls",
        "/repos/octo/demo/issues/7/comments",
    ] {
        on(&server, "POST", at, too_soon.clone()).await;
        on(&server, "GET", at, ok(json!([]))).await;
    }
    let (tracker, item) = (tracker(&server), item(&server));
    let (new, permit) = (new_pull(), permit());
    let pull = tracker.create_pull_request(&item, &new, &permit);
    let comment = tracker.upsert_comment(&item, "n", "text", &permit);
    for error in [pull.await.map(drop), comment.await.map(drop)] {
        let error = error.unwrap_err();
        let TrackerError::Unavailable {
            until: Some(until), ..
        } = error
        else {
            panic!("{error}");
        };
        assert!(until > Utc::now() + TimeDelta::minutes(4), "{until}");
    }
}

#[tokio::test]
async fn every_request_says_who_asks_and_in_which_version() {
    let server = MockServer::start().await;
    Mock::given(header("authorization", format!("Bearer {TOKEN}").as_str()))
        .and(header("x-github-api-version", "2022-11-28"))
        .and(header("accept", "application/vnd.github+json"))
        .and(header_exists("user-agent"))
        .respond_with(ok(json!({ "login": "bot" })))
        .mount(&server)
        .await;
    tracker(&server).login().await.unwrap();
}

#[test]
fn only_plain_names_are_repositories() {
    assert_eq!(split_path("octo/de-mo.x_1").unwrap(), ("octo", "de-mo.x_1"));
    for bad in [
        "octo",
        "octo/",
        "/demo",
        "octo/../user",
        "octo/de mo",
        "a/b/c",
        "octo/..",
        "o/a?b",
    ] {
        assert!(split_path(bad).is_err(), "{bad}");
    }
}

#[test]
fn hosts_and_clone_addresses_are_checked() {
    let url = |text: &str| Url::parse(text).unwrap();
    assert_eq!(
        host_of(&url("https://api.github.com/")).unwrap(),
        "github.com"
    );
    assert_eq!(
        host_of(&url("https://ghe.test/api/v3/")).unwrap(),
        "ghe.test"
    );
    assert_eq!(
        host_of(&url("https://api.octo.ghe.com/")).unwrap(),
        "octo.ghe.com"
    );
    assert_eq!(
        host_of(&url("https://api.ghe.test/")).unwrap(),
        "api.ghe.test"
    );
    assert!(host_of(&url("ftp://ghe.test/")).is_err());
    let api = url("https://ghe.test/api/v3/");
    let clone_url = |text: &str| clone_url(TrackerKind::GitHub, text, &api);
    for shown in ["https://ghe.test/a/b.git", "http://ghe.test/a/b.git"] {
        let url = clone_url(shown).unwrap();
        assert_eq!(url.as_str(), "https://ghe.test/a/b.git");
    }
    for bad in [
        "http://other.test/a/b.git",
        "https://u:p@ghe.test/a/b.git",
        "ssh://git@ghe.test/a",
        "x",
    ] {
        assert!(clone_url(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_configuration_without_token_or_repositories_is_refused() {
    let mut config = GitHub::default();
    assert!(matches!(
        GitHubTracker::new(&config),
        Err(TrackerError::Unauthorized { .. })
    ));
    config.token = Some(Secret::new(TOKEN));
    assert!(matches!(
        GitHubTracker::new(&config),
        Err(TrackerError::Invalid { .. })
    ));
    config.repositories = vec!["nonsense".into()];
    assert!(matches!(
        GitHubTracker::new(&config),
        Err(TrackerError::Invalid { .. })
    ));
    config.repositories = vec!["octo/demo".into()];
    assert!(GitHubTracker::new(&config).is_ok());
}

#[tokio::test]
async fn a_pull_request_from_a_fork_is_refused() {
    for head in [json!({ "id": 43 }), Value::Null] {
        let server = with_repo().await;
        on(
            &server,
            "GET",
            "/repos/octo/demo/issues/7",
            ok(issue(&server, 7, "2026-01-01T00:00:00Z")),
        )
        .await;
        let pull = json!({
            "number": 7, "html_url": "http://forge.test/7", "state": "open",
            "head": { "ref": "main", "repo": head }, "base": { "ref": "main", "repo": { "id": 42 } },
        });
        on(&server, "GET", "/repos/octo/demo/pulls/7", ok(pull)).await;
        let mut item = item(&server);
        item.kind = ItemKind::PullRequest;
        let error = tracker(&server).item(&item).await.unwrap_err();
        assert!(
            matches!(&error, TrackerError::Refused { detail, .. } if detail.contains("fork")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn what_the_token_does_not_allow_is_named() {
    let server = MockServer::start().await;
    let user = ok(json!({ "login": "bot" }))
        .insert_header("x-oauth-scopes", "read:org, gist")
        .insert_header("date", "Thu, 01 Jan 2026 00:00:00 GMT");
    on(&server, "GET", "/user", user).await;
    let mut read_only = repo(42);
    read_only["permissions"] = json!({ "pull": true, "push": false });
    on(&server, "GET", "/repos/octo/demo", ok(read_only)).await;
    on(&server, "GET", "/repos/octo/demo/issues", ok(json!([]))).await;
    on(&server, "GET", "/repos/octo/hidden", ok(repo(43))).await;
    let hidden = ResponseTemplate::new(403).insert_header(
        "x-accepted-github-permissions",
        "issues=read; pull_requests=read",
    );
    on(&server, "GET", "/repos/octo/hidden/issues", hidden).await;
    let failing = ResponseTemplate::new(500);
    on(&server, "GET", "/repos/octo/failing", failing).await;
    let names = ["octo/demo", "octo/gone", "octo/hidden", "octo/failing"];
    let access = tracker_of(&server.uri(), &names).access().await.unwrap();
    assert_eq!(access.login, "bot");
    assert_eq!(access.scopes.unwrap(), ["read:org", "gist"]);
    assert_eq!(
        access.server_time.unwrap().to_rfc3339(),
        "2026-01-01T00:00:00+00:00"
    );
    let [scope, demo, gone, hidden, failing] = access.missing.as_slice() else {
        panic!("{:?}", access.missing)
    };
    assert!(scope.contains("no scope `repo`"), "{scope}");
    assert!(demo.contains("may not write to octo/demo"), "{demo}");
    assert!(gone.contains("octo/gone does not exist"), "{gone}");
    let needed = "needs the permission issues=read or pull_requests=read";
    assert!(hidden.contains(needed), "{hidden}");
    assert!(failing.contains("octo/failing cannot be read"), "{failing}");
}
