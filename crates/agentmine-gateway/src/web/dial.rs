//! Connecting to a host: it is resolved here, each address is checked, and the connection goes to the
//! checked address, so a second resolution cannot change it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::address;
use super::host::Host;
use super::policy::Grant;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Lookups of one gateway at once; more wait.
const MAX_LOOKUPS: usize = 16;
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

/// The lookups of one gateway. The system's resolver blocks a thread of the worker for as long as it likes: one session
/// must not take the threads of all.
#[derive(Debug, Clone)]
pub(super) struct Lookups(Arc<Semaphore>);

impl Lookups {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LOOKUPS)))
    }

    /// Runs a lookup when its turn comes. It keeps its place until it ends, also when nobody waits for it any more.
    async fn run<T: Send + 'static>(
        &self,
        lookup: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let place = self.0.clone().acquire_owned().await;
        let place = place.map_err(io::Error::other)?;
        let lookup = tokio::spawn(async move {
            let _place = place;
            lookup.await
        });
        lookup.await.map_err(io::Error::other)?
    }
}

/// Connects to `host`. A name is resolved once; forbidden addresses are skipped.
pub(super) async fn dial(
    host: &Host,
    port: u16,
    grant: Grant,
    lookups: &Lookups,
) -> Result<TcpStream, DialError> {
    let mut blocked = None;
    let mut tried = 0;
    for to in resolve(host, port, lookups).await? {
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

async fn resolve(host: &Host, port: u16, lookups: &Lookups) -> Result<Vec<SocketAddr>, DialError> {
    match host {
        Host::Address(address) => Ok(vec![SocketAddr::new(*address, port)]),
        Host::Name(name) => {
            let name = name.clone();
            let lookup = async move {
                let found = tokio::net::lookup_host((name, port)).await?;
                Ok(found.collect::<Vec<SocketAddr>>())
            };
            match timeout(RESOLVE_TIMEOUT, lookups.run(lookup)).await {
                Ok(Ok(found)) => Ok(found),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lookup_keeps_its_place_when_nobody_waits_for_it_any_more() {
        let lookups = Lookups::new();
        let limit = Duration::from_secs(10);
        let mut ends = Vec::new();
        for _ in 0..MAX_LOOKUPS {
            let (end, ended) = tokio::sync::oneshot::channel::<()>();
            let slow = async move {
                let _ = ended.await;
                Ok(())
            };
            assert!(timeout(limit, lookups.run(slow)).await.is_err());
            ends.push(end);
        }
        let started = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let one_more = || {
            let started = started.clone();
            lookups.run(async move {
                started.store(true, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            })
        };
        assert!(timeout(limit, one_more()).await.is_err());
        assert!(!started.load(std::sync::atomic::Ordering::SeqCst));
        drop(ends.pop());
        assert!(timeout(limit, one_more()).await.unwrap().is_ok());
    }
}
