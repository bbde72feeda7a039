//! Proxies between the queue under test and the broker: one that cuts, one that is deaf, one that blocks publishers, one
//! that is slow. Each returns the port that it listens on.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use super::amqp_host;

/// A proxy between the queue under test and the broker that can cut every connection at once.
pub(super) struct Wire {
    pub(super) port: u16,
    pub(super) cut: tokio::sync::watch::Sender<u32>,
}

impl Wire {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = amqp_host();
        let (cut, cuts) = tokio::sync::watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (host, mut cuts) = (host.clone(), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(host).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self { port, cut }
    }
}

/// A proxy that swallows every request for a message of one queue, as if the queue had no leader.
pub(super) async fn deaf_to(queue: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = amqp_host();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&host).await.unwrap();
            let ((from_near, mut to_near), (mut from_far, to_far)) =
                (near.into_split(), far.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_far, &mut to_near).await });
            tokio::spawn(requests(from_near, to_far, queue.clone()));
        }
    });
    port
}

/// The next frame (AMQP 0-9-1, 4.2.3).
async fn next_frame(from: &mut OwnedReadHalf) -> std::io::Result<Vec<u8>> {
    let mut frame = vec![0; 7];
    from.read_exact(&mut frame).await?;
    let size = u32::from_be_bytes([frame[3], frame[4], frame[5], frame[6]]) as usize;
    frame.resize(7 + size + 1, 0);
    from.read_exact(&mut frame[7..]).await?;
    Ok(frame)
}

/// Relays frames, but for `basic.get` of the queue.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    queue: String,
) -> std::io::Result<()> {
    const BASIC_GET: [u8; 4] = [0, 60, 0, 70];
    let mut greeting = [0; 8];
    from.read_exact(&mut greeting).await?;
    to.write_all(&greeting).await?;
    loop {
        let frame = next_frame(&mut from).await?;
        let names_it = frame
            .windows(queue.len())
            .any(|window| window == queue.as_bytes());
        if !(frame[7..].starts_with(&BASIC_GET) && names_it) {
            to.write_all(&frame).await?;
        }
    }
}

/// A proxy that blocks a connection with the first message that is published on it, as a broker under an alarm of memory
/// or disk does: it accepts the message and reads nothing after it.
pub(super) async fn blocks_publishers() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = amqp_host();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&host).await.unwrap();
            let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
            let to_near = Arc::new(Mutex::new(to_near));
            tokio::spawn(answers(from_far, Arc::clone(&to_near)));
            tokio::spawn(until_published(from_near, to_far, to_near));
        }
    });
    port
}

/// Relays whole frames, so that others fit between them.
async fn answers(mut from: OwnedReadHalf, to: Arc<Mutex<OwnedWriteHalf>>) -> std::io::Result<()> {
    loop {
        let frame = next_frame(&mut from).await?;
        to.lock().await.write_all(&frame).await?;
    }
}

/// Relays frames up to the first body of a message, before which the client learns that it is blocked.
async fn until_published(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    back: Arc<Mutex<OwnedWriteHalf>>,
) -> std::io::Result<()> {
    const BODY: u8 = 3;
    // `connection.blocked` with the reason `low`.
    const BLOCKED: &[u8] = b"\x01\0\0\0\0\0\x08\0\x0a\0\x3c\x03low\xce";
    let mut greeting = [0; 8];
    from.read_exact(&mut greeting).await?;
    to.write_all(&greeting).await?;
    loop {
        let frame = next_frame(&mut from).await?;
        if frame[0] == BODY {
            back.lock().await.write_all(BLOCKED).await?;
            to.write_all(&frame).await?;
            // The connections stay open.
            return std::future::pending().await;
        }
        to.write_all(&frame).await?;
    }
}

/// A proxy that delivers each piece of an answer late.
pub(super) async fn slow_by(delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = amqp_host();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&host).await.unwrap();
            let ((mut from_near, mut to_near), (mut from_far, mut to_far)) =
                (near.into_split(), far.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_near, &mut to_far).await });
            tokio::spawn(async move {
                let mut piece = vec![0; 65_536];
                while let Ok(1..) = from_far.read(&mut piece[..1]).await {
                    tokio::time::sleep(delay).await;
                    let rest = from_far.try_read(&mut piece[1..]).unwrap_or(0);
                    to_near.write_all(&piece[..=rest]).await?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    port
}
