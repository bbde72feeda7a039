//! CONNECT to the operator's proxy (RFC 9110 §9.3.6).
//!
//! Guaranteed: the answer is read as far as its blank line and no further, so what the host sends after it is not lost.

use std::io;
use std::time::Duration;

use agentmine_runtime::config::OutboundProxy;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::host::Host;
use super::target::Target;

/// Time limit of the proxy's answer. Before it answers, it connects to the host.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Size limit of the answer's head, in bytes.
const MAX_HEAD: usize = 8 * 1024;

/// Lets the proxy at the other end of `stream` connect to `host`. The error is the reason for having no connection.
pub(super) async fn open(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    proxy: &OutboundProxy,
    host: &Host,
    port: u16,
) -> Result<(), &'static str> {
    let asked = async {
        stream.write_all(&request(proxy, host, port)).await?;
        stream.flush().await?;
        head(stream).await
    };
    let Ok(answer) = timeout(ANSWER_TIMEOUT, asked).await else {
        return Err("the operator's proxy did not answer in time");
    };
    let status = answer.ok().as_deref().and_then(status);
    match status.ok_or("the operator's proxy did not send a valid HTTP response")? {
        200..300 => Ok(()),
        407 => Err("the operator's proxy did not accept the credentials in network.proxy"),
        status => {
            tracing::debug!(
                http.status = status,
                "the operator's proxy refused a connection"
            );
            Err("the operator's proxy refused the connection to the host")
        }
    }
}

fn request(proxy: &OutboundProxy, host: &Host, port: u16) -> Vec<u8> {
    let target = Target {
        host: host.clone(),
        port,
    };
    // No request has port 0, so the port is always written.
    let authority = target.authority(0);
    let authorization = match proxy.authorization() {
        Some(value) => format!("Proxy-Authorization: {}\r\n", value.expose()),
        None => String::new(),
    };
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{authorization}\r\n").into_bytes()
}

/// Reads as far as the blank line, byte by byte: a head is short, and what follows belongs to the host.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while head.len() < MAX_HEAD {
        head.push(stream.read_u8().await?);
        if head.ends_with(b"\n\r\n") || head.ends_with(b"\n\n") {
            return Ok(head);
        }
    }
    Err(io::Error::other("the head is too long"))
}

/// The number in `HTTP/1.1 200 Connection established`.
fn status(head: &[u8]) -> Option<u16> {
    let head = String::from_utf8_lossy(head);
    let mut words = head.lines().next()?.split(' ');
    let version = words.next()?;
    let status = words.next()?;
    let is_http = version.starts_with("HTTP/1.") && status.len() == 3;
    status.parse::<u16>().ok().filter(|_| is_http)
}

#[cfg(test)]
mod tests {
    use agentmine_runtime::config::Secret;
    use tokio::io::DuplexStream;

    use super::*;

    const LIMIT: usize = 64 * 1024;

    async fn ask(near: &mut DuplexStream) -> Result<(), &'static str> {
        let proxy = OutboundProxy::parse(&Secret::new("http://proxy:3128")).unwrap();
        open(near, &proxy, &Host::parse("example.org").unwrap(), 443).await
    }

    #[tokio::test]
    async fn what_the_host_sends_after_the_head_is_not_lost() {
        let (mut near, mut far) = tokio::io::duplex(LIMIT);
        far.write_all(b"HTTP/1.0 200 OK\r\n\r\n\r\nhello")
            .await
            .unwrap();
        assert_eq!(ask(&mut near).await, Ok(()));
        let text = "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n";
        let mut sent = vec![0; text.len()];
        far.read_exact(&mut sent).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&sent), text);
        drop(far);
        let mut rest = String::new();
        near.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "\r\nhello");
    }

    #[tokio::test]
    async fn an_answer_that_is_none_or_too_long_is_an_error() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD));
        for answer in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1\r\n\r\n",
            &long,
        ] {
            let (mut near, mut far) = tokio::io::duplex(LIMIT);
            far.write_all(answer.as_bytes()).await.unwrap();
            far.shutdown().await.unwrap();
            let invalid = "the operator's proxy did not send a valid HTTP response";
            assert_eq!(ask(&mut near).await, Err(invalid), "{answer:.20}");
        }
    }

    #[tokio::test]
    async fn every_status_but_success_is_a_refusal() {
        for status in [100, 302, 403, 502] {
            let (mut near, mut far) = tokio::io::duplex(LIMIT);
            let answer = format!("HTTP/1.1 {status}\r\n\r\n");
            far.write_all(answer.as_bytes()).await.unwrap();
            let refused = "the operator's proxy refused the connection to the host";
            assert_eq!(ask(&mut near).await, Err(refused), "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_is_silent_ends_in_time() {
        let (mut near, _far) = tokio::io::duplex(LIMIT);
        let asked = timeout(2 * ANSWER_TIMEOUT, ask(&mut near)).await;
        assert_eq!(
            asked.unwrap(),
            Err("the operator's proxy did not answer in time")
        );
    }
}
