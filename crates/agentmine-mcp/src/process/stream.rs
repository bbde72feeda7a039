//! A server's stdin and stdout as one stream, whose writing half can be closed.
//!
//! A child's stdin closes only when it is dropped, and most servers exit when it closes. So it can also be
//! closed from outside, no matter who holds the stream.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{ChildStdin, ChildStdout};

use crate::lock::lock;

/// A server's stdin. Any clone can close it.
#[derive(Clone)]
pub(super) struct Stdin(Arc<Mutex<State>>);

struct State {
    pipe: Option<ChildStdin>,
    /// The task that waits for a server that does not read.
    writing: Option<Waker>,
}

impl Stdin {
    pub(super) fn new(pipe: ChildStdin) -> Self {
        Self(Arc::new(Mutex::new(State {
            pipe: Some(pipe),
            writing: None,
        })))
    }

    pub(super) fn close(&self) {
        let waiting = {
            let mut state = lock(&self.0);
            state.pipe = None;
            state.writing.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        work: impl FnOnce(Pin<&mut ChildStdin>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = lock(&self.0);
        let State {
            pipe: Some(pipe), ..
        } = &mut *state
        else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let polled = work(Pin::new(pipe), cx);
        state.writing = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

pub(super) struct Pipes {
    pub(super) stdout: ChildStdout,
    pub(super) stdin: Stdin,
}

impl AsyncRead for Pipes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipes {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stdin.poll(cx, |pipe, cx| pipe.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stdin.poll(cx, |pipe, cx| pipe.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stdin.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        self.stdin.close();
    }
}
