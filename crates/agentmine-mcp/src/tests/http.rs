//! Streamable HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use agentmine_runtime::config::Secret;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::middleware::{Next, from_fn};
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use url::Url;

use super::real::{Echo, NEW, OLD, speaks};
use super::*;
use crate::config::{Capabilities, Origin, Owner, ServerConfig, Transport};

async fn served(router: Router) -> Url {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Url::parse(&format!("http://{address}/mcp")).unwrap()
}

/// A real server, and the `x-key` headers that came to it.
async fn echo(versions: &'static [ProtocolVersion]) -> (Url, Arc<Mutex<Vec<String>>>) {
    let service = StreamableHttpService::new(
        move || Ok(Echo(versions)),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = keys.clone();
    let router = Router::new().nest_service("/mcp", service).layer(from_fn(
        move |request: Request, next: Next| {
            let key = request
                .headers()
                .get("x-key")
                .map(|key| key.to_str().unwrap().to_owned());
            seen.lock().unwrap().push(key.unwrap_or_default());
            next.run(request)
        },
    ));
    (served(router).await, keys)
}

fn key() -> BTreeMap<String, Secret> {
    [("X-Key".to_owned(), Secret::new("hunter2"))].into()
}

/// Every request is answered with this.
async fn always(status: u16, headers: &'static [(&str, &str)], body: &'static str) -> Url {
    served(Router::new().fallback(move || async move {
        let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(Body::from(body)).unwrap()
    }))
    .await
}

async fn refused(url: &Url) -> String {
    let limits = McpLimits {
        start: Duration::from_secs(5),
        ..McpLimits::default()
    };
    let options = ConnectOptions {
        limits,
        ..ConnectOptions::default()
    };
    let error = Client::connect_http("h", url, &key(), &options)
        .await
        .unwrap_err();
    assert!(matches!(error, McpError::Connection { .. }), "{error}");
    let reported = format!("{error} {error:?}");
    assert!(
        !reported.contains("hunter2") && !reported.contains("query-secret"),
        "{reported}"
    );
    error.to_string()
}

#[tokio::test]
async fn servers_of_both_eras_are_found_out_and_spoken_to() {
    for (versions, era) in [(OLD, Era::Handshake), (NEW, Era::Stateless)] {
        let (url, keys) = echo(versions).await;
        let options = ConnectOptions::default();
        let client = Client::connect_http("echo", &url, &key(), &options)
            .await
            .unwrap();
        assert_eq!(client.greeting().era, era);
        speaks(&client).await;
        let keys = keys.lock().unwrap();
        assert!(
            keys.len() > 3 && keys.iter().all(|key| key == "hunter2"),
            "{keys:?}"
        );
    }
}

#[tokio::test]
async fn configured_accept_header_does_not_keep_a_server_from_being_used() {
    let (url, keys) = echo(OLD).await;
    let mut headers = key();
    headers.insert("Accept".to_owned(), Secret::new("application/json"));
    let client = Client::connect_http("echo", &url, &headers, &ConnectOptions::default())
        .await
        .unwrap();
    speaks(&client).await;
    assert!(keys.lock().unwrap().iter().all(|key| key == "hunter2"));
}

#[tokio::test]
async fn news_of_a_change_comes_over_http_too() {
    let (url, _) = echo(NEW).await;
    let client = Client::connect_http("echo", &url, &key(), &ConnectOptions::default())
        .await
        .unwrap();
    client
        .changes()
        .wait_for(|count| *count == 1)
        .await
        .unwrap();
    client.shutdown().await;
    assert!(client.closed());
}

#[tokio::test]
async fn redirect_to_another_origin_is_not_followed() {
    let (other, keys) = echo(NEW).await;
    let to: &'static str = Box::leak(other.to_string().into_boxed_str());
    let headers: &'static [(&str, &str)] = Box::leak(Box::new([("location", to)]));
    let mut url = always(307, headers, "").await;
    url.set_query(Some("key=query-secret"));
    let error = refused(&url).await;
    assert!(error.contains("another origin"), "{error}");
    assert!(keys.lock().unwrap().is_empty());
}

#[tokio::test]
async fn unauthorized_is_reported_with_what_to_do() {
    let error = refused(&always(401, &[("www-authenticate", "Bearer")], "").await).await;
    assert!(error.contains("set `headers`"), "{error}");
    let error = refused(&always(401, &[], "no").await).await;
    assert!(error.contains("set `headers`"), "{error}");
    let error = refused(&always(403, &[], "no").await).await;
    assert!(error.contains("check what `headers`"), "{error}");
}

#[tokio::test]
async fn what_is_no_streamable_http_is_reported() {
    let error = refused(&always(404, &[], "nothing here").await).await;
    assert!(
        error.contains("HTTP with SSE") && error.contains("not supported"),
        "{error}"
    );
    let error = refused(&always(200, &[("content-type", "text/html")], "<html>").await).await;
    assert!(error.contains("not supported"), "{error}");
}

#[tokio::test]
async fn server_that_is_not_there_is_reported_without_the_query() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    refused(&Url::parse(&format!("http://{address}/mcp?key=query-secret")).unwrap()).await;
}

