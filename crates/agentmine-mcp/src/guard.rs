//! What a server writes, line by line, before the protocol sees it.
//!
//! Only whole lines that hold one JSON object get through. What else a server prints on its stdout is
//! dropped, up to a limit; a line that is too long, too much garbage or a flood of requests ends the
//! connection, and the reason is kept for the error that the caller gets.
//!
//! With the connection ends the writing too, at once: the protocol's own way of closing waits for a
//! write that is under way, and a server that does not read would hold it, and its stream, for ever.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Lines that are not JSON objects, over the life of a connection.
const MAX_GARBAGE: usize = 1_000;
/// Requests by the server, over the life of a connection. Each costs an answer, and answers pile up
/// in memory where a server does not read them.
const MAX_REQUESTS: usize = 10_000;
const CHUNK: usize = 8 * 1024;

/// That a connection has ended, and why. Shared by all who use it.
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
}

/// The writing half of a server's stream, broken as soon as the connection has ended.
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

/// The reading half of a server's stream.
pub(crate) struct LineGuard<R> {
    inner: R,
    max_line: usize,
    /// The line that is being read.
    line: Vec<u8>,
    /// Whole lines that may pass, and how much of them has.
    passing: Vec<u8>,
    passed: usize,
    garbage: usize,
    requests: usize,
    ended: bool,
    ending: Ending,
}

impl<R> LineGuard<R> {
    pub(crate) fn new(inner: R, max_line: usize, ending: &Ending) -> Self {
        Self {
            inner,
            max_line,
            line: Vec::new(),
            passing: Vec::new(),
            passed: 0,
            garbage: 0,
            requests: 0,
            ended: false,
            ending: ending.clone(),
        }
    }

    fn take(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let content = piece.strip_suffix(b"\n").unwrap_or(piece);
            if self.line.len() + content.len() > self.max_line {
                let max = self.max_line;
                return self.end(format!("it sent a line of more than {max} bytes"));
            }
            self.line.extend_from_slice(content);
            if piece.len() > content.len() {
                self.judge();
            }
            if self.ended {
                return;
            }
        }
    }

    /// A line is complete.
    fn judge(&mut self) {
        let line = std::mem::take(&mut self.line);
        let content = line.trim_ascii();
        match serde_json::from_slice::<Peek>(content) {
            Ok(peek) => {
                if peek.id.is_some() && peek.method.is_some() {
                    self.requests += 1;
                }
                self.passing.extend_from_slice(content);
                self.passing.push(b'\n');
            }
            Err(_) if content.is_empty() => {}
            Err(_) => self.garbage += 1,
        }
        if self.garbage > MAX_GARBAGE {
            self.end(format!(
                "it sent more than {MAX_GARBAGE} lines that are not the protocol"
            ));
        }
        if self.requests > MAX_REQUESTS {
            self.end(format!("it made more than {MAX_REQUESTS} requests"));
        }
    }

    fn end(&mut self, reason: String) {
        self.line = Vec::new();
        self.ended = true;
        self.ending.end(reason);
    }
}

/// As much of a message as is needed here; the rest is only checked for being JSON.
#[derive(Deserialize)]
struct Peek {
    id: Option<IgnoredAny>,
    method: Option<IgnoredAny>,
}

impl<R: AsyncRead + Unpin> AsyncRead for LineGuard<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        loop {
            let waiting = this.passing.get(this.passed..).unwrap_or_default();
            if !waiting.is_empty() {
                let count = waiting.len().min(buf.remaining());
                buf.put_slice(waiting.get(..count).unwrap_or_default());
                this.passed += count;
                return Poll::Ready(Ok(()));
            }
            this.passing = Vec::new();
            this.passed = 0;
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            let mut chunk = [0; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            match ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read)) {
                Ok(()) if read.filled().is_empty() => this.end("it has ended".to_owned()),
                Ok(()) => this.take(read.filled()),
                Err(error) => this.end(format!("its output cannot be read: {error}")),
            }
        }
    }
}
