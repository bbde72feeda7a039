//! That a connection has ended, and why.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Whether a connection ended by the server's own end, and not because it was cut off for what it did.
/// Then its process can tell more.
pub(crate) fn of_itself(reason: &str) -> bool {
    reason.starts_with("it has ended") || reason.starts_with("its output cannot be read")
}

/// Shared by all who use a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    reason: Arc<OnceLock<String>>,
    ended: CancellationToken,
}

impl Ending {
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Ends the connection. The first reason is the cause of the others, and stays.
    pub(crate) fn end(&self, reason: impl Into<String>) {
        let _ = self.reason.set(reason.into());
        self.ended.cancel();
    }

    pub(crate) async fn wait(&self) -> String {
        self.ended.cancelled().await;
        self.reason().unwrap_or("it has ended").to_owned()
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.ended
    }
}

/// The writing half of a server's stream, broken as soon as the connection has ended: the protocol's
/// own way of closing waits for a write that is under way, and a server that does not read would hold
/// it, and its stream, for ever.
pub(crate) struct Writer<W> {
    inner: W,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<W> Writer<W> {
    pub(crate) fn new(inner: W, ending: &Ending) -> Self {
        Self {
            inner,
            ended: Box::pin(ending.ended.clone().cancelled_owned()),
        }
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        match self.ended.as_mut().poll(cx) {
            Poll::Ready(()) => Err(std::io::ErrorKind::BrokenPipe.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Writer<W> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        this.poll_ended(cx)?;
        Pin::new(&mut this.inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        this.poll_ended(cx)?;
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        this.poll_ended(cx)?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}
