//! Connections out of the sandbox: accepted on 127.0.0.1 and forwarded to the worker.

use std::sync::Arc;

use agentmine_guest::mux::Opener;
use agentmine_guest::protocol::{MAX_OUTBOUND, OutboundHeader, OutboundKind, write_json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// One permit for each connection, shared by all listeners of a guest.
pub(crate) fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_OUTBOUND))
}

/// Forwards every connection of a listener. Never returns.
pub(crate) async fn forward(
    listener: TcpListener,
    kind: OutboundKind,
    opener: Opener,
    permits: Arc<Semaphore>,
) {
    while let Ok(permit) = permits.clone().acquire_owned().await {
        let Ok((connection, _)) = listener.accept().await else {
            // Most likely the guest is out of file descriptors: wait until some are closed.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let opener = opener.clone();
        tokio::spawn(async move {
            let _permit = permit;
            // On any error the client sees its connection end.
            let _ = carry(connection, kind, &opener).await;
        });
    }
}

async fn carry(
    mut connection: TcpStream,
    kind: OutboundKind,
    opener: &Opener,
) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut stream = opener.open().await.map_err(std::io::Error::other)?;
    write_json(&mut stream, &OutboundHeader { kind }).await?;
    tokio::io::copy_bidirectional(&mut connection, &mut stream).await?;
    Ok(())
}
