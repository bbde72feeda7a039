//! A client over real TCP through the web proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use agentmine_runtime::config::{Network, RegistryCredential, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::WebProxy;
use super::host::Host;
use super::policy::HiddenNames;
use super::sni::tests::hello_for;
use super::tunnel::client_hello;
use crate::events::{Ledger, TrafficEvent};

struct Proxy {
    address: SocketAddr,
    ledger: Arc<Ledger>,
}

impl Proxy {
    async fn new(change: impl FnOnce(&mut Network)) -> Self {
        let mut network = Network::default();
        change(&mut network);
        let ledger = Arc::new(Ledger::default());
        let proxy = Arc::new(WebProxy::new(&network, ledger.clone()).unwrap());
        let connections = Arc::new(tokio::sync::Semaphore::new(100));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let proxy = proxy.clone();
                let permit = Arc::clone(&connections).acquire_owned().await.unwrap();
                tokio::spawn(async move { proxy.serve(stream, permit).await });
            }
        });
        Self { address, ledger }
    }

    /// Sends `request` on a new connection and returns the first part of the answer.
    async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        head(&mut stream).await
    }

    fn blocked(&self) -> Vec<(String, u16)> {
        let events = self.ledger.events().into_iter();
        events
            .filter_map(|event| match event {
                TrafficEvent::WebBlocked { host, port, .. } => Some((host, port)),
                _ => None,
            })
            .collect()
    }
}

/// Reads an answer with its body, as far as `Content-Length` says.
async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            if body.len() >= length {
                return text;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            return text;
        }
    }
}

/// Sends back what it gets.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

/// Answers each request with the request itself.
async fn mirror() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let request = head(&mut stream).await;
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: x\r\nX-Up: 1\r\n\
                     Connection: close, x-up\r\n\r\n{request}",
                    request.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_named_private_address_is_reached_through_a_tunnel_without_tls() {
    let target = echo().await;
    let proxy = Proxy::new(|network| network.allowed_private = vec![target.to_string()]).await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 200"));
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "hello");
    let allowed = TrafficEvent::WebAllowed {
        host: target.ip().to_string(),
        port: target.port(),
        count: 1,
    };
    assert_eq!(proxy.ledger.events(), [allowed]);
}

#[tokio::test]
async fn a_plain_request_loses_the_headers_for_the_proxy() {
    let target = mirror().await;
    let proxy = Proxy::new(|network| network.allowed_private = vec![target.to_string()]).await;
    let answer = proxy
        .ask(&format!(
            "POST http://{target}/a?b=c HTTP/1.1\r\nHost: other.example\r\n\
             Proxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n\
             Connection: x-secret\r\nX-Secret: 1\r\nX-Kept: 2\r\nContent-Length: 4\r\n\r\nbody"
        ))
        .await;
    let (head, seen) = answer.split_once("\r\n\r\n").unwrap();
    let seen = seen.to_ascii_lowercase();
    assert!(seen.starts_with("post /a?b=c http/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: {target}\r\n")), "{seen}");
    assert!(
        seen.contains("x-kept: 2\r\n") && seen.ends_with("body"),
        "{seen}"
    );
    for gone in ["proxy-", "te:", "x-secret", "other.example"] {
        assert!(!seen.contains(gone), "{gone}: {seen}");
    }
    let head = head.to_ascii_lowercase();
    assert!(
        !head.contains("x-up") && !head.contains("keep-alive"),
        "{head}"
    );
}

#[tokio::test]
async fn a_public_host_is_reached_through_the_operators_proxy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let operators = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let connect = head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        head(&mut stream).await;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhost";
        stream.write_all(answer).await.unwrap();
        connect
    });
    let url = Secret::new(format!("http://{address}"));
    let proxy = Proxy::new(|network| network.proxy = Some(url)).await;
    let answer = proxy
        .ask("GET http://nowhere.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("host"),
        "{answer}"
    );
    let connect = operators.await.unwrap();
    assert!(
        connect.starts_with("CONNECT nowhere.invalid:80 "),
        "{connect}"
    );
}

#[tokio::test]
async fn each_request_on_one_connection_is_decided() {
    let target = mirror().await;
    let proxy = Proxy::new(|network| network.allowed_private = vec![target.to_string()]).await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    for (host, status) in [
        (target.to_string(), "200"),
        ("127.0.0.1".into(), "403"),
        (target.to_string(), "200"),
        ("169.254.169.254".into(), "403"),
    ] {
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = head(&mut stream).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{host}: {answer}"
        );
    }
    assert_eq!(
        proxy.blocked(),
        [("127.0.0.1".into(), 80), ("169.254.169.254".into(), 80)]
    );
}

