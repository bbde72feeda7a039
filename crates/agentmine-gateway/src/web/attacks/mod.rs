//! Attacks on the web proxy, in a network in which every address answers: what counts is who was connected to
//! and what arrived there.

use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::config::Network as Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use crate::config::{GatewayConfig, GitAccess};
use crate::events::TrafficEvent;
use crate::gateway::Gateway;

mod hosts;
mod network;
mod slow;
mod smuggling;
mod tunnels;

/// Public addresses of servers.
const GOOD: &str = "8.8.8.8";
const OTHER: &str = "9.9.9.9";

fn gateway(change: impl FnOnce(&mut Settings)) -> Gateway {
    let mut network = Settings::default();
    change(&mut network);
    let git = GitAccess::None;
    Gateway::new(GatewayConfig { git, network }).unwrap()
}

fn only(hosts: &[&str]) -> Gateway {
    gateway(|network| {
        network.whitelist_mode = true;
        network.allowed_domains = hosts.iter().map(|&host| host.to_owned()).collect();
    })
}

/// A connection of the sandbox to the proxy.
fn connect(gateway: &Gateway) -> DuplexStream {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let gateway = gateway.clone();
    tokio::spawn(async move { gateway.serve_web(far).await });
    near
}

/// Sends bytes on their own connection and returns what comes back, to the end of the connection or until
/// nothing comes any more.
async fn send(gateway: &Gateway, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = connect(gateway);
    stream.write_all(bytes.as_ref()).await.unwrap();
    rest(&mut stream).await
}

async fn rest(stream: &mut DuplexStream) -> String {
    let mut all = Vec::new();
    let mut quiet = Duration::from_secs(2);
    while let Ok(Ok(1..)) = timeout(quiet, stream.read_buf(&mut all)).await {
        quiet = Duration::from_millis(250);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads one response with a body of a known length.
async fn response(stream: &mut DuplexStream) -> String {
    let mut all = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_ascii_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        if stream.read_buf(&mut all).await.unwrap() == 0 {
            return text;
        }
    }
}

async fn get(gateway: &Gateway, url: &str) -> String {
    let mut stream = connect(gateway);
    let request = format!("GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    response(&mut stream).await
}

/// Opens a tunnel, sends bytes through it, and returns the response to CONNECT.
async fn tunnel(gateway: &Gateway, to: &str, bytes: &[u8]) -> String {
    let mut stream = connect(gateway);
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = response(&mut stream).await;
    if status(&answer) == 200 {
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        // The gateway closes it when both sides are done.
        let mut end = Vec::new();
        let _ = timeout(Duration::from_secs(2), stream.read_to_end(&mut end)).await;
    }
    answer
}

fn status(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0)
}

/// The hosts and reasons of refused requests.
fn refusals(gateway: &Gateway) -> Vec<(String, String)> {
    let events = gateway.events().into_iter();
    events
        .filter_map(|event| match event {
            TrafficEvent::WebBlocked { host, reason, .. } => Some((host, reason)),
            _ => None,
        })
        .collect()
}

/// Whether a refusal of this host, for a reason with these words, is in the record.
fn recorded(gateway: &Gateway, host: &str, reason: &str) -> bool {
    let found = refusals(gateway).into_iter();
    found
        .into_iter()
        .any(|it| it.0 == host && it.1.contains(reason))
}

/// Waits until everything that was sent before has arrived: servers accept in order.
async fn settled(network: &Arc<network::Network>) {
    network.name("settled.example", &[&["4.4.4.4"]]);
    let gateway = gateway(|_| {});
    assert_eq!(status(&get(&gateway, "http://settled.example/").await), 200);
}
