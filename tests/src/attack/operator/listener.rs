//! Attacks on the listeners: `/live`, `/ready`, `/metrics`, and the tool servers over HTTP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that are opened and say nothing.
const SILENT: usize = 400;
/// Files that a program may have open for them.
const MOST_FILES: usize = 250;
/// What no request of a stranger may make a server read.
const ENDLESS: usize = 96 << 20;
/// Sessions that nobody uses.
const SESSIONS: usize = 300;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Where the listeners are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surface {
    pub(super) health: SocketAddr,
    /// Where a request's head is read.
    pub(super) heads: SocketAddr,
    /// The program that serves `health`.
    pub(super) process: u32,
    /// A tool server's `/mcp`.
    pub(super) tools: SocketAddr,
    /// Whether a tool server can be bound to all addresses.
    pub(super) binds_anywhere: bool,
}

type Found = anyhow::Result<Option<String>>;
type Attack = fn(Surface) -> LocalBoxFuture<'static, Found>;

/// Name, aim, and what carries it out.
pub(super) const ATTACKS: &[(&str, &str, Attack)] = &[
    (
        "rebind_the_health_listener",
        "Reads metrics from a web page, by a name that resolves to this machine",
        |it| rebind(it).boxed_local(),
    ),
    (
        "exhaust_files_by_silent_connections",
        "Opens connections and says nothing, until the worker can open no file",
        |it| silence(it).boxed_local(),
    ),
    (
        "send_a_head_without_end",
        "Sends a request whose head does not end",
        |it| endless_head(it).boxed_local(),
    ),
    (
        "rebind_the_tool_server",
        "Calls tools from a web page, by a name that resolves to this machine",
        |it| foreign_host(it).boxed_local(),
    ),
    (
        "call_tools_from_a_web_page",
        "Calls tools by a request of another origin",
        |it| foreign_origin(it).boxed_local(),
    ),
    (
        "post_a_body_without_end",
        "Sends the tool server a body that does not end",
        |it| endless_body(it).boxed_local(),
    ),
    (
        "begin_sessions_without_end",
        "Begins sessions of the tool server that nobody uses",
        |it| sessions(it).boxed_local(),
    ),
    (
        "serve_tools_to_the_network",
        "Has a tool server listen on all addresses",
        |it| {
            async move { Ok(it.binds_anywhere.then(|| "it listens on 0.0.0.0".into())) }
                .boxed_local()
        },
    ),
];

/// Carries all of them out.
pub(super) async fn attack(
    surface: Surface,
) -> anyhow::Result<BTreeMap<&'static str, Option<String>>> {
    let mut achieved = BTreeMap::new();
    for &(name, _, carry_out) in ATTACKS {
        achieved.insert(name, carry_out(surface).await.context(name)?);
    }
    Ok(achieved)
}

/// `/metrics` and `/ready`, as an operator reads them.
pub(super) async fn read_health(address: SocketAddr) -> anyhow::Result<String> {
    let mut texts = String::new();
    for path in ["metrics", "ready"] {
        let request =
            format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        texts.push_str(&exchange(address, request.as_bytes()).await?.1);
        texts.push('\n');
    }
    Ok(texts)
}

async fn rebind(it: Surface) -> Found {
    let request = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let (status, text) = exchange(it.health, request.as_bytes()).await?;
    Ok((status == 200).then(|| format!("{} bytes of metrics", text.len())))
}

async fn silence(it: Surface) -> Found {
    let mut open = Vec::new();
    for _ in 0..SILENT {
        let mut stream = TcpStream::connect(it.health).await?;
        // The head of a request, but for its end.
        let _ = stream.write_all(b"GET /live HTTP/1.1\r\nHost: x").await;
        open.push(stream);
    }
    let files = || std::fs::read_dir(format!("/proc/{}/fd", it.process)).map(Iterator::count);
    // What accepts a connection gets to the last ones within this time, or does not take them.
    let mut most = files()?;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        most = most.max(files()?);
    }
    drop(open);
    Ok((most > MOST_FILES).then(|| format!("{most} files are open for {SILENT} connections")))
}