#[tokio::test]
async fn forbidden_targets_get_403_with_a_reason() {
    let proxy = Proxy::new(|_| {}).await;
    for (request, reason) in [
        ("CONNECT localhost:443", "loopback"),
        ("GET http://localhost/", "loopback"),
        ("GET http://localhost./", "loopback"),
        ("GET http://127.0.0.1/", "loopback"),
        ("GET http://[::1]/", "loopback"),
        ("GET http://[::ffff:127.0.0.1]/", "loopback"),
        ("GET http://2130706433/", "unusual notation"),
        ("GET http://0x7f.1/", "unusual notation"),
        ("GET http://0177.0.0.1/", "loopback"),
        ("GET http://169.254.169.254/latest/meta-data/", "metadata"),
        ("GET http://[fd00:ec2::254]/", "private"),
        ("GET http://user@example.org/", "user name"),
        ("GET http://example.org:8080/", "port 80 only"),
        ("GET https://example.org/", "only http:// URLs"),
        ("GET /", "absolute URL"),
        ("CONNECT example.org:22", "port 443 only"),
        ("CONNECT 8.8.8.8:443", "names no host"),
    ] {
        let answer = proxy
            .ask(&format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{request}: {answer}");
        // Octal is read by some as 127.0.0.1 and by others not at all; both are refused.
        let shown =
            answer.contains(reason) || request.contains("0177") && answer.contains("notation");
        assert!(shown, "{request}: {answer}");
    }
    assert!(proxy.blocked().contains(&("localhost".into(), 443)));
}

#[tokio::test]
async fn without_external_access_the_response_gives_the_reason() {
    let proxy = Proxy::new(|network| network.external_access = false).await;
    let answer = proxy
        .ask("CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("web access is disabled"), "{answer}");
}

#[tokio::test]
async fn a_name_outside_the_whitelist_is_not_even_resolved() {
    let proxy = Proxy::new(|network| {
        network.whitelist_mode = true;
        network.allowed_domains = vec!["*.example.com".into()];
    })
    .await;
    let answer = proxy
        .ask("CONNECT localhost:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert!(answer.contains("not in allowed_domains"), "{answer}");
}

#[tokio::test]
async fn the_tls_client_hello_must_name_the_host() {
    let host = Host::parse("example.org").unwrap();
    let good = hello_for("Example.org");
    let mut reader = good.as_slice();
    assert_eq!(
        client_hello(
            &mut reader,
            &host,
            HiddenNames::Refused,
            super::HELLO_TIMEOUT
        )
        .await,
        Ok(good.clone())
    );
    for (bytes, reason) in [
        (hello_for("evil.org"), "another host"),
        (hello_for(""), "another host"),
        (b"SSH-2.0-x\r\n".to_vec(), "not TLS"),
        (good[..20].to_vec(), "closed"),
        (Vec::new(), "closed"),
    ] {
        let mut reader = bytes.as_slice();
        let shown = client_hello(
            &mut reader,
            &host,
            HiddenNames::Refused,
            super::HELLO_TIMEOUT,
        )
        .await
        .unwrap_err();
        assert!(shown.contains(reason), "{shown}");
    }
}

#[tokio::test]
async fn a_missing_client_hello_ends_in_time() {
    let (mut near, _far) = tokio::io::duplex(64);
    let host = Host::parse("example.org").unwrap();
    assert_eq!(
        client_hello(
            &mut near,
            &host,
            HiddenNames::Refused,
            std::time::Duration::from_millis(5)
        )
        .await,
        Err("no TLS ClientHello within the time limit")
    );
}

/// How many requests each rule decided, as `/metrics` shows it.
fn decided(metrics: &agentmine_runtime::metrics::Metrics, outcome: &str, rule: &str) -> u64 {
    let series =
        format!("agentmine_gateway_web_requests_total{{outcome=\"{outcome}\",rule=\"{rule}\"}} ");
    let text = metrics.render();
    let value = text.lines().find_map(|line| line.strip_prefix(&series));
    let value = value.unwrap_or_else(|| panic!("{series} is not in\n{text}"));
    value.parse().unwrap()
}

#[tokio::test]
async fn each_request_is_counted_by_the_rule_that_decided() {
    let metrics = agentmine_runtime::metrics::install("test");
    crate::describe_metrics();
    let (target, registry) = (mirror().await, mirror().await);
    let credential = RegistryCredential {
        host: registry.to_string(),
        token: Some(Secret::new("registry-canary")),
        authorization: None,
        paths: Vec::new(),
    };
    let open = Proxy::new(|network| {
        network.allowed_private = vec![target.to_string(), registry.to_string()];
        network.registry_credentials = vec![credential];
    })
    .await;
    let listed = Proxy::new(|network| {
        network.whitelist_mode = true;
        network.allowed_domains = vec!["nowhere.invalid".into()];
    })
    .await;
    let closed = Proxy::new(|network| network.external_access = false).await;
    for (proxy, request, outcome, rule) in [
        (&open, format!("GET http://{target}/"), "allowed", "private"),
        (
            &open,
            "GET http://nowhere.invalid/".into(),
            "allowed",
            "public",
        ),
        (
            &listed,
            "GET http://nowhere.invalid/".into(),
            "allowed",
            "listed",
        ),
        (
            &open,
            format!("GET http://{registry}/"),
            "allowed",
            "registry",
        ),
        (
            &open,
            format!("POST http://{registry}/"),
            "blocked",
            "registry",
        ),
        (&open, "GET http://127.0.0.1/".into(), "blocked", "address"),
        (&open, "GET http://localhost/".into(), "blocked", "address"),
        (&open, "CONNECT example.org:22".into(), "blocked", "port"),
        (&listed, "CONNECT example.org:443".into(), "blocked", "host"),
        (
            &closed,
            "CONNECT example.org:443".into(),
            "blocked",
            "disabled",
        ),
        (&open, "GET /".into(), "blocked", "request"),
    ] {
        let before = decided(&metrics, outcome, rule);
        proxy
            .ask(&format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .await;
        let after = decided(&metrics, outcome, rule);
        assert!(after > before, "{request}: {outcome} by {rule}");
    }
    // In a tunnel to a registry: what begins as TLS and is none.
    let before = decided(&metrics, "blocked", "tls");
    let mut stream = TcpStream::connect(open.address).await.unwrap();
    let request = format!("CONNECT {registry} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    head(&mut stream).await;
    stream
        .write_all(b"\x16\x03\x01\x00\x05hello")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(decided(&metrics, "blocked", "tls") > before);
    assert!(
        !metrics.render().contains("nowhere"),
        "no host is in a label"
    );
}
