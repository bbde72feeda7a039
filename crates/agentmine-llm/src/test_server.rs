//! A scripted server for the tests of model APIs: raw bytes on a socket, cut and stopped where a test wants it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_runtime::config::{ModelConfig, Secret};
use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) const KEY: &str = "sk-test-0123456789";

/// What the server does with one request.
#[derive(Clone)]
pub(crate) enum Act {
    /// These bytes, then the connection is closed.
    Close(String),
    /// These bytes, then nothing more until the client goes away.
    Stall(String),
    /// These bytes, then the next request on the same connection.
    Keep(String),
    /// The head of a stream and then comments, until the client goes away.
    Comments,
    /// These bytes, then comments for half a second, then the other bytes.
    Think(String, String),
}

pub(crate) struct Server {
    pub(crate) url: Url,
    requests: Arc<Mutex<Vec<String>>>,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Gets a message for each connection that the client ended while the server stalled.
    pub(crate) gone: UnboundedReceiver<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers the n-th request with the n-th act, later ones with the last.
    pub(crate) async fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (send, gone) = unbounded_channel();
        let (seen, count) = (requests.clone(), connections.clone());
        let task = tokio::spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else {
                    return;
                };
                count.fetch_add(1, Ordering::SeqCst);
                let (acts, seen, send) = (acts.clone(), seen.clone(), send.clone());
                tokio::spawn(serve(socket, acts, seen, send));
            }
        });
        Self {
            url: url.parse().unwrap(),
            requests,
            connections,
            gone,
            task,
        }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn config(&self) -> ModelConfig {
        ModelConfig {
            base_url: self.url.clone(),
            api_key: Some(Secret::new(KEY)),
            name: "test-model".into(),
            ..ModelConfig::default()
        }
    }
}

async fn serve(
    mut socket: TcpStream,
    acts: Vec<Act>,
    seen: Arc<Mutex<Vec<String>>>,
    gone: UnboundedSender<()>,
) {
    while let Some(request) = read_request(&mut socket).await {
        let act = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            acts[(seen.len() - 1).min(acts.len() - 1)].clone()
        };
        match act {
            Act::Keep(bytes) => socket.write_all(bytes.as_bytes()).await.unwrap(),
            Act::Close(bytes) => {
                socket.write_all(bytes.as_bytes()).await.unwrap();
                return;
            }
            Act::Comments => {
                let mut bytes = stream(": keep-alive\n\n");
                while socket.write_all(bytes.as_bytes()).await.is_ok() {
                    bytes = "3\r\n:\n\n\r\n".to_owned();
                    // The time between two comments of a server, in short.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                return;
            }
            Act::Think(before, after) => {
                let _ = socket.write_all(before.as_bytes()).await;
                for _ in 0..50 {
                    let _ = socket.write_all(b"3\r\n:\n\n\r\n").await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let _ = socket.write_all(after.as_bytes()).await;
            }
            Act::Stall(bytes) => {
                socket.write_all(bytes.as_bytes()).await.unwrap();
                let mut rest = Vec::new();
                let _ = socket.read_to_end(&mut rest).await;
                let _ = gone.send(());
                return;
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(n) if n > 0 => bytes.extend_from_slice(&piece[..n]),
            _ => return None,
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_lowercase()
                .split_once("content-length: ")
                .map_or(0, |(_, rest)| {
                    rest.lines().next().unwrap().trim().parse().unwrap()
                });
            if body.len() >= length {
                return Some(text.into_owned());
            }
        }
    }
}

pub(crate) fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

pub(crate) fn json_response(body: &str) -> String {
    response("200 OK", "content-type: application/json\r\n", body)
}

/// The head of a chunked stream and these bytes of it, in two chunks cut in the middle.
pub(crate) fn stream(data: &str) -> String {
    let middle = data.ceil_char_boundary(data.len() / 2);
    let (a, b) = data.split_at(middle);
    let mut text = String::from(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    for part in [a, b].into_iter().filter(|part| !part.is_empty()) {
        text.push_str(&format!("{:x}\r\n{part}\r\n", part.len()));
    }
    text
}

pub(crate) const STREAM_END: &str = "0\r\n\r\n";
