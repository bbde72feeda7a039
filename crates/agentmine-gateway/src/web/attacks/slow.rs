//! Connections that take their time, or too many at once.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::network::in_its_own_network;
use super::{GOOD, connect, gateway, response, status};
use crate::web::sni::tests::hello_for;

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_ends_its_connection() {
    let gateway = gateway(|_| {});
    let mut stream = connect(&gateway);
    let began = tokio::time::Instant::now();
    let drip = async {
        let (mut reader, mut writer) = tokio::io::split(&mut stream);
        let write = async {
            let _ = writer
                .write_all(b"GET http://good.example/ HTTP/1.1\r\n")
                .await;
            while writer.write_all(b"X: y\r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        };
        let mut all = Vec::new();
        tokio::select! {
            () = write => {}
            _ = reader.read_to_end(&mut all) => {}
        }
    };
    timeout(Duration::from_secs(200), drip).await.unwrap();
    assert!(
        began.elapsed() <= Duration::from_secs(70),
        "{:?}",
        began.elapsed()
    );
}

/// What a tunnel holds on the worker is bounded as for a plain request.
#[test]
fn open_tunnels_count_as_connections() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        let gateway = gateway(|_| {});
        let mut open = Vec::new();
        for _ in 0..128 {
            let mut stream = connect(&gateway);
            stream
                .write_all(b"CONNECT good.example:443 HTTP/1.1\r\n\r\n")
                .await
                .unwrap();
            assert_eq!(status(&response(&mut stream).await), 200);
            stream.write_all(&hello_for("good.example")).await.unwrap();
            open.push(stream);
        }
        let mut one_more = connect(&gateway);
        one_more
            .write_all(b"CONNECT good.example:443 HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        let waits = timeout(Duration::from_millis(500), response(&mut one_more)).await;
        assert!(waits.is_err(), "{waits:?}");
        open.pop();
        let answer = timeout(Duration::from_secs(20), response(&mut one_more))
            .await
            .unwrap();
        assert_eq!(status(&answer), 200, "{answer}");
    });
}
