//! Connecting to a host: it is resolved here, each address is checked, and the connection goes to the
//! checked address, so a second resolution cannot change it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address;
use super::host::Host;
use super::policy::Grant;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const MAX_TRIES: usize = 4;
const OWN_ADDRESS: &str = "address of the worker itself";

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DialError {
    /// The policy forbids it.
    Blocked(&'static str),
    /// It was tried and failed.
    Unreachable(&'static str),
}

/// Connects to `host`. A name is resolved once; forbidden addresses are skipped.
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
            blocked = Some(OWN_ADDRESS);
            continue;
        }
        let _ = stream.set_nodelay(true);
        return Ok(stream);
    }
    Err(match blocked {
        Some(reason) if tried == 0 => DialError::Blocked(reason),
        Some(OWN_ADDRESS) => DialError::Blocked(OWN_ADDRESS),
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
                Ok(Err(_)) => Err(DialError::Unreachable("the host name does not resolve")),
                Err(_) => Err(DialError::Unreachable("resolving the host name timed out")),
            }
        }
    }
}

/// Whether both ends have the same address: the worker's public one, which no list contains.
fn to_itself(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => local.ip() == peer.ip(),
        _ => true,
    }
}
