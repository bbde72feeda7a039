//! A listener that limits how many connections are open, and for how long.
//!
//! Every user of the machine can connect, and each connection is an open file of the worker. So only some
//! are open at once, the next ones wait in the kernel's queue, and each ends after its time
//! whatever it sent.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// A listener with limits.
pub(super) struct LimitedListener {
    listener: TcpListener,
    free: Arc<Semaphore>,
    time: Duration,
}

impl LimitedListener {
    /// At most `most` connections at once, each for at most `time`.
    pub(super) fn new(listener: TcpListener, most: usize, time: Duration) -> Self {
        Self {
            listener,
            free: Arc::new(Semaphore::new(most)),
            time,
        }
    }
}

impl Listener for LimitedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Nobody closes the semaphore.
        let place = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            end: Box::pin(tokio::time::sleep(self.time)),
            _place: place,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends after its time.
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn silent_connections_are_few_and_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = LimitedListener::new(listener, 2, Duration::from_millis(300));
        let free = Arc::clone(&listener.free);
        let app = Router::new().route("/live", get(|| async { "ok" }));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut silent = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /live HTTP/1.1\r\n").await.unwrap();
            silent.push(stream);
        }
        let mut last = TcpStream::connect(address).await.unwrap();
        let request = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        last.write_all(request).await.unwrap();
        let answer = async {
            let mut text = String::new();
            last.read_to_string(&mut text).await.unwrap();
            for mut stream in silent {
                // The end or a reset.
                let _ = stream.read(&mut [0; 100]).await;
            }
            text
        };
        let answer = tokio::time::timeout(Duration::from_secs(20), answer).await;
        assert!(answer.unwrap().ends_with("ok"));
        assert!(free.available_permits() <= 2);
    }
}
