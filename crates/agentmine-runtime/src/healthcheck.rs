//! The subcommand `healthcheck` of the programs: asks the process of the same configuration whether it is ready, so
//! that an image needs no HTTP client.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::exit::{Exit, Failure};

/// Time limit of the whole check. `/ready` answers within 2 s.
const LIMIT: Duration = Duration::from_secs(4);
/// The longest answer that is read.
const LONGEST: u64 = 64 << 10;

/// Asks `/ready` on the address of `http.listen`.
///
/// # Errors
/// With the reasons that the process gives, or if it does not answer.
pub async fn check(listen: Option<&str>) -> Result<()> {
    let address = address(listen)?;
    let answer = tokio::time::timeout(LIMIT, ask(address))
        .await
        .map_err(|_| unreachable(address, "no answer in 4 s"))?
        .map_err(|error| unreachable(address, &format!("{error:#}")))?;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if status == "200" {
        return Ok(());
    }
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Err(Failure::new(Exit::Other, format!("not ready: {}", body.trim())).into())
}

/// Where a process that listens on `listen` is reached from the same machine.
fn address(listen: Option<&str>) -> Result<SocketAddr> {
    let parsed = listen.and_then(|listen| listen.parse::<SocketAddr>().ok());
    let Some(mut address) = parsed.filter(|address| address.port() != 0) else {
        let seen = listen.unwrap_or("nothing");
        return Err(Failure::new(
            Exit::Config,
            format!("http.listen is {seen}; expected IP:PORT with a port other than 0"),
        )
        .hint("set it, for example to 127.0.0.1:9464")
        .into());
    };
    // A process on `[::]` accepts IPv4 too, and a container may have no IPv6 address.
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    Ok(address)
}

async fn ask(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address).await.context("connect")?;
    let request = b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.context("send")?;
    let mut answer = Vec::new();
    stream
        .take(LONGEST)
        .read_to_end(&mut answer)
        .await
        .context("receive")?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn unreachable(address: SocketAddr, why: &str) -> Failure {
    Failure::new(
        Exit::Other,
        format!("no process answers at {address}: {why}"),
    )
    .hint("it may be starting; its log says what it waits for")
}
