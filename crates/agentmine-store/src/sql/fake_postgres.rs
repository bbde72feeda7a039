//! A stand-in for a Postgres server, for behaviour that a test cannot provoke in a real one.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// `AuthenticationOk` and `ReadyForQuery`.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// Answers what the connection of a number sends after its start.
type Answer = fn(usize, &[u8]) -> Vec<u8>;

/// Lets everybody in, until the runtime of the test ends. Returns the URL.
pub(super) async fn server(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, number, answer));
        }
    });
    format!("postgres://u@{address}/db?sslmode=disable")
}

/// Has no free connection at first, and lets all later ones in. Returns the URL.
pub(super) async fn full_for(connections: usize) -> String {
    refusing(
        connections,
        b"SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0",
    )
    .await
}

/// Refuses the password of everybody. Returns the URL.
pub(super) async fn wrong_password() -> String {
    let fields = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user \"u\"\0\0";
    refusing(usize::MAX, fields).await
}

/// Refuses the first connections with the fields of an error, and lets all later ones in. Returns the URL.
async fn refusing(connections: usize, fields: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let is_refused = number < connections;
            tokio::spawn(async move {
                // The first part of what the client sends.
                let _ = stream.read_i32().await;
                let reply = match is_refused {
                    true => refusal(fields),
                    false => WELCOME.to_vec(),
                };
                let _ = stream.write_all(&reply).await;
                // Until the client closes the connection.
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    });
    format!("postgres://u@{address}/db?sslmode=disable")
}

/// `ErrorResponse`.
fn refusal(fields: &[u8]) -> Vec<u8> {
    let length = u32::try_from(fields.len() + 4).unwrap();
    [b"E".as_slice(), &length.to_be_bytes(), fields].concat()
}

async fn serve(mut stream: TcpStream, number: usize, answer: Answer) {
    let mut received = [0; 4096];
    let mut has_begun = false;
    while let Ok(length @ 1..) = stream.read(&mut received).await {
        let reply = match std::mem::replace(&mut has_begun, true) {
            false => WELCOME.to_vec(),
            true => answer(number, &received[..length]),
        };
        if stream.write_all(&reply).await.is_err() {
            return;
        }
    }
}
