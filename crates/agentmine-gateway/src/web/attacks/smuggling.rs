//! Requests and responses that two programs read differently.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::network::in_its_own_network;
use super::{
    GOOD, OTHER, connect, gateway, get, only, recorded, response, rest, send, settled, status,
};

const INNER: &str = "GET /smuggled HTTP/1.1\r\nHost: good.example\r\n\r\n";

/// Heads of requests whose end is not clear, each with what follows it.
fn unclear() -> Vec<(&'static str, String)> {
    let head = |lines: &str| {
        format!("POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\n{lines}\r\n")
    };
    let length = INNER.len();
    let chunks = format!("0\r\n\r\n{INNER}");
    vec![
        (
            "CL before TE",
            head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + &chunks,
        ),
        (
            "TE before CL",
            head(&format!(
                "Transfer-Encoding: chunked\r\nContent-Length: {}\r\n",
                length + 5
            )) + &chunks,
        ),
        (
            "CL for both",
            head(&format!(
                "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n",
                length + 5
            )) + &chunks,
        ),
        (
            "two CL",
            head(&format!(
                "Content-Length: 0\r\nContent-Length: {length}\r\n"
            )) + INNER,
        ),
        (
            "two CL the other way round",
            head(&format!(
                "Content-Length: {length}\r\nContent-Length: 0\r\n"
            )) + INNER,
        ),
        (
            "a list of CL",
            head(&format!("Content-Length: 0, {length}\r\n")) + INNER,
        ),
        ("CL with a sign", head("Content-Length: +0\r\n") + INNER),
        ("CL in hex", head("Content-Length: 0x0\r\n") + INNER),
        (
            "CL that overflows",
            head("Content-Length: 18446744073709551616\r\n") + INNER,
        ),
        ("a negative CL", head("Content-Length: -1\r\n") + INNER),
        (
            "TE twice",
            head("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n") + &chunks,
        ),
        (
            "TE with another coding",
            head("Transfer-Encoding: gzip, chunked\r\n") + &chunks,
        ),
        (
            "TE not chunked at last",
            head("Transfer-Encoding: chunked, gzip\r\n") + &chunks,
        ),
        (
            "an unknown TE",
            head("Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n") + INNER,
        ),
        (
            "TE with a tab",
            head("Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n") + &chunks,
        ),
        (
            "TE with a vertical tab",
            head("Transfer-Encoding: \u{b}chunked\r\nContent-Length: 5\r\n") + &chunks,
        ),
        (
            "a space before the colon",
            head("Transfer-Encoding : chunked\r\nContent-Length: 5\r\n") + &chunks,
        ),
        (
            "an obs-fold",
            head("X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") + &chunks,
        ),
        (
            "a folded TE",
            head("Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n") + &chunks,
        ),
        (
            "bare LF",
            head("X: y\nTransfer-Encoding: chunked\nContent-Length: 5\n") + &chunks,
        ),
        (
            "bare CR",
            head("X: y\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n") + &chunks,
        ),
        (
            "a NUL in a header",
            head("X: y\0\r\nContent-Length: 0\r\n") + INNER,
        ),
        (
            "a chunk extension",
            head("Transfer-Encoding: chunked\r\n") + &format!("0;a=\"\r\n\r\n{INNER}"),
        ),
        (
            "a chunk extension with LF",
            head("Transfer-Encoding: chunked\r\n") + &format!("1;\nx\r\n0\r\n\r\n{INNER}"),
        ),
        (
            "a chunk that is too long",
            head("Transfer-Encoding: chunked\r\n") + &format!("ffffffffffffffff1\r\n{INNER}"),
        ),
        (
            "a chunk size with a sign",
            head("Transfer-Encoding: chunked\r\n") + &format!("+0\r\n\r\n{INNER}"),
        ),
        (
            "a chunk size in 0x",
            head("Transfer-Encoding: chunked\r\n") + &format!("0x0\r\n\r\n{INNER}"),
        ),
        (
            "trailers",
            head("Trailer: Host\r\nTransfer-Encoding: chunked\r\n")
                + &format!("0\r\nHost: other.example\r\nContent-Length: 9\r\n\r\n{INNER}"),
        ),
        (
            "a body of GET",
            head(&format!("Content-Length: {length}\r\n")).replace("POST", "GET") + INNER,
        ),
        (
            "HTTP/1.0 with TE",
            head("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n")
                .replace("HTTP/1.1", "HTTP/1.0")
                + &chunks,
        ),
        (
            "two spaces in the request line",
            head("").replace(" HTTP", "  HTTP") + INNER,
        ),
        (
            "a tab in the request line",
            head("").replace(" HTTP", "\tHTTP") + INNER,
        ),
        ("HTTP/0.9", format!("GET http://good.example/\r\n{INNER}")),
        (
            "h2 with prior knowledge",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        ),
    ]
}