#[tokio::test]
async fn body_that_is_too_large_is_not_read() {
    let body: &'static str = Box::leak("x".repeat(17 * 1024 * 1024).into_boxed_str());
    let error = refused(&always(200, &[("content-type", "application/json")], body).await).await;
    assert!(error.contains("maximum size"), "{error}");
}

#[tokio::test]
async fn header_that_cannot_be_sent_is_reported_without_its_value() {
    let url = Url::parse("http://127.0.0.1:1/").unwrap();
    for (name, value) in [("a b", "hunter2"), ("a", "hunter2\n")] {
        let headers = [(name.to_owned(), Secret::new(value))].into();
        let error = Client::connect_http("h", &url, &headers, &ConnectOptions::default()).await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("header") && !error.contains("hunter2"),
            "{error}"
        );
    }
}

fn bare(code: u16) -> Response<Body> {
    let response = Response::builder().status(code);
    response.body(Body::empty()).unwrap()
}

fn refusal(code: u16, body: &'static str) -> Response<Body> {
    let json = body.starts_with('{');
    let kind = if json {
        "application/json"
    } else {
        "text/plain"
    };
    let response = Response::builder()
        .status(code)
        .header("content-type", kind);
    response.body(Body::from(body)).unwrap()
}

/// The server's address, the methods that came to it, each with its session, and the session that it no longer knows.
type ByHand = (
    Url,
    tokio::sync::mpsc::UnboundedReceiver<(String, String)>,
    Arc<Mutex<String>>,
);

/// A server of the older era that is written by hand: calls of it are answered by `call`.
async fn by_hand(call: fn() -> Option<Response<Body>>) -> ByHand {
    by_hand_that_forgets(call, || bare(404)).await
}

/// The same; a request in a session that it no longer knows is answered by `lost`.
async fn by_hand_that_forgets(
    call: fn() -> Option<Response<Body>>,
    lost: fn() -> Response<Body>,
) -> ByHand {
    let (reported, methods) = tokio::sync::mpsc::unbounded_channel();
    let expired = Arc::new(Mutex::new(String::new()));
    let gone = expired.clone();
    let sessions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let router = Router::new().fallback(move |request: Request| {
        let (reported, gone, sessions) = (reported.clone(), gone.clone(), sessions.clone());
        async move {
            if request.method() != "POST" {
                return bare(405);
            }
            let session = request.headers().get("mcp-session-id");
            let session = session
                .map(|it| it.to_str().unwrap().to_owned())
                .unwrap_or_default();
            let body = axum::body::to_bytes(request.into_body(), 1 << 20)
                .await
                .unwrap();
            let message: Value = serde_json::from_slice(&body).unwrap();
            let method = message["method"].as_str().unwrap_or_default().to_owned();
            let _ = reported.send((method.clone(), session.clone()));
            if !session.is_empty() && *gone.lock().unwrap() == session {
                return lost();
            }
            let answer = |answer: Value| {
                let next = sessions.fetch_add(
                    usize::from(method == "initialize"),
                    std::sync::atomic::Ordering::SeqCst,
                );
                let response = Response::builder().header("content-type", "application/json");
                let response = match method.as_str() {
                    "initialize" => response.header("mcp-session-id", format!("s{next}")),
                    _ => response,
                };
                response.body(Body::from(answer.to_string())).unwrap()
            };
            let id = &message["id"];
            match method.as_str() {
                "initialize" => answer(json!({"jsonrpc": "2.0", "id": id, "result": {
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "hand", "version": "1"}}})),
                "tools/call" => match call() {
                    Some(response) => response,
                    None => answer(json!({"jsonrpc": "2.0", "id": id, "result": {"content": [
                        {"type": "text", "text": "called"}]}})),
                },
                _ if id.is_null() => bare(202),
                _ => answer(json!({"jsonrpc": "2.0", "id": id,
                    "error": {"code": -32601, "message": "what?"}})),
            }
        }
    });
    (served(router).await, methods, expired)
}

