//! What goes through CONNECT.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::host::Host;
use super::policy::HiddenNames;
use super::sni::{self, Hello};
use super::traffic::{IDLE, bytes_received, bytes_sent};
use crate::stream::GatewayStream;

/// Reads the TLS ClientHello, which must name `host`. Nothing has been sent upstream yet.
pub(super) async fn client_hello(
    client: &mut (impl AsyncRead + Unpin),
    host: &Host,
    hidden: HiddenNames,
    limit: Duration,
) -> Result<Vec<u8>, &'static str> {
    let read = async {
        let mut bytes = Vec::new();
        loop {
            match sni::server_name(&bytes, hidden) {
                Hello::Name(name) if matches!(Host::parse(&name), Ok(named) if named == *host) => {
                    return Ok(bytes);
                }
                Hello::Name(_) => return Err("the TLS ClientHello names another host"),
                Hello::Refused(reason) => return Err(reason),
                Hello::Incomplete if bytes.len() > sni::MAX_HELLO => {
                    return Err("the TLS ClientHello is too long");
                }
                Hello::Incomplete => {}
            }
            match client.read_buf(&mut bytes).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    return Err("the client closed the connection before a TLS ClientHello");
                }
            }
        }
    };
    timeout(limit, read)
        .await
        .unwrap_or(Err("no TLS ClientHello within the time limit"))
}

/// Copies bytes in both directions until both sides are done, one breaks, or nothing moves for [`IDLE`].
pub(super) async fn carry(client: impl GatewayStream, mut upstream: TcpStream, first: &[u8]) {
    if upstream.write_all(first).await.is_err() {
        return;
    }
    let moved = Moved::new();
    let (from_client, to_client) = tokio::io::split(client);
    let (from_upstream, to_upstream) = upstream.into_split();
    let both = async {
        tokio::try_join!(
            pump(from_client, to_upstream, &moved, bytes_sent()),
            pump(from_upstream, to_client, &moved, bytes_received()),
        )
    };
    tokio::select! {
        _ = both => {}
        () = moved.idle() => tracing::debug!("a tunnel was idle for too long"),
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Moved,
    counter: Counter,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..n]).await?;
        to.flush().await?;
        counter.increment(n as u64);
        moved.touch();
    }
}

/// When bytes last moved through a tunnel, in either direction.
struct Moved {
    start: Instant,
    last_ms: AtomicU64,
}

impl Moved {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }

    /// Returns when nothing has moved for [`IDLE`].
    async fn idle(&self) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let until = self.start + last + IDLE;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}
