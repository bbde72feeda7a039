//! Multiplexes many streams over one byte stream.
//!
//! A task drives the yamux connection. It never waits for a reader: a stream that the other side opens while
//! [`INBOUND_BACKLOG`] streams wait to be accepted is reset. Yamux's window limits how much one side can make
//! the other buffer: 256 KiB for each of at most `MAX_STREAMS` streams. A side that opens more streams ends
//! its own tunnel.

use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, BufStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

use crate::protocol::MAX_STREAMS;

/// Maximum number of streams opened by the other side that wait to be accepted.
pub const INBOUND_BACKLOG: usize = 64;

const BUFFER: usize = 64 * 1024;

/// One stream of a tunnel.
pub type MuxStream = Compat<yamux::Stream>;

type OpenRequest = oneshot::Sender<Result<yamux::Stream, String>>;

/// Opens streams. The tunnel closes when the last `Opener` is dropped.
#[derive(Debug, Clone)]
pub struct Opener(mpsc::Sender<OpenRequest>);

impl Opener {
    /// Opens a stream to the other side.
    ///
    /// # Errors
    /// When the tunnel is closed, or too many streams are open.
    pub async fn open(&self) -> Result<MuxStream, String> {
        let (tx, rx) = oneshot::channel();
        let gone = || "the tunnel is closed".to_owned();
        self.0.send(tx).await.map_err(|_| gone())?;
        Ok(rx.await.map_err(|_| gone())??.compat())
    }
}

/// Which end of a tunnel this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end in the worker.
    Worker,
    /// The end in the sandbox.
    Guest,
}

/// A running tunnel.
#[derive(Debug)]
pub struct Mux {
    /// Opens streams.
    pub opener: Opener,
    /// Streams that the other side opened.
    pub inbound: mpsc::Receiver<MuxStream>,
    /// Finishes when the tunnel ends, and returns the reason.
    pub driver: JoinHandle<String>,
}

/// Starts multiplexing over `io`.
pub fn start<T>(io: T, end: End) -> Mux
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut config = yamux::Config::default();
    config.set_max_num_streams(MAX_STREAMS);
    config.set_max_connection_receive_window(Some(MAX_STREAMS * 256 * 1024));
    config.set_split_send_size(64 * 1024);
    let mode = match end {
        End::Worker => yamux::Mode::Client,
        End::Guest => yamux::Mode::Server,
    };
    let (open_tx, open_rx) = mpsc::channel(16);
    let (inbound_tx, inbound) = mpsc::channel(INBOUND_BACKLOG);
    let mut driver = Driver {
        connection: yamux::Connection::new(buffered(io).compat(), config, mode),
        requests: open_rx,
        waiting: None,
        inbound: inbound_tx,
    };
    Mux {
        opener: Opener(open_tx),
        inbound,
        driver: tokio::spawn(std::future::poll_fn(move |cx| driver.poll(cx))),
    }
}

/// A frame's head and body, and frames that follow at once, are written together: through a container engine
/// every write costs several hops.
fn buffered<T: AsyncRead + AsyncWrite>(io: T) -> BufStream<T> {
    BufStream::with_capacity(BUFFER, BUFFER, io)
}

struct Driver<T> {
    connection: yamux::Connection<Compat<BufStream<T>>>,
    requests: mpsc::Receiver<OpenRequest>,
    waiting: Option<OpenRequest>,
    inbound: mpsc::Sender<MuxStream>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Driver<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            if self.waiting.is_none() {
                match self.requests.poll_recv(cx) {
                    Poll::Ready(Some(request)) => self.waiting = Some(request),
                    Poll::Ready(None) => {
                        return self.connection.poll_close(cx).map(|_| "closed".to_owned());
                    }
                    Poll::Pending => {}
                }
            }
            if self.waiting.is_some()
                && let Poll::Ready(opened) = self.connection.poll_new_outbound(cx)
                && let Some(request) = self.waiting.take()
            {
                // If the caller is gone, dropping the stream resets it.
                let _ = request.send(opened.map_err(|err| err.to_string()));
                continue;
            }
            match self.connection.poll_next_inbound(cx) {
                Poll::Ready(Some(Ok(stream))) => {
                    // If the backlog is full, dropping the stream resets it.
                    let _ = self.inbound.try_send(stream.compat());
                }
                Poll::Ready(Some(Err(err))) => return Poll::Ready(err.to_string()),
                Poll::Ready(None) => return Poll::Ready("the other end closed it".to_owned()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn streams_go_both_ways_and_the_end_is_seen() {
        let (a, b) = tokio::io::duplex(4096);
        let mut worker = start(a, End::Worker);
        let mut guest = start(b, End::Guest);

        let mut to_guest = worker.opener.open().await.unwrap();
        to_guest.write_all(b"ping").await.unwrap();
        to_guest.shutdown().await.unwrap();
        let mut got = String::new();
        let mut from_worker = guest.inbound.recv().await.unwrap();
        from_worker.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "ping");

        let mut to_worker = guest.opener.open().await.unwrap();
        to_worker.write_all(b"pong").await.unwrap();
        to_worker.shutdown().await.unwrap();
        got.clear();
        let mut from_guest = worker.inbound.recv().await.unwrap();
        from_guest.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "pong");

        drop(guest.opener);
        guest.driver.await.unwrap();
        worker.driver.await.unwrap();
    }
}
