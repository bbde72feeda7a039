//! The client against a forge that is not GitHub: other headers, other refusals. What GitHub does to it
//! is in `github/tests.rs`.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_domain::{Blame, TrackerKind};
use agentmine_runtime::config::Secret;
use agentmine_runtime::permit::{BootInstant, Permit, PermitGrant};
use chrono::{TimeDelta, Utc};
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt as _};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};
use url::Url;
use wiremock::matchers::{header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::error::TrackerError;

fn client(server: &MockServer, max_wait: Duration) -> Client {
    client_at(&server.uri(), max_wait)
}

fn client_at(uri: &str, max_wait: Duration) -> Client {
    let mut headers = HeaderMap::new();
    headers.insert("private-token", HeaderValue::from_static("glpat-canary"));
    let dialect = Dialect {
        tracker: TrackerKind::GitLab,
        headers,
        credentials: Arc::new(Secret::new("glpat-canary")),
        credentials_hint: "set GITLAB_PERSONAL_ACCESS_TOKEN".to_owned(),
        limits: LimitRules {
            header_prefix: "ratelimit-",
            phrases: &[],
        },
        own_buckets: &[],
        authority: None,
    };
    let limits = RequestLimits {
        tries: 3,
        pause: Duration::from_millis(2),
        max_wait,
        timeout: Duration::from_secs(2),
        turn: Duration::from_millis(50),
        max_body: 1 << 20,
    };
    let base = Url::parse(uri).unwrap().join("api/v4").unwrap();
    Client::new(dialect, &base, limits).unwrap()
}

async fn on(server: &MockServer, at: &str, times: Option<u64>, answer: ResponseTemplate) {
    let mock = Mock::given(path(at)).respond_with(answer);
    match times {
        Some(times) => mock.up_to_n_times(times).mount(server).await,
        None => mock.mount(server).await,
    }
}

fn unavailable_for(seconds: &str) -> ResponseTemplate {
    ResponseTemplate::new(503).insert_header("retry-after", seconds)
}

async fn requests(server: &MockServer) -> usize {
    server.received_requests().await.unwrap().len()
}

const PATIENT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_server_without_tls_is_reported_with_what_to_do() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut hello) = (stream.unwrap(), [0; 4096]);
            let _ = stream.read(&mut hello);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read(&mut hello);
        }
    });
    let client = client_at(&format!("https://{address}"), PATIENT);
    let error = client.get(client.url(["user"])).await.unwrap_err();
    assert!(matches!(error, TrackerError::Unavailable { .. }), "{error}");
    let hint = ". hint: the server seems to expect http:// in `api_url`, not https://";
    assert!(error.to_string().contains(hint), "{error}");
}

#[tokio::test]
async fn pages_are_followed_with_the_credentials_of_the_dialect() {
    let server = MockServer::start().await;
    let link = format!(
        "<{0}/api/v4/projects/1/issues?labels=a%2Cb&page=2>; rel=\"next\", <{0}/first>; rel=\"first\"",
        server.uri()
    );
    let page = |body: Value| ResponseTemplate::new(200).set_body_json(body);
    Mock::given(method("GET"))
        .and(header("private-token", "glpat-canary"))
        .and(query_param("page", "2"))
        .respond_with(page(json!([2])))
        .mount(&server)
        .await;
    let first = page(json!([1])).insert_header("link", link.as_str());
    on(&server, "/api/v4/projects/1/issues", None, first).await;
    let client = client(&server, PATIENT);
    let url = client.url(["projects", "1", "issues"]);
    assert_eq!(client.list::<u8>(url, "issues").await.unwrap(), [1, 2]);
}

#[tokio::test]
async fn a_plain_429_is_a_limit_of_a_minute() {
    let server = MockServer::start().await;
    let limited = ResponseTemplate::new(429).set_body_string("Retry later\n");
    on(&server, "/api/v4/user", None, limited).await;
    let client = client(&server, PATIENT);
    let error = client.get(client.url(["user"])).await.unwrap_err();
    let Blame::World { until: Some(until) } = error.blame() else {
        panic!("{error}");
    };
    assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
    assert!(until - Utc::now() > TimeDelta::seconds(50), "{until}");
    assert_eq!(requests(&server).await, 1);
}

#[tokio::test]
async fn an_outage_with_a_named_end_is_waited_out() {
    let server = MockServer::start().await;
    on(&server, "/api/v4/user", Some(1), unavailable_for("1")).await;
    on(&server, "/api/v4/user", None, ResponseTemplate::new(200)).await;
    let client = client(&server, PATIENT);
    let begun = Instant::now();
    client.get(client.url(["user"])).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(900));
}

