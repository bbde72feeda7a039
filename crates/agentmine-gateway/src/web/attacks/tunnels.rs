//! What goes through CONNECT.

use tokio::io::AsyncWriteExt;

use super::network::in_its_own_network;
use super::{
    GOOD, OTHER, connect, gateway, only, recorded, refusals, response, settled, status, tunnel,
};
use crate::web::sni::tests::{entry, extension, hello, hello_for, sized};

/// The extension of an encrypted ClientHello.
const ECH: u16 = 0xfe0d;

fn named(name: &str) -> Vec<u8> {
    extension(0, &sized(&entry(name)))
}

/// Nothing of it may arrive.
fn refused() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let two = extension(
        0,
        &sized(&[entry("good.example"), entry("other.example")].concat()),
    );
    let twice = [named("good.example"), named("other.example")].concat();
    let many = hello(&named("good.example"), 10);
    vec![
        ("another name", hello_for("other.example"), "another host"),
        (
            "a longer name",
            hello_for("good.example.other.example"),
            "another host",
        ),
        (
            "a name with a NUL",
            hello_for("good.example\0.other.example"),
            "another host",
        ),
        ("an address as name", hello_for("8.8.8.8"), "another host"),
        ("an empty name", hello_for(""), "another host"),
        (
            "another name in small records",
            hello(&named("other.example"), 3),
            "another host",
        ),
        (
            "no name",
            hello(&extension(10, &[0, 2, 0, 29]), 100),
            "no SNI",
        ),
        ("no extensions", hello(&[], 100), "no SNI"),
        (
            "two names in one list",
            hello(&two, 1000),
            "more than one host",
        ),
        ("two lists", hello(&twice, 1000), "more than one host"),
        (
            "a very long one",
            hello(
                &[extension(21, &[0; 17_000]), named("good.example")].concat(),
                16_000,
            ),
            "too long",
        ),
        (
            "HTTP",
            b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n".to_vec(),
            "not TLS",
        ),
        ("SSH", b"SSH-2.0-x\r\n".to_vec(), "not TLS"),
        (
            "an SSLv2 hello",
            vec![0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10],
            "not TLS",
        ),
        (
            "an alert before",
            [vec![21, 3, 1, 0, 2, 1, 0], many.clone()].concat(),
            "not TLS",
        ),
        (
            "a record of another kind between",
            [&many[..15], &[23, 3, 1, 0, 1, 0], &many[15..]].concat(),
            "not TLS",
        ),
        (
            "an empty record between",
            [&many[..15], &[22, 3, 1, 0, 0], &many[15..]].concat(),
            "not TLS",
        ),
        (
            "half of it",
            many[..many.len() - 4].to_vec(),
            "closed the connection",
        ),
    ]
}

#[test]
fn a_client_hello_of_another_host_never_arrives() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        for gateway in [gateway(|_| {}), only(&["good.example"])] {
            for (what, bytes, reason) in refused() {
                let marked = [&bytes[..], b"SECRET\r\n\r\n"].concat();
                let bytes = if reason == "closed the connection" {
                    bytes
                } else {
                    marked
                };
                tunnel(&gateway, "good.example:443", &bytes).await;
                assert!(
                    recorded(&gateway, "good.example", reason),
                    "{what}: {:?}",
                    refusals(&gateway)
                );
                assert_eq!(network.received(GOOD), "", "{what}");
            }
        }
    });
}

#[test]
fn a_client_hello_of_the_host_arrives_however_it_is_split() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        let gateway = only(&["good.example"]);
        for (record, segment) in [(16_000, 16_000), (1, 16_000), (7, 1), (16_000, 1), (100, 3)] {
            let bytes = hello(&named("GOOD.example"), record);
            let before = network.received(GOOD).len();
            let mut stream = connect(&gateway);
            let request = b"CONNECT good.example:443 HTTP/1.1\r\n\r\n";
            stream.write_all(request).await.unwrap();
            assert_eq!(status(&response(&mut stream).await), 200);
            for part in bytes.chunks(segment) {
                stream.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            stream.write_all(b"\r\n\r\n").await.unwrap();
            assert_eq!(
                status(&response(&mut stream).await),
                200,
                "the server's own answer"
            );
            assert!(
                network.received(GOOD).len() > before + bytes.len(),
                "{record} {segment}"
            );
        }
    });
}

#[test]
fn an_encrypted_client_hello_cannot_name_a_host_outside_the_whitelist() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        let encrypted = [
            named("good.example"),
            extension(ECH, &[0, 0, 1, 0, 1, 7, 0, 0, 0, 0]),
        ]
        .concat();
        let bytes = [hello(&encrypted, 1000), b"\r\n\r\n".to_vec()].concat();
        let whitelist = only(&["good.example"]);
        tunnel(&whitelist, "good.example:443", &bytes).await;
        assert!(
            recorded(&whitelist, "good.example", "encrypted"),
            "{:?}",
            refusals(&whitelist)
        );
        assert_eq!(network.received(GOOD), "");
        // Where every public host is allowed, it hides nothing that is refused: browsers send it always.
        let open = gateway(|_| {});
        tunnel(&open, "good.example:443", &bytes).await;
        assert_ne!(network.received(GOOD), "");
    });
}

#[test]
fn the_host_header_of_connect_does_not_choose_the_host() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        network.name("other.example", &[&[OTHER]]);
        let gateway = only(&["good.example"]);
        for host in [
            "other.example:443",
            "127.0.0.1:443",
            "good.example:443\r\nHost: other.example:443",
        ] {
            let mut stream = connect(&gateway);
            let request = format!(
                "CONNECT good.example:443 HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Host: other.example\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            response(&mut stream).await;
            let mut stream = connect(&gateway);
            let request = format!(
                "CONNECT other.example:443 HTTP/1.1\r\nHost: {host}\r\nHost: good.example:443\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            assert_eq!(status(&response(&mut stream).await), 403);
        }
        settled(&network).await;
        assert!(!network.reached(OTHER) && !network.reached("127.0.0.1"));
    });
}

#[test]
fn a_tunnel_takes_no_second_target() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        network.name("other.example", &[&[OTHER]]);
        let gateway = only(&["good.example"]);
        let second = b"CONNECT other.example:443 HTTP/1.1\r\n\r\n";
        let bytes = [&hello_for("good.example")[..], second].concat();
        tunnel(&gateway, "good.example:443", &bytes).await;
        tunnel(&gateway, "good.example:443", second).await;
        settled(&network).await;
        assert!(!network.reached(OTHER));
    });
}
