//! One request to the guest and its answer, on its own stream and under a time limit.

use std::future::Future;
use std::io;
use std::time::Duration;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{GuestRequest, encode_json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _, ReadHalf};

use super::frozen::Frozen;
use crate::error::SandboxError;
use crate::tunnel::Tunnel;

/// Sends a request with its payload, hands the stream to `answer`, and gives up after `limit` for the
/// whole exchange, besides the time in which the sandbox is frozen: a guest that answers byte by byte gains no time.
///
/// Payload and answer are transferred at the same time: a guest may answer before it has read
/// everything.
pub(super) async fn ask<T, F, A>(
    tunnel: &Tunnel,
    frozen: &Frozen,
    request: &GuestRequest,
    payload: Vec<Vec<u8>>,
    limit: Duration,
    answer: F,
) -> Result<T, SandboxError>
where
    F: FnOnce(ReadHalf<MuxStream>) -> A,
    A: Future<Output = io::Result<Result<T, String>>>,
{
    let exchange = async {
        let (reader, mut writer) = tokio::io::split(tunnel.stream().await?);
        let send = async {
            send(&mut writer, request, payload.into_iter()).await?;
            // The stream stays open: closing it would signal to the guest that nobody waits.
            std::future::pending::<io::Result<()>>().await
        };
        let answer = answer(reader);
        tokio::pin!(answer);
        let answered = tokio::select! {
            biased;
            done = &mut answer => done,
            // Sending may fail because the guest has answered already.
            _ = send => answer.await,
        };
        answered
            .map_err(|err| tunnel.error(&err))?
            .map_err(SandboxError::Failed)
    };
    let answered = frozen.within(limit, exchange).await;
    answered.unwrap_or_else(|| Err(no_answer(limit)))
}

pub(super) fn no_answer(limit: Duration) -> SandboxError {
    SandboxError::Gone(format!("no answer within {} s", limit.as_secs()))
}

/// Sends a request and its payload piece by piece; each is dropped before the next is taken.
async fn send<W: AsyncWrite + Unpin>(
    writer: &mut W,
    request: &GuestRequest,
    payload: impl Iterator<Item = Vec<u8>>,
) -> io::Result<()> {
    writer.write_all(&encode_json(request)?).await?;
    for piece in payload {
        writer.write_all(&piece).await?;
    }
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A piece of the payload is taken only when it is its turn.
    #[tokio::test]
    async fn each_piece_is_sent_before_the_next_is_taken() {
        struct Counting<'a>(&'a AtomicUsize);
        impl AsyncWrite for Counting<'_> {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<io::Result<usize>> {
                self.0.fetch_add(bytes.len(), Ordering::SeqCst);
                std::task::Poll::Ready(Ok(bytes.len()))
            }
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }
            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }
        }
        let sent = AtomicUsize::new(0);
        let request = GuestRequest::StdioEnded { id: 1 };
        let head = encode_json(&request).unwrap().len();
        let pieces = (0..3).map(|n| {
            assert_eq!(sent.load(Ordering::SeqCst), head + n * 1000);
            vec![0; 1000]
        });
        send(&mut Counting(&sent), &request, pieces).await.unwrap();
        assert_eq!(sent.load(Ordering::SeqCst), head + 3000);
    }
}