#[tokio::test]
async fn an_outage_that_lasts_too_long_names_its_end_at_once() {
    let server = MockServer::start().await;
    on(&server, "/api/v4/user", None, unavailable_for("600")).await;
    let client = client(&server, PATIENT);
    let error = client.get(client.url(["user"])).await.unwrap_err();
    let TrackerError::Unavailable { until, .. } = &error else {
        panic!("{error}");
    };
    assert!(until.unwrap() - Utc::now() > TimeDelta::seconds(500));
    assert_eq!(requests(&server).await, 1);
}

#[tokio::test]
async fn a_limit_without_a_wait_is_not_asked_again_without_end() {
    let server = MockServer::start().await;
    let limited = ResponseTemplate::new(429).insert_header("retry-after", "0");
    on(&server, "/api/v4/user", None, limited).await;
    let client = client(&server, Duration::from_millis(50));
    let error = client.get(client.url(["user"])).await.unwrap_err();
    assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
    assert!(requests(&server).await <= 30);
}

/// So many requests that are answered only after a time.
fn hanging(client: &Client, count: usize) -> impl Iterator<Item = impl Future<Output = ()>> {
    (0..count).map(async move |_| {
        let reply = client.get(client.url(["hangs"])).await;
        assert!(reply.is_ok(), "{reply:?}");
    })
}

async fn hangs(server: &MockServer, time: Duration) {
    let late = ResponseTemplate::new(200).set_delay(time);
    on(server, "/api/v4/hangs", None, late).await;
}

#[tokio::test]
async fn requests_that_hang_keep_no_other_one_waiting() {
    let server = MockServer::start().await;
    hangs(&server, Duration::from_millis(1500)).await;
    on(&server, "/api/v4/user", None, ResponseTemplate::new(200)).await;
    let client = client(&server, PATIENT);
    let mut all: FuturesUnordered<_> = hanging(&client, 28).collect();
    tokio::select! {
        // They are sent before it.
        biased;
        _ = all.next() => panic!("it waits for the others"),
        reply = client.get(client.url(["user"])) => assert!(reply.is_ok(), "{reply:?}"),
    }
}

#[tokio::test]
async fn only_so_many_requests_hang_at_once() {
    let time = Duration::from_millis(600);
    let server = MockServer::start().await;
    hangs(&server, time).await;
    let client = client(&server, PATIENT);
    let begun = Instant::now();
    join_all(hanging(&client, 48)).await;
    let took = begun.elapsed();
    assert!(took >= time * 2, "{took:?}");
}

#[tokio::test]
async fn a_write_and_the_look_after_it_share_their_tries() {
    let server = MockServer::start().await;
    on(&server, "/api/v4/notes", None, ResponseTemplate::new(500)).await;
    let client = client(&server, PATIENT);
    let attempts = client.attempts();
    let (body, permit) = (json!({}), permit());
    let call = Call::write(Method::POST, client.url(["notes"]), &permit).json(&body);
    let Sent::Unknown(fault) = client.send_once(&call, &attempts).await.unwrap() else {
        panic!("a reply");
    };
    assert_eq!(requests(&server).await, 1);
    attempts.again(fault).await.unwrap();
    let look = client.list_within::<Value>(client.url(["notes"]), "notes", &attempts);
    let error = look.await.unwrap_err();
    assert!(matches!(error, TrackerError::Unavailable { .. }), "{error}");
    // Three tries in all: the write is one of them.
    assert_eq!(requests(&server).await, 3);
}

#[tokio::test]
async fn a_conflict_is_the_adapters_to_judge() {
    let server = MockServer::start().await;
    let said = json!({ "message": ["Another open merge request already exists"] });
    let conflict = ResponseTemplate::new(409).set_body_json(said);
    on(&server, "/api/v4/merge_requests", None, conflict).await;
    let client = client(&server, PATIENT);
    let (body, permit) = (json!({}), permit());
    let call = Call::write(Method::POST, client.url(["merge_requests"]), &permit).json(&body);
    let reply = client.send(&call).await.unwrap();
    assert_eq!(reply.status, 409);
    assert!(reply.message().contains("already exists"));
    let error = reply.ok("merge request").unwrap_err();
    assert!(matches!(error, TrackerError::Refused { .. }), "{error}");
}

/// A permit that lasts for the whole test.
fn permit() -> Permit {
    Permit::of(BootInstant::now(), Duration::from_secs(600))
}