/// Each request goes to the host that it was checked for, on its own connection: whatever the two ends
/// think of its length, a server never gets two.
#[test]
fn a_server_gets_one_request_on_a_connection() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        network.name("other.example", &[&[OTHER]]);
        let gateway = only(&["good.example"]);
        for (what, bytes) in unclear() {
            let answer = send(&gateway, &bytes).await;
            // Everything after a whole request is a separate request, and not for a proxy.
            for line in answer.lines().filter(|line| line.starts_with("HTTP/1.")) {
                assert!(
                    [200, 400, 403, 502].contains(&status(line)),
                    "{what}: {answer}"
                );
            }
        }
        settled(&network).await;
        for it in network.connections() {
            let text = String::from_utf8_lossy(&it.received).into_owned();
            assert_ne!(it.to.ip().to_string(), OTHER);
            // Inside of a body that the head announces, it is data.
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
            let lower = head.to_ascii_lowercase();
            let lengths: Vec<usize> = lower
                .lines()
                .filter_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
                .collect();
            let chunked = lower.contains("transfer-encoding: chunked");
            assert!(lengths.len() + usize::from(chunked) <= 1, "{text}");
            match lengths.first() {
                Some(length) => assert!(body.len() <= *length, "{text}"),
                None if chunked => assert!(!body.contains("0\r\n\r\nGET"), "{text}"),
                None => assert_eq!(body, "", "{text}"),
            }
        }
    });
}

#[test]
fn a_request_that_cannot_be_read_is_recorded() {
    in_its_own_network(|_network| async move {
        let gateway = gateway(|_| {});
        send(
            &gateway,
            "GET http://good.example/ HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
        )
        .await;
        // The record is made when the connection has ended.
        let noted = async {
            while !recorded(&gateway, "?", "not a valid HTTP request") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), noted).await.unwrap();
    });
}

#[test]
fn a_pipelined_request_to_another_host_is_decided_for_itself() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        network.name("other.example", &[&[OTHER]]);
        network.name("private.example", &[&["10.0.0.1"]]);
        let gateway = only(&["good.example", "private.example"]);
        let one = |host: &str| format!("GET http://{host}/ HTTP/1.1\r\nHost: good.example\r\n\r\n");
        let all: String = [
            "good.example",
            "other.example",
            "private.example",
            "good.example",
        ]
        .map(one)
        .concat();
        let mut stream = connect(&gateway);
        stream.write_all(all.as_bytes()).await.unwrap();
        let mut rest = String::new();
        while rest.matches("HTTP/1.1 ").count() < 4 || !rest.ends_with("fine") {
            rest += &response(&mut stream).await;
        }
        let codes: Vec<&str> = rest.split("HTTP/1.1 ").skip(1).map(|it| &it[..3]).collect();
        assert_eq!(codes, ["200", "403", "403", "200"], "{rest}");
        settled(&network).await;
        assert!(!network.reached(OTHER) && !network.reached("10.0.0.1"));
    });
}

