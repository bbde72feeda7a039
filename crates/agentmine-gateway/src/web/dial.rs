//! Connecting: our own resolution, each address judged, and the judged address itself connected to.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address;
use super::policy::{Grant, Host};

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const MAX_TRIES: usize = 4;

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DialError {
    /// The policy forbids it.
    Blocked(&'static str),
    /// It was tried and failed.
    Unreachable(&'static str),
}

/// Connects to `host`. Names are resolved once; addresses that may not be reached are left out.
pub(super) async fn dial(host: &Host, port: u16, grant: Grant) -> Result<TcpStream, DialError> {
    let mut blocked = None;
    let mut tried = 0;
    for to in resolve(host, port).await? {
        if grant == Grant::Public
            && let Some(reason) = address::refused(to.ip())
        {
            blocked = Some(reason);
            continue;
        }
        if tried == MAX_TRIES {
            break;
        }
        tried += 1;
        let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await else {
            continue;
        };
        if grant == Grant::Public && to_itself(&stream) {
            blocked = Some("an address of the worker itself");
            continue;
        }
        let _ = stream.set_nodelay(true);
        return Ok(stream);
    }
    Err(match blocked {
        Some(reason) if tried == 0 => DialError::Blocked(reason),
        Some(reason @ "an address of the worker itself") => DialError::Blocked(reason),
        _ => DialError::Unreachable("the host cannot be reached"),
    })
}

async fn resolve(host: &Host, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    match host {
        Host::Address(address) => Ok(vec![SocketAddr::new(*address, port)]),
        Host::Name(name) => {
            match timeout(
                RESOLVE_TIMEOUT,
                tokio::net::lookup_host((name.as_str(), port)),
            )
            .await
            {
                Ok(Ok(found)) => Ok(found.collect()),
                Ok(Err(_)) => Err(DialError::Unreachable("the host's name does not resolve")),
                Err(_) => Err(DialError::Unreachable(
                    "resolving the host's name took too long",
                )),
            }
        }
    }
}

/// Whether both ends have the same address: the worker's public one, which no list can know.
fn to_itself(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => local.ip() == peer.ip(),
        _ => true,
    }
}