#[tokio::test]
async fn nothing_is_written_once_the_permit_has_lapsed() {
    let server = MockServer::start().await;
    on(&server, "/api/v4/notes", None, ResponseTemplate::new(500)).await;
    let client = client(&server, PATIENT);
    let (body, permit) = (json!({}), Permit::of(BootInstant::now(), Duration::ZERO));
    let call = Call::write(Method::POST, client.url(["notes"]), &permit).json(&body);
    let error = client.send(&call).await.unwrap_err();
    assert!(
        matches!(error, TrackerError::NotPermitted { .. }),
        "{error}"
    );
    assert_eq!(requests(&server).await, 0);
}

#[tokio::test]
async fn a_permit_is_checked_again_before_each_try() {
    let server = MockServer::start().await;
    let grant = PermitGrant::new(BootInstant::now(), Duration::from_secs(600));
    let (body, permit) = (json!({}), grant.permit());
    let grant = std::sync::Mutex::new(Some(grant));
    // The lease is lost while the server answers.
    let answer = move |_: &wiremock::Request| {
        grant.lock().unwrap().take();
        ResponseTemplate::new(500)
    };
    let notes = Mock::given(path("/api/v4/notes"));
    notes.respond_with(answer).mount(&server).await;
    let client = client(&server, PATIENT);
    let call = Call::write(Method::POST, client.url(["notes"]), &permit).json(&body);
    let error = client.send(&call).await.unwrap_err();
    assert!(
        matches!(error, TrackerError::NotPermitted { .. }),
        "{error}"
    );
    assert_eq!(requests(&server).await, 1);
}

/// Anybody may write comments of which a hundred are too large for one reply.
#[tokio::test]
async fn a_page_that_is_too_large_is_read_in_smaller_ones() {
    let server = MockServer::start().await;
    let at = "/api/v4/notes";
    let next = format!(
        "<{}{at}?page=22&per_page=10&sort=asc>; rel=\"next\"",
        server.uri()
    );
    let large = ResponseTemplate::new(200).set_body_string("x".repeat(2 << 20));
    let first = ResponseTemplate::new(200).set_body_json(json!([1]));
    let second = ResponseTemplate::new(200).set_body_json(json!([2]));
    for (size, page, answer) in [
        ("100", "3", large.clone()),
        ("10", "21", first.insert_header("link", next.as_str())),
        ("10", "22", second),
    ] {
        let mock = Mock::given(path(at)).and(query_param("sort", "asc"));
        let mock = mock.and(query_param("per_page", size));
        let mock = mock.and(query_param("page", page));
        mock.respond_with(answer).mount(&server).await;
    }
    let client = client(&server, Duration::from_secs(1));
    let mut url = client.url(["notes"]);
    url.set_query(Some("page=3&per_page=100&sort=asc"));
    let found = client.list::<u64>(url, "notes").await;
    assert_eq!(found.unwrap(), [1, 2]);
    assert_eq!(server.received_requests().await.unwrap().len(), 3);

    // One entry that is too large by itself.
    on(&server, "/api/v4/large", None, large).await;
    let mut url = client.url(["large"]);
    url.set_query(Some("per_page=100"));
    let error = client.list::<u64>(url, "large").await.unwrap_err();
    assert!(error.to_string().contains("larger than"), "{error}");
    assert_eq!(server.received_requests().await.unwrap().len(), 6);
}

/// Smaller pages are more pages of the same list.
#[tokio::test]
async fn a_list_has_as_many_rows_in_smaller_pages() {
    const PAGES: u64 = 210;
    let server = MockServer::start().await;
    let at = format!("{}/api/v4/notes", server.uri());
    let answer = move |request: &wiremock::Request| {
        let number = |key: &str| {
            let mut pairs = request.url.query_pairs();
            let found = pairs.find(|(own, _)| own == key);
            found.and_then(|(_, value)| value.parse::<u64>().ok())
        };
        if number("per_page") == Some(100) {
            return ResponseTemplate::new(200).set_body_string("x".repeat(2 << 20));
        }
        let page = number("page").unwrap_or(1);
        let answer = ResponseTemplate::new(200).set_body_json(json!([page]));
        let link = format!("<{at}?page={}&per_page=10>; rel=\"next\"", page + 1);
        match page < PAGES {
            true => answer.insert_header("link", link.as_str()),
            false => answer,
        }
    };
    let notes = Mock::given(path("/api/v4/notes"));
    notes.respond_with(answer).mount(&server).await;
    let client = client(&server, PATIENT);
    let mut url = client.url(["notes"]);
    url.set_query(Some("per_page=100"));
    let found = client.list::<u64>(url, "notes").await.unwrap();
    assert_eq!(found, (1..=PAGES).collect::<Vec<u64>>());
}