async fn endless_head(it: Surface) -> Found {
    let piece = format!("X-A: {}\r\n", "a".repeat(1 << 16));
    let mut head = b"GET /live HTTP/1.1\r\nHost: localhost\r\n".to_vec();
    head.extend(piece.repeat(16).as_bytes());
    read_without_end(it.heads, &head).await
}

/// Sends a piece again and again. `None` if the server ends it.
async fn read_without_end(address: SocketAddr, piece: &[u8]) -> Found {
    let mut stream = TcpStream::connect(address).await?;
    let mut sent = 0;
    while sent < ENDLESS {
        let written = tokio::time::timeout(PATIENCE, stream.write_all(piece)).await;
        match written {
            Ok(Ok(())) => sent += piece.len(),
            Ok(Err(_)) | Err(_) => return Ok(None),
        }
    }
    Ok(Some(format!("it read {} MB", sent >> 20)))
}

fn post(host: &str, more: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json, \
         text/event-stream\r\n{more}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn foreign_host(it: Surface) -> Found {
    let (status, _) = exchange(it.tools, &post("evil.example", "", INITIALIZE)).await?;
    Ok((status == 200).then(|| "it began a session".into()))
}

async fn foreign_origin(it: Surface) -> Found {
    // Without this, the request is one that is answered.
    let own = post("localhost", "Origin: http://localhost:1\r\n", INITIALIZE);
    let (status, text) = exchange(it.tools, &own).await?;
    anyhow::ensure!(status == 200, "a request from here: {status} {text}");
    let foreign = post("localhost", "Origin: http://evil.example\r\n", INITIALIZE);
    let (status, _) = exchange(it.tools, &foreign).await?;
    Ok((status == 200).then(|| "it began a session".into()))
}

async fn endless_body(it: Surface) -> Found {
    let head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut stream = TcpStream::connect(it.tools).await?;
    stream.write_all(head).await?;
    let mut chunk = b"100000\r\n".to_vec();
    chunk.extend(vec![b' '; 1 << 20]);
    chunk.extend(b"\r\n");
    let mut sent = 0;
    while sent < ENDLESS {
        match tokio::time::timeout(PATIENCE, stream.write_all(&chunk)).await {
            Ok(Ok(())) => sent += 1 << 20,
            Ok(Err(_)) | Err(_) => return Ok(None),
        }
    }
    Ok(Some(format!("it read {} MB", sent >> 20)))
}

async fn sessions(it: Surface) -> Found {
    let mut first = None;
    for _ in 0..SESSIONS {
        let answer = answer_to(it.tools, &post("localhost", "", INITIALIZE)).await?;
        if status_of(&answer)? != 200 {
            return Ok(None);
        }
        let id = answer
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"))
            .map(|(_, id)| id.to_owned());
        first = first.or(id);
    }
    // It may end those that nobody uses.
    let session = format!("Mcp-Session-Id: {}\r\n", first.context("no session")?);
    let (status, _) = exchange(it.tools, &post("localhost", &session, INITIALIZED)).await?;
    Ok((status != 404).then(|| format!("it holds {SESSIONS} sessions")))
}

/// Status and text of the answer to a request.
async fn exchange(address: SocketAddr, request: &[u8]) -> anyhow::Result<(u16, String)> {
    let text = answer_to(address, request).await?;
    let body = text.split_once("\r\n\r\n").map_or("", |it| it.1).to_owned();
    Ok((status_of(&text)?, body))
}

fn status_of(answer: &str) -> anyhow::Result<u16> {
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
    status.with_context(|| format!("no status: {answer:.100}"))
}

/// The answer to a request. An event stream is read to its first event.
async fn answer_to(address: SocketAddr, request: &[u8]) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    let read = async {
        let mut piece = vec![0; 16 << 10];
        loop {
            let n = stream.read(&mut piece).await?;
            answer.extend_from_slice(&piece[..n]);
            let is_event = memchr::memmem::find(&answer, b"text/event-stream").is_some()
                && memchr::memmem::find(&answer, b"\r\n\r\n").is_some();
            if n == 0 || is_event {
                return anyhow::Ok(());
            }
        }
    };
    tokio::time::timeout(PATIENCE, read)
        .await
        .context("no answer")??;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
