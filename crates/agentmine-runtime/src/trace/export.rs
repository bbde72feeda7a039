//! The way of spans to a collector: a queue of limited length, and one task that sends what is in it.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use metrics::{Counter, counter, describe_counter};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use url::Url;

use super::encode;
use super::record::Record;
use crate::metrics::zero;

/// Spans that wait, at most. A session makes about two for each step.
const QUEUE: usize = 2048;
/// Spans of one request.
const BATCH: usize = 256;
/// How long the first span of a request waits for others.
const EVERY: Duration = Duration::from_secs(1);
/// Time limit of a request.
const LIMIT: Duration = Duration::from_secs(5);
/// How long the end of the process waits for the last request.
const LAST: Duration = Duration::from_secs(2);
/// The longest answer that is read.
const LONGEST: u64 = 16 << 10;

const SPANS: &str = "agentmine_trace_spans_total";
const EXPORTED: &str = "exported";
const QUEUE_FULL: &str = "queue_full";
const NOT_TAKEN: &str = "not_taken";

static SENDER: OnceLock<mpsc::Sender<Message>> = OnceLock::new();

enum Message {
    Ended(Box<Record>),
    /// All that was queued before is sent when this is answered.
    Flush(oneshot::Sender<()>),
}

/// Begins to send spans to the collector at this base URL (`http://HOST:4318`), once in a process; without one, spans cost
/// nothing. `service` is the name of the program.
pub fn start(endpoint: Option<&Url>, service: &'static str) {
    describe_counter!(
        SPANS,
        "Ended spans of traces, by outcome: exported, dropped because the queue was full, or not accepted by the collector."
    );
    zero(SPANS, "outcome", &[EXPORTED, QUEUE_FULL, NOT_TAKEN]);
    let Some(endpoint) = endpoint else { return };
    let (sender, receiver) = mpsc::channel(QUEUE);
    if SENDER.set(sender).is_ok() {
        tracing::info!(endpoint = %endpoint, "traces are exported");
        tokio::spawn(send_all(receiver, endpoint.clone(), service));
    }
}

pub(super) fn is_started() -> bool {
    SENDER.get().is_some()
}

/// Waits for nobody.
pub(super) fn queue(record: Box<Record>) {
    let Some(sender) = SENDER.get() else { return };
    if sender.try_send(Message::Ended(record)).is_err() {
        outcome(QUEUE_FULL).increment(1);
    }
}

/// Sends what is left, before the process ends.
pub async fn flush() {
    let Some(sender) = SENDER.get() else { return };
    let (done, sent) = oneshot::channel();
    let flushed = async {
        if sender.send(Message::Flush(done)).await.is_ok() {
            let _ = sent.await;
        }
    };
    let _ = tokio::time::timeout(LAST, flushed).await;
}

fn outcome(outcome: &'static str) -> Counter {
    counter!(SPANS, "outcome" => outcome)
}

async fn send_all(mut queue: mpsc::Receiver<Message>, endpoint: Url, service: &'static str) {
    let mut is_away = false;
    while let Some(first) = queue.recv().await {
        let mut flushed = Vec::new();
        let mut spans = Vec::new();
        let mut next = Some(first);
        let full = async {
            while spans.len() < BATCH {
                match next.take() {
                    Some(Message::Ended(record)) => spans.push(record),
                    Some(Message::Flush(done)) => {
                        flushed.push(done);
                        return;
                    }
                    None => {}
                }
                match queue.recv().await {
                    Some(message) => next = Some(message),
                    None => return,
                }
            }
        };
        let _ = tokio::time::timeout(EVERY, full).await;
        // What was received while the time ran out.
        match next {
            Some(Message::Ended(record)) => spans.push(record),
            Some(Message::Flush(done)) => flushed.push(done),
            None => {}
        }
        if !spans.is_empty() {
            let body = encode::request(service, &spans).to_string();
            let sent = tokio::time::timeout(LIMIT, post(&endpoint, &body)).await;
            let sent = sent.unwrap_or_else(|_| bail_after_limit());
            let count = spans.len() as u64;
            match sent {
                Ok(()) => {
                    outcome(EXPORTED).increment(count);
                    is_away = false;
                }
                Err(error) => {
                    outcome(NOT_TAKEN).increment(count);
                    // Once for each outage.
                    if !std::mem::replace(&mut is_away, true) {
                        let error = format!("{error:#}");
                        tracing::warn!(endpoint = %endpoint, error, "the collector accepts no traces; they are dropped");
                    }
                }
            }
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}

fn bail_after_limit() -> Result<()> {
    bail!("no answer within {} s", LIMIT.as_secs())
}

/// One request over its own connection: a request a second needs no more.
async fn post(endpoint: &Url, body: &str) -> Result<()> {
    let host = endpoint.host_str().context("the URL has no host")?;
    let port = endpoint.port_or_known_default().unwrap_or(4318);
    let path = endpoint.path().trim_end_matches('/');
    let head = format!(
        "POST {path}/v1/traces HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let mut stream = TcpStream::connect((address, port))
        .await
        .context("connect")?;
    stream.write_all(head.as_bytes()).await.context("send")?;
    stream.write_all(body.as_bytes()).await.context("send")?;
    let mut answer = Vec::new();
    stream
        .take(LONGEST)
        .read_to_end(&mut answer)
        .await
        .context("receive")?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        bail!("it answered with status {status:?}");
    }
    Ok(())
}
