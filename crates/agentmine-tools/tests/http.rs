//! The servers over streamable HTTP.
#![expect(clippy::unwrap_used, reason = "a test ends where a step of it fails")]

use std::net::SocketAddr;

use agentmine_tools::{AllowedRoots, ShellOptions, ToolServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANY: &str = "127.0.0.1:0";

async fn serve(server: ToolServer) -> SocketAddr {
    let (ready, address) = tokio::sync::oneshot::channel();
    tokio::spawn(Box::pin(server.serve_http(
        ANY.parse().unwrap(),
        |address| {
            ready.send(address).unwrap();
        },
    )));
    address.await.unwrap()
}

/// One request, by hand: status, headers and body.
async fn post(address: SocketAddr, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = body.to_string();
    let mut request =
        "POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
        Accept: application/json, text/event-stream\r\n"
            .to_owned();
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"}}})
}

fn stateless(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {}});
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

#[tokio::test]
async fn every_server_answers_in_both_eras() {
    let folder = tempfile::tempdir().unwrap();
    let roots = AllowedRoots {
        start: folder.path().to_owned(),
        allowed: Vec::new(),
    };
    for (server, tool) in [
        (
            ToolServer::TextEditor {
                root: folder.path().to_owned(),
            },
            "text_editor",
        ),
        (ToolServer::FileRead(roots.clone()), "file_read"),
        (ToolServer::FileWrite(roots.clone()), "file_write"),
        (
            ToolServer::ShellExec(ShellOptions::new(roots.clone())),
            "shell_exec",
        ),
    ] {
        let address = serve(server).await;
        let (status, answer) = post(address, &[], &initialize()).await;
        assert_eq!(status, 200, "{answer}");
        assert!(
            answer.contains("2025-11-25") && answer.contains("mcp-server-"),
            "{answer}"
        );
        let newest = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/list"),
        ];
        let (status, answer) = post(address, &newest, &stateless("tools/list", json!({}))).await;
        assert_eq!(status, 200, "{answer}");
        assert!(answer.contains(&format!("\"{tool}\"")), "{answer}");
    }
}

#[tokio::test]
async fn other_hosts_and_origins_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let address = serve(ToolServer::TextEditor {
        root: folder.path().to_owned(),
    })
    .await;
    for headers in [
        [("Host", "evil.example")],
        [("Host", "127.0.0.1.evil.example")],
        [("Origin", "http://evil.example")],
        [("Origin", "https://127.0.0.1.evil.example")],
        [("Origin", "null")],
    ] {
        let (status, answer) = post(address, &headers, &initialize()).await;
        assert_eq!(status, 403, "{headers:?}: {answer}");
    }
    for headers in [
        [("Host", "localhost")],
        [("Origin", "http://localhost:1234")],
    ] {
        let (status, answer) = post(address, &headers, &initialize()).await;
        assert_eq!(status, 200, "{headers:?}: {answer}");
    }
}

#[tokio::test]
async fn only_loopback_is_listened_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = ToolServer::TextEditor {
        root: folder.path().to_owned(),
    };
    let refused = Box::pin(server.serve_http("0.0.0.0:0".parse().unwrap(), |_| {})).await;
    assert!(refused.unwrap_err().to_string().contains("loopback"));
}

#[tokio::test]
async fn relative_paths_of_the_editor_start_at_its_root() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("project")).unwrap();
    let address = serve(ToolServer::TextEditor {
        root: folder.path().to_owned(),
    })
    .await;
    let call = stateless(
        "tools/call",
        json!({"name": "text_editor",
        "arguments": {"command": "create", "path": "a.txt", "file_text": "x"}}),
    );
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "text_editor"),
    ];
    let (status, answer) = post(address, &headers, &call).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        std::fs::read_to_string(folder.path().join("a.txt")).unwrap(),
        "x"
    );
}

/// A handler of another crate.
#[derive(Clone)]
struct Other;

impl rmcp::handler::server::ServerHandler for Other {
    fn get_info(&self) -> rmcp::model::ServerConfig {
        let other = rmcp::model::Implementation::new("other-server", "0");
        rmcp::model::ServerConfig::default().with_server_info(other)
    }
}

#[tokio::test]
async fn other_handlers_are_served_too() {
    let (ready, address) = tokio::sync::oneshot::channel();
    tokio::spawn(Box::pin(agentmine_tools::http::serve(
        Other,
        ANY.parse().unwrap(),
        agentmine_tools::http::HttpAccess::Anybody,
        |address| ready.send(address).unwrap(),
    )));
    let address = address.await.unwrap();
    let (status, answer) = post(address, &[], &initialize()).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("other-server"), "{answer}");
    let (status, answer) = post(address, &[("Host", "evil.example")], &initialize()).await;
    assert_eq!(status, 403, "{answer}");
}

#[tokio::test]
async fn sessions_are_bounded() {
    let (ready, address) = tokio::sync::oneshot::channel();
    tokio::spawn(Box::pin(agentmine_tools::http::serve(
        Other,
        ANY.parse().unwrap(),
        agentmine_tools::http::HttpAccess::Anybody,
        |address| ready.send(address).unwrap(),
    )));
    let address = address.await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..260 {
        answers.push(post(address, &[], &initialize()).await);
    }
    let refused = answers.iter().find(|(status, _)| *status != 200);
    assert_eq!(refused, None);
    // Those that were not used for the longest time have ended.
    for (number, expected) in [(0, 404), (3, 404), (4, 202), (259, 202)] {
        let headers = answers[number].1.to_lowercase();
        let (_, after) = headers.split_once("mcp-session-id: ").unwrap();
        let session = [("Mcp-Session-Id", after.lines().next().unwrap())];
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let (status, answer) = post(address, &session, &initialized).await;
        assert_eq!(status, expected, "{number}: {answer}");
    }
    let newest = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/list"),
    ];
    let (status, answer) = post(address, &newest, &stateless("tools/list", json!({}))).await;
    assert_eq!(status, 200, "{answer}");
}
