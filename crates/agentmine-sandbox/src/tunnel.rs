//! The worker's end of the tunnel.
//!
//! Everything that arrives is hostile. The hello must arrive within [`HELLO_LIMIT`]. There are at most
//! [`MAX_INBOUND`] connections out of the sandbox at a time, and each must say what it is for within
//! [`HEADER_LIMIT`]; one that violates this is reset and the tunnel continues. A violation of yamux itself
//! ends the tunnel, and with it the sandbox; so does a guest that makes the worker hold or handle too many
//! frames ([`metered`]).

use std::sync::Arc;
use std::time::Duration;

use agentmine_guest::mux::{self, End, Mux, MuxStream, Opener};
use agentmine_guest::protocol::{
    self, Hello, MAGIC, MAX_REPLY, OutboundHeader, VERSION, read_frame, read_json,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::{Mutex, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use crate::error::SandboxError;
use crate::held_stream::HeldStream;
use crate::sandbox::Outbound;
use metered::Metered;

mod metered;

const HELLO_LIMIT: Duration = Duration::from_secs(30);
const HEADER_LIMIT: Duration = Duration::from_secs(10);
/// A little more than an honest guest opens.
const MAX_INBOUND: usize = protocol::MAX_OUTBOUND + 28;
const MAX_OUTBOUND_HEADER: usize = 1024;

/// A tunnel whose guest sent a valid hello.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) hello: Hello,
    opener: Opener,
    outbound: Mutex<mpsc::Receiver<Outbound>>,
    ended: watch::Receiver<Option<String>>,
    tasks: Vec<JoinHandle<()>>,
    driver: tokio::task::AbortHandle,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.driver.abort();
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Tunnel {
    /// Reads the guest's hello and starts multiplexing.
    pub(crate) async fn open<T>(mut io: T) -> Result<Self, SandboxError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let hello = tokio::time::timeout(HELLO_LIMIT, read_hello(&mut io)).await;
        let hello = hello
            .map_err(|_| SandboxError::Gone("the guest did not send its hello in time".into()))??;
        let Mux {
            opener,
            inbound,
            driver,
        } = mux::start(Metered::new(io), End::Worker);
        let abort = driver.abort_handle();
        let (outbound_tx, outbound) = mpsc::channel(32);
        let (ended_tx, ended) = watch::channel(None);
        let tasks = vec![
            tokio::spawn(accept(inbound, outbound_tx)),
            tokio::spawn(async move {
                let why = driver.await.unwrap_or_else(|err| err.to_string());
                ended_tx.send_replace(Some(why));
            }),
        ];
        let outbound = Mutex::new(outbound);
        Ok(Self {
            hello,
            opener,
            outbound,
            ended,
            tasks,
            driver: abort,
        })
    }

    /// A new stream to the guest.
    pub(crate) async fn stream(&self) -> Result<MuxStream, SandboxError> {
        self.opener.open().await.map_err(|why| self.gone_with(&why))
    }

    /// Opens streams as [`Tunnel::stream`] does, and does not keep the tunnel open.
    pub(crate) fn opener(&self) -> Opener {
        self.opener.clone()
    }

    /// The next connection out of the sandbox.
    pub(crate) async fn next_outbound(&self) -> Option<Outbound> {
        self.outbound.lock().await.recv().await
    }

    /// Waits until the tunnel has ended. Returns the reason.
    pub(crate) async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "the tunnel was dropped".to_owned(),
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// The meaning of an I/O error on one of the streams.
    pub(crate) fn error(&self, err: &std::io::Error) -> SandboxError {
        if self.ended.borrow().is_none() && err.kind() == std::io::ErrorKind::InvalidData {
            SandboxError::Protocol(err.to_string())
        } else {
            self.gone_with(&err.to_string())
        }
    }

    fn gone_with(&self, why: &str) -> SandboxError {
        let ended = self.ended.borrow().clone();
        match ended.unwrap_or_else(|| why.to_owned()) {
            misused if misused.contains(metered::MISUSED) => SandboxError::Protocol(misused),
            why => SandboxError::Gone(why),
        }
    }
}

async fn read_hello<T: AsyncRead + Unpin>(io: &mut T) -> Result<Hello, SandboxError> {
    let mut magic = Vec::new();
    let read = io.take(MAGIC.len() as u64).read_to_end(&mut magic).await;
    read.map_err(|err| SandboxError::Gone(err.to_string()))?;
    if magic != MAGIC {
        // An engine that cannot start the guest writes its error in place of the hello.
        let mut rest = Vec::new();
        let mut more = io.take(400);
        let reading = more.read_to_end(&mut rest);
        let _ = tokio::time::timeout(Duration::from_millis(500), reading).await;
        magic.extend(rest);
        let text = String::from_utf8_lossy(&magic);
        return Err(match text.trim() {
            "" => SandboxError::Gone("the guest ended before it sent its hello".into()),
            text => SandboxError::Protocol(format!("expected the guest's hello, got {text:?}")),
        });
    }
    let protocol = |err: String| SandboxError::Protocol(format!("the guest's hello: {err}"));
    let frame = read_frame(io, MAX_REPLY)
        .await
        .map_err(|err| protocol(err.to_string()))?;
    let hello: Hello = serde_json::from_slice(&frame).map_err(|err| protocol(err.to_string()))?;
    if hello.version != VERSION {
        return Err(protocol(format!(
            "version {}, expected {VERSION}",
            hello.version
        )));
    }
    match hello.error {
        Some(why) => Err(SandboxError::Refused(why.chars().take(1000).collect())),
        None => Ok(hello),
    }
}

/// Accepts the guest's streams until the tunnel ends.
async fn accept(mut inbound: mpsc::Receiver<MuxStream>, outbound: mpsc::Sender<Outbound>) {
    let permits = Arc::new(Semaphore::new(MAX_INBOUND));
    while let Some(mut stream) = inbound.recv().await {
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            // Too many: dropping the stream resets it.
            continue;
        };
        let outbound = outbound.clone();
        tokio::spawn(async move {
            let header = read_json::<OutboundHeader, _>(&mut stream, MAX_OUTBOUND_HEADER);
            let Ok(Ok(header)) = tokio::time::timeout(HEADER_LIMIT, header).await else {
                return;
            };
            let kind = header.kind;
            let stream = Box::new(HeldStream {
                stream,
                _held: permit,
            });
            // If nobody takes connections any more, the stream is reset.
            let _ = outbound.send(Outbound { kind, stream }).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use agentmine_guest::protocol::{JailReport, OutboundKind, write_json};
    use tokio::io::{AsyncWriteExt as _, DuplexStream};

    use super::*;

    fn hello() -> Hello {
        Hello {
            version: VERSION,
            git_port: 1,
            web_port: 2,
            root: "/workspace".into(),
            jail: JailReport::default(),
            error: None,
        }
    }

    async fn greet(hello: &Hello) -> DuplexStream {
        let (worker, mut guest) = tokio::io::duplex(1 << 20);
        guest.write_all(&MAGIC).await.unwrap();
        write_json(&mut guest, hello).await.unwrap();
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(guest);
        });
        worker
    }

    async fn refused(bytes: &[u8]) -> String {
        let (worker, mut guest) = tokio::io::duplex(1 << 20);
        guest.write_all(bytes).await.unwrap();
        drop(guest);
        Tunnel::open(worker).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_bad_hello_is_refused() {
        assert!(refused(b"").await.contains("before it sent its hello"));
        let text = refused(b"OCI runtime exec failed: no such file").await;
        assert!(text.contains("OCI runtime exec failed"), "{text}");
        let mut huge = MAGIC.to_vec();
        huge.extend([0xff; 8]);
        assert!(refused(&huge).await.contains("the limit is"));
        let mut garbage = MAGIC.to_vec();
        garbage.extend([0, 0, 0, 3]);
        garbage.extend(b"{]}");
        assert!(refused(&garbage).await.contains("violated the protocol"));
    }

    #[tokio::test]
    async fn another_version_is_refused() {
        let worker = greet(&Hello {
            version: VERSION + 1,
            ..hello()
        })
        .await;
        let err = Tunnel::open(worker).await.unwrap_err();
        assert!(matches!(err, SandboxError::Protocol(_)), "{err}");
        let worker = greet(&Hello {
            error: Some("no Landlock".into()),
            ..hello()
        })
        .await;
        let err = Tunnel::open(worker).await.unwrap_err();
        assert!(
            matches!(&err, SandboxError::Refused(why) if why == "no Landlock"),
            "{err}"
        );
    }

    #[tokio::test]
    async fn garbage_instead_of_yamux_ends_the_tunnel() {
        let (worker, mut guest) = tokio::io::duplex(1 << 20);
        guest.write_all(&MAGIC).await.unwrap();
        write_json(&mut guest, &hello()).await.unwrap();
        guest.write_all(&[0xff; 64]).await.unwrap();
        let tunnel = Tunnel::open(worker).await.unwrap();
        tunnel.ended().await;
        assert!(tunnel.next_outbound().await.is_none());
        assert!(matches!(tunnel.stream().await, Err(SandboxError::Gone(_))));
    }

    #[tokio::test]
    async fn a_bad_outbound_header_is_dropped_and_the_tunnel_continues() {
        let (worker, mut guest) = tokio::io::duplex(1 << 20);
        guest.write_all(&MAGIC).await.unwrap();
        write_json(&mut guest, &hello()).await.unwrap();
        let guest = mux::start(guest, End::Guest);
        let tunnel = Tunnel::open(worker).await.unwrap();
        for bad in [
            &[0xff, 0xff, 0xff, 0xff][..],
            b"\0\0\0\x02{}",
            b"\0\0\0\x0f{\"kind\":\"tor\"}",
        ] {
            let mut stream = guest.opener.open().await.unwrap();
            stream.write_all(bad).await.unwrap();
            stream.flush().await.unwrap();
        }
        let mut stream = guest.opener.open().await.unwrap();
        let header = OutboundHeader {
            kind: OutboundKind::Web,
        };
        write_json(&mut stream, &header).await.unwrap();
        assert_eq!(
            tunnel.next_outbound().await.unwrap().kind,
            OutboundKind::Web
        );
    }

    /// Frames of a byte on many streams, as no honest guest sends them.
    #[tokio::test]
    async fn frames_of_a_byte_without_end_end_the_tunnel_with_the_reason() {
        const SYN: u8 = 1;
        let (worker, mut guest) = tokio::io::duplex(1 << 20);
        guest.write_all(&MAGIC).await.unwrap();
        write_json(&mut guest, &hello()).await.unwrap();
        let tunnel = Tunnel::open(worker).await.unwrap();
        let sent = async {
            let mut sent = 0_u64;
            for round in 0..10_000 {
                let mut frames = Vec::new();
                for stream in 1..=50_u8 {
                    let flags = if round == 0 { SYN } else { 0 };
                    frames.extend([0, 0, 0, flags, 0, 0, 0, 2 * stream, 0, 0, 0, 1, 0]);
                }
                if guest.write_all(&frames).await.is_err() {
                    break;
                }
                sent += 50;
            }
            sent
        };
        let (why, sent) = tokio::join!(tunnel.ended(), sent);
        assert!(why.contains("misused its tunnel"), "{why}");
        assert!(sent < 300_000, "{sent}");
        let error = tunnel.stream().await.unwrap_err();
        assert!(matches!(error, SandboxError::Protocol(_)), "{error}");
    }

    #[tokio::test]
    async fn more_connections_than_allowed_are_reset() {
        let (worker, mut guest) = tokio::io::duplex(1 << 20);
        guest.write_all(&MAGIC).await.unwrap();
        write_json(&mut guest, &hello()).await.unwrap();
        let guest = mux::start(guest, End::Guest);
        let tunnel = Tunnel::open(worker).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..MAX_INBOUND {
            let mut stream = guest.opener.open().await.unwrap();
            let header = OutboundHeader {
                kind: OutboundKind::Git,
            };
            write_json(&mut stream, &header).await.unwrap();
            held.push((stream, tunnel.next_outbound().await.unwrap()));
        }
        let mut one_more = guest.opener.open().await.unwrap();
        one_more.write_all(&[0]).await.unwrap();
        one_more.flush().await.unwrap();
        assert_eq!(one_more.read(&mut [0]).await.unwrap_or(0), 0);
        held.pop();
        // There is room again once the worker's end is dropped.
        let mut stream = guest.opener.open().await.unwrap();
        let header = OutboundHeader {
            kind: OutboundKind::Git,
        };
        write_json(&mut stream, &header).await.unwrap();
        assert!(tunnel.next_outbound().await.is_some());
    }
}