async fn by_handshake(url: &Url, limits: McpLimits) -> Client {
    Client::connect_http("h", url, &key(), &with(limits))
        .await
        .unwrap()
}

#[tokio::test]
async fn call_over_http_that_is_given_up_is_cancelled() {
    let pending = || {
        let never = futures::stream::pending::<Result<String, std::io::Error>>();
        let response = Response::builder().header("content-type", "text/event-stream");
        Some(response.body(Body::from_stream(never)).unwrap())
    };
    let (url, mut methods, _) = by_hand(pending).await;
    let limits = McpLimits {
        call: Duration::from_millis(200),
        ..McpLimits::default()
    };
    let client = by_handshake(&url, limits).await;
    let error = client.say("t", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("0.2 s"), "{error}");
    let cancelled = async { while methods.recv().await.unwrap().0 != "notifications/cancelled" {} };
    tokio::time::timeout(Duration::from_secs(10), cancelled)
        .await
        .unwrap();
    assert!(!client.closed());
}

#[tokio::test]
async fn event_that_is_too_large_fails_its_call() {
    let large = || {
        let event = format!("data: {}\n\n", "x".repeat(100_000));
        let response = Response::builder().header("content-type", "text/event-stream");
        Some(response.body(Body::from(event)).unwrap())
    };
    let (url, ..) = by_hand(large).await;
    let limits = McpLimits {
        max_line: 10_000,
        call: Duration::from_secs(3),
        ..McpLimits::default()
    };
    let client = by_handshake(&url, limits).await;
    let error = client.say("t", json!({})).await.unwrap_err();
    assert!(error.to_string().len() < 1_000, "{error}");
}

#[tokio::test]
async fn session_that_has_expired_is_made_anew_once() {
    let (url, mut methods, expired) = by_hand(|| None).await;
    let client = by_handshake(&url, McpLimits::default()).await;
    assert_eq!(client.say("t", json!({})).await.unwrap().text, "called");
    *expired.lock().unwrap() = "s0".to_owned();
    assert_eq!(client.say("t", json!({})).await.unwrap().text, "called");
    client.shutdown().await;
    let mut calls = Vec::new();
    let mut greetings = 0;
    while let Ok((method, session)) = methods.try_recv() {
        greetings += usize::from(method == "initialize");
        if method == "tools/call" {
            calls.push(session);
        }
    }
    assert_eq!(
        (greetings, calls),
        (2, ["s0", "s0", "s1"].map(str::to_owned).to_vec())
    );
}

/// As servers of the SDKs for TypeScript, Python and Go do.
#[tokio::test]
async fn session_that_was_lost_is_replaced_whatever_the_server_returns() {
    let all: [fn() -> Response<Body>; 3] = [
        || {
            let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
            refusal(400, body)
        },
        || {
            let body = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#;
            refusal(400, body)
        },
        || refusal(400, "Invalid session ID\n"),
    ];
    for lost in all {
        let (url, mut methods, expired) = by_hand_that_forgets(|| None, lost).await;
        let limits = McpLimits {
            call: Duration::from_secs(5),
            ..McpLimits::default()
        };
        let client = by_handshake(&url, limits).await;
        assert_eq!(client.say("t", json!({})).await.unwrap().text, "called");
        *expired.lock().unwrap() = "s0".to_owned();
        assert_eq!(client.say("t", json!({})).await.unwrap().text, "called");
        client.shutdown().await;
        let mut greetings = 0;
        while let Ok((method, _)) = methods.try_recv() {
            greetings += usize::from(method == "initialize");
        }
        assert_eq!(greetings, 2);
    }
}

#[tokio::test]
async fn error_with_another_id_is_the_answer_to_its_request() {
    let all: [fn() -> Option<Response<Body>>; 2] = [
        || {
            let body =
                r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"too busy"},"id":null}"#;
            Some(refusal(400, body))
        },
        || {
            let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"too busy"},"id":"server-error"}"#;
            Some(refusal(406, body))
        },
    ];
    for call in all {
        let (url, ..) = by_hand(call).await;
        let limits = McpLimits {
            call: Duration::from_secs(5),
            ..McpLimits::default()
        };
        let client = by_handshake(&url, limits).await;
        let output = client.say("t", json!({})).await.unwrap();
        assert!(
            output.is_error && output.text.contains("too busy"),
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn error_of_a_tool_that_names_a_session_keeps_the_connections_session() {
    // The first request of a connection has the id 0, so the call has 1.
    let call = || {
        let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"session not found: browser"},"id":1}"#;
        Some(refusal(200, body))
    };
    let (url, mut methods, _) = by_hand(call).await;
    let client = by_handshake(&url, McpLimits::default()).await;
    let output = client.say("t", json!({})).await.unwrap();
    assert!(output.text.contains("browser"), "{output:?}");
    client.shutdown().await;
    let mut greetings = 0;
    while let Ok((method, _)) = methods.try_recv() {
        greetings += usize::from(method == "initialize");
    }
    assert_eq!(greetings, 1);
}

