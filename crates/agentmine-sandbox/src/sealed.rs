//! Opens the tunnel over a guest's streams, under a seal with its own key.

use agentmine_guest::mux::End;
use agentmine_guest::seal::{KEY, Key, Sealed};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::error::SandboxError;
use crate::tunnel::Tunnel;

/// Gives a new guest its key, and opens the tunnel.
pub(crate) async fn open_tunnel<T>(mut io: T) -> Result<Tunnel, SandboxError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let key: [u8; KEY] = rand::random();
    // A guest that did not start may have left why; the tunnel reads it.
    let given = async {
        io.write_all(&key).await?;
        io.flush().await
    };
    let _ = given.await;
    let halves = Key::new(key).halves(End::Worker);
    Tunnel::open(Sealed::new(io, End::Worker, halves)).await
}