#[test]
fn the_url_decides_and_not_the_host_header() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        network.name("other.example", &[&[OTHER]]);
        let gateway = only(&["good.example"]);
        for headers in [
            "Host: other.example\r\n",
            "Host: good.example\r\nHost: other.example\r\n",
            "Host: 127.0.0.1\r\n",
            "Host: other.example\r\nConnection: host\r\n",
            "X-Forwarded-Host: other.example\r\nForwarded: host=other.example\r\n",
        ] {
            send(
                &gateway,
                format!("GET http://good.example/x HTTP/1.1\r\n{headers}\r\n"),
            )
            .await;
            let other = format!(
                "GET http://other.example/x HTTP/1.1\r\nHost: good.example\r\n{headers}\r\n"
            );
            assert_ne!(status(&send(&gateway, other).await), 200);
        }
        for line in [
            "GET /x HTTP/1.1",
            "GET //other.example/ HTTP/1.1",
            "GET http:///x HTTP/1.1",
            "GET http:other.example HTTP/1.1",
            "GET https://good.example/ HTTP/1.1",
            "GET ftp://good.example/ HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "GET * HTTP/1.1",
        ] {
            let answer = send(&gateway, format!("{line}\r\nHost: good.example\r\n\r\n")).await;
            assert!([400, 403].contains(&status(&answer)), "{line}: {answer}");
        }
        settled(&network).await;
        assert!(!network.reached(OTHER));
        let seen = network.received(GOOD).to_ascii_lowercase();
        let hosts: Vec<&str> = seen
            .lines()
            .filter(|line| line.starts_with("host:"))
            .collect();
        assert!(
            !hosts.is_empty() && hosts.iter().all(|line| *line == "host: good.example"),
            "{hosts:?}"
        );
    });
}

#[test]
fn headers_of_the_connection_do_not_pass() {
    in_its_own_network(|network| async move {
        network.name("good.example", &[&[GOOD]]);
        let gateway = gateway(|_| {});
        let answer = send(&gateway,
            "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade, HTTP2-Settings, X-Named\r\n\
             Upgrade: h2c, websocket\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nX-Named: 1\r\nKeep-Alive: 9\r\n\
             Proxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nX-Kept: 1\r\n\r\n").await;
        assert_eq!(status(&answer), 200, "{answer}");
        let seen = network.received(GOOD).to_ascii_lowercase();
        assert!(seen.contains("x-kept: 1"), "{seen}");
        for gone in [
            "upgrade",
            "http2",
            "x-named",
            "keep-alive",
            "proxy-",
            "te:",
            "connection:",
        ] {
            assert!(!seen.contains(gone), "{gone}: {seen}");
        }
    });
}

/// What a server sends after, before, or instead of one clear response.
const RESPONSES: [(&str, &str); 15] = [
    (
        "a second response",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nX-Evil: 1\r\nContent-Length: 4\r\n\r\nevil",
    ),
    (
        "CL and TE",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ),
    (
        "TE and CL",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 50\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ),
    (
        "two CL",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 40\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ),
    (
        "CL with a sign",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nokevil",
    ),
    (
        "an obs-fold",
        "HTTP/1.1 200 OK\r\nX: y\r\n Content-Length: 0\r\nContent-Length: 2\r\n\r\nokevil",
    ),
    (
        "bare LF",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\nevil",
    ),
    (
        "a switch of protocols",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nevil",
    ),
    (
        "many interim responses",
        "HTTP/1.1 103 Early Hints\r\nX-Evil: 1\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ),
    (
        "a body of 204",
        "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil",
    ),
    (
        "a body of 304",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nevil",
    ),
    ("no HTTP", "SSH-2.0-evil\r\n\r\n"),
    ("a request", "GET http://other.example/ HTTP/1.1\r\n\r\n"),
    ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    (
        "a header with a NUL",
        "HTTP/1.1 200 OK\r\nX: \0\r\nContent-Length: 2\r\n\r\nok",
    ),
];

/// A client that keeps its connection to the proxy gets each server's own response.
#[test]
fn a_response_does_not_answer_the_next_request() {
    in_its_own_network(|network| async move {
        network.name("evil.example", &[&[OTHER]]);
        network.name("good.example", &[&[GOOD]]);
        for (what, response_of_evil) in RESPONSES {
            let gateway = gateway(|_| {});
            network.answer(OTHER, response_of_evil);
            let mut stream = connect(&gateway);
            stream
                .write_all(b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
                .await
                .unwrap();
            let first = rest(&mut stream).await;
            let heads = first.matches("HTTP/1.").count();
            assert!(heads <= 1, "{what}: {first}");
            // A server that breaks off ends the connection, which is as clear.
            let next = stream
                .write_all(b"GET http://good.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
                .await;
            if next.is_ok() {
                let second = rest(&mut stream).await;
                let fine = second.is_empty()
                    || second.ends_with("\r\n\r\nfine") && second.matches("HTTP/1.").count() == 1;
                assert!(fine, "{what}: {first:?} then {second:?}");
            }
            assert_eq!(status(&get(&gateway, "http://good.example/").await), 200);
        }
    });
}