#[tokio::test]
async fn server_that_repeats_what_it_was_reported_gives_no_secret_away() {
    let body = "who is hunter2-long, and what is query-secret?";
    let mut url = always(400, &[], body).await;
    url.set_query(Some("key=query-secret"));
    let headers = [("X-Key".to_owned(), Secret::new("Bearer hunter2-long"))].into();
    let error = Client::connect_http("h", &url, &headers, &older())
        .await
        .unwrap_err();
    let reported = format!("{error:?}");
    assert!(
        reported.contains("who is ***, and what is ***?"),
        "{reported}"
    );
}

/// A real server at an address, on its own runtime, so that all its connections end with it.
fn serve(address: std::net::SocketAddr) -> (tokio::runtime::Runtime, std::net::SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = std::net::TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let service = StreamableHttpService::new(
            || Ok(Echo(NEW)),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        axum::serve(listener, Router::new().nest_service("/mcp", service)).await
    });
    (runtime, address)
}

/// A manager of the server at an address.
async fn managed(address: std::net::SocketAddr, max_restarts: u32) -> Manager {
    let server = ServerConfig {
        name: "h".into(),
        origin: Origin {
            file: "f".into(),
            line: 1,
            owner: Owner::Operator,
        },
        transport: Transport::Http {
            url: Url::parse(&format!("http://{address}/mcp")).unwrap(),
            headers: key(),
        },
        enabled: true,
        capabilities: Capabilities::default(),
        timeout: Duration::from_secs(20),
        max_restarts: Some(max_restarts),
    };
    let policy = ManagerPolicy {
        restart_backoff: Duration::from_millis(20),
        ..ManagerPolicy::default()
    };
    let manager = Manager::start([server], Launchers::default(), policy).await;
    assert_eq!(manager.status()[0].state, ServerState::Ready);
    manager
}

#[tokio::test]
async fn server_that_went_away_while_idle_is_reconnected_when_it_is_back() {
    let (runtime, address) = serve("127.0.0.1:0".parse().unwrap());
    let manager = managed(address, 1_000).await;
    runtime.shutdown_background();
    let error = manager.call("h", "say", json!({})).await.unwrap_err();
    assert!(matches!(error, McpError::Protocol { .. }), "{error:?}");
    let (runtime, _) = serve(address);
    let output = manager.call("h", "say", json!({"a": 1})).await.unwrap();
    assert_eq!(output.text, r#"{"a":1}"#);
    let kinds: Vec<NoticeKind> = manager.notices().into_iter().map(|it| it.kind).collect();
    assert_eq!(kinds.first(), Some(&NoticeKind::Crashed), "{kinds:?}");
    assert!(kinds.contains(&NoticeKind::Restarted), "{kinds:?}");
    manager.shutdown().await;
    runtime.shutdown_background();
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = tokio::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn server_that_was_given_up_is_used_again_when_it_is_back() {
    let (runtime, address) = serve("127.0.0.1:0".parse().unwrap());
    let manager = managed(address, 1).await;
    runtime.shutdown_background();
    manager.call("h", "say", json!({})).await.unwrap_err();
    let is = |word: &str| manager.status()[0].state.word() == word;
    until("it is given up", || is("failed")).await;
    assert!(manager.refresh().await.servers.is_empty());
    let attempts = || manager.status()[0].restarts;
    let before = attempts();
    until("it is tried again", || attempts() >= before + 2).await;
    let (runtime, _) = serve(address);
    until("it is back", || is("ready")).await;
    assert_eq!(manager.refresh().await.servers.len(), 1);
    let output = manager.call("h", "say", json!({"a": 1})).await.unwrap();
    assert_eq!(output.text, r#"{"a":1}"#);
    let kinds: Vec<NoticeKind> = manager.notices().into_iter().map(|it| it.kind).collect();
    let given_up = kinds.iter().filter(|kind| **kind == NoticeKind::GivenUp);
    assert_eq!(given_up.count(), 1, "{kinds:?}");
    assert_eq!(kinds.last(), Some(&NoticeKind::Restarted), "{kinds:?}");
    manager.shutdown().await;
    runtime.shutdown_background();
}
