//! The guest's stdin and stdout, from the engine's stream of a container.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agentmine_process::Tail;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bytes::{Buf as _, Bytes};
use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much of the guest's stderr is kept, in bytes.
const STDERR_KEPT: usize = 2048;

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;
type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// Both directions of a container's main process. The last part of its stderr is logged when it ends.
pub(crate) struct ContainerIo {
    output: Output,
    input: Input,
    current: Bytes,
    stderr: Tail,
}

impl ContainerIo {
    pub(crate) fn new(output: Output, input: Input) -> Self {
        Self {
            output,
            input,
            current: Bytes::new(),
            stderr: Tail::new(STDERR_KEPT),
        }
    }
}

impl Drop for ContainerIo {
    fn drop(&mut self) {
        let kept = self.stderr.to_vec();
        if !kept.is_empty() {
            let text = String::from_utf8_lossy(&kept);
            tracing::debug!(guest.stderr = %text.trim(), "a guest ended and left output on stderr");
        }
    }
}

impl AsyncRead for ContainerIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.current.is_empty() {
            match ready!(self.output.as_mut().poll_next(cx)) {
                Some(Ok(LogOutput::StdErr { message })) => self.stderr.push(&message),
                Some(Ok(
                    LogOutput::StdOut { message }
                    | LogOutput::Console { message }
                    | LogOutput::StdIn { message },
                )) => self.current = message,
                Some(Err(err)) => return Poll::Ready(Err(io::Error::other(err))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = self.current.len().min(buf.remaining());
        buf.put_slice(&self.current[..n]);
        self.current.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ContainerIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.input.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().poll_shutdown(cx)
    }
}
