//! A gateway without its controls: both ports forward whatever is asked, with the token, and record nothing.
//!
//! Only the suite's own forge and bait are dialled. What would answer at any other address is played here, so that no
//! address outside is reached.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agentmine_sandbox::{OutboundKind, Sandbox, TunnelStream};
use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpStream, lookup_host};
use tokio::process::Command;
use tokio::task::JoinSet;

type Stream = BufReader<Box<dyn TunnelStream>>;

/// How long a connection stays open for its first request.
const FIRST: Duration = Duration::from_secs(20);
/// The same for another one.
const NEXT: Duration = Duration::from_millis(300);
/// What any address but those of the suite answers.
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";

/// What it forwards to.
pub(in crate::attack) struct OpenGateway {
    /// Where the forge listens.
    pub(in crate::attack) forge: String,
    /// The `Authorization` header for the forge; none where the sandbox has the token itself.
    pub(in crate::attack) authorization: Option<String>,
    /// Where the bait listens.
    pub(in crate::attack) bait: Vec<SocketAddr>,
}

/// The outbound traffic of one sandbox. Dropping it closes all connections.
pub(in crate::attack) struct OpenTraffic {
    _task: JoinSet<()>,
}

impl OpenTraffic {
    /// Serves every connection out of `sandbox` until the sandbox is gone.
    pub(in crate::attack) fn serve(sandbox: Arc<dyn Sandbox>, open: OpenGateway) -> Self {
        let open = Arc::new(open);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Some(outbound) = sandbox.next_outbound().await {
                while connections.try_join_next().is_some() {}
                let open = Arc::clone(&open);
                connections.spawn(async move {
                    let mut stream = BufReader::new(outbound.stream);
                    // A connection that breaks is the client's affair.
                    let _ = open.requests(&mut stream, outbound.kind).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { _task: task }
    }
}

/// A request's first line and headers.
struct Head {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

impl Head {
    /// As careless programs read it.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (method, rest) = lines.next()?.split_once(' ')?;
        let target = rest.rsplit_once(" HTTP/").map_or(rest, |it| it.0);
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.trim().into(), value.trim().into()));
        Some(Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: headers.collect(),
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().rev();
        let found = found.find(|it| it.0.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    /// The host with its port, and the path below it, if the target names a host.
    fn absolute(&self) -> Option<(&str, &str)> {
        let (_, rest) = self.target.split_once("//")?;
        let starts = self.target.starts_with("//") || self.target.contains("://");
        let at = rest.find(['/', '\\', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(at);
        let host = host.rsplit_once('@').map_or(host, |it| it.1);
        starts.then_some((host, if path.is_empty() { "/" } else { path }))
    }
}

impl OpenGateway {
    async fn requests(&self, stream: &mut Stream, kind: OutboundKind) -> anyhow::Result<()> {
        let mut within = FIRST;
        while let Ok(Ok(Some(head))) = tokio::time::timeout(within, head(stream)).await {
            within = NEXT;
            self.request(stream, kind, &head).await?;
            stream.flush().await?;
        }
        Ok(())
    }

    async fn request(
        &self,
        stream: &mut Stream,
        kind: OutboundKind,
        head: &Head,
    ) -> anyhow::Result<()> {
        if head.method == "CONNECT" {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            stream.flush().await?;
            if let Some(mut to) = self.dial(&head.target).await? {
                copy_bidirectional(stream, &mut to).await?;
            }
            return Ok(());
        }
        let body = body(stream, head).await?;
        let (to, path) = match (head.absolute(), kind) {
            (Some((host, path)), _) => (self.dial(host).await?, path),
            (None, OutboundKind::Git) => {
                (Some(TcpStream::connect(&self.forge).await?), &*head.target)
            }
            (None, OutboundKind::Web) => {
                let host = head.header("host").unwrap_or_default();
                (self.dial(host).await?, &*head.target)
            }
        };
        let sent = self.sent(head, path, body.len(), kind);
        if head.method == "TRACE" {
            // With what it would send on, as HTTP says.
            let length = sent.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{sent}");
            stream.write_all(answer.as_bytes()).await?;
            return Ok(());
        }
        let Some(mut to) = to else {
            stream.write_all(ANSWER.as_bytes()).await?;
            return Ok(());
        };
        to.write_all(sent.as_bytes()).await?;
        to.write_all(&body).await?;
        tokio::io::copy(&mut to, stream).await?;
        Ok(())
    }

    /// The head of the request that is sent on.
    fn sent(&self, head: &Head, path: &str, length: usize, kind: OutboundKind) -> String {
        const OWN: &[&str] = &[
            "connection",
            "content-length",
            "transfer-encoding",
            "content-encoding",
            "expect",
        ];
        let mut text = format!("{} {path} HTTP/1.1\r\n", head.method);
        let own = |name: &str| OWN.iter().any(|it| it.eq_ignore_ascii_case(name));
        for (name, value) in head.headers.iter().filter(|it| !own(&it.0)) {
            text += &format!("{name}: {value}\r\n");
        }
        if let (Some(value), OutboundKind::Git, None) =
            (&self.authorization, kind, head.header("authorization"))
        {
            text += &format!("Authorization: {value}\r\n");
        }
        if length > 0 || head.method == "POST" {
            text += &format!("Content-Length: {length}\r\n");
        }
        text + "Connection: close\r\n\r\n"
    }

    /// A connection to the suite's own listeners; none where the answer is played.
    async fn dial(&self, host: &str) -> anyhow::Result<Option<TcpStream>> {
        let named = host.rsplit_once(':').and_then(|(name, port)| {
            let whole = !name.contains(':') || name.ends_with(']');
            Some((name, port.parse::<u16>().ok().filter(|_| whole)?))
        });
        let (name, port) = named.unwrap_or((host, 80));
        let name = name.trim_matches(['[', ']']).trim_end_matches('.');
        // The names of hosts are not looked up, but the notations of addresses are read as the system reads them.
        let numeric = |it: char| it.is_ascii_hexdigit() || ".:xX".contains(it);
        let address = match name {
            "localhost" => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
            name if !name.is_empty() && name.chars().all(numeric) => {
                let found = lookup_host((name, port)).await;
                found.ok().and_then(|mut it| Some(it.next()?.ip()))
            }
            _ => None,
        };
        let address = match address.map(|it| it.to_canonical()) {
            Some(it) if it.is_unspecified() => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
            other => other,
        };
        let to = address.map(|it| SocketAddr::from((it, port)));
        match to.filter(|it| self.bait.contains(it)) {
            Some(to) => Ok(Some(TcpStream::connect(to).await?)),
            None => Ok(None),
        }
    }
}

async fn head(stream: &mut Stream) -> anyhow::Result<Option<Head>> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else {
            return Ok(None);
        };
        text.push(byte);
    }
    Ok(Head::parse(
        &text.iter().map(|&it| char::from(it)).collect::<String>(),
    ))
}

/// The whole body, unpacked, however large it is.
async fn body(stream: &mut Stream, head: &Head) -> anyhow::Result<Vec<u8>> {
    let chunked = head.header("transfer-encoding");
    let chunked = chunked.is_some_and(|it| it.contains("chunked"));
    let length = head.header("content-length");
    let length = length.map_or(Ok(0), str::parse::<usize>)?;
    if head.header("expect").is_some() && (chunked || length > 0) {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        stream.flush().await?;
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            let size = line(stream).await?;
            let size = usize::from_str_radix(&size, 16)?;
            let start = body.len();
            body.resize(start + size, 0);
            stream
                .read_exact(body.get_mut(start..).unwrap_or_default())
                .await?;
            line(stream).await?;
            if size == 0 {
                break;
            }
        }
    } else {
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
    }
    if head.header("content-encoding") == Some("gzip") {
        return unpacked(body).await;
    }
    Ok(body)
}

async fn line(stream: &mut Stream) -> anyhow::Result<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n") {
        text.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

async fn unpacked(packed: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let mut child = Command::new("gzip")
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("stdin")?;
    let writing = tokio::spawn(async move { stdin.write_all(&packed).await });
    let unpacked = child.wait_with_output().await?.stdout;
    writing.await??;
    Ok(unpacked)
}
