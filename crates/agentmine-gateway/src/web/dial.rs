//! Connecting to a host: it is resolved here, each address is checked, and the connection goes to the
//! checked address, so a second resolution cannot change it.
//!
//! If the operator has configured a proxy, connections to public hosts go through it. The proxy resolves the name again
//! and may find another address. A name is blocked here if one of its addresses is forbidden, or if it does not resolve
//! and belongs to an internal network. Accepted: any other name that does not resolve in time is passed on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::config::{Network, OutboundProxy, Secret};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::address;
use super::host::Host;
use super::outbound_proxy;
use super::policy::Grant;
use crate::GatewayError;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the lookup before a request to the proxy. Some networks with a proxy drop questions about public names.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
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
struct Lookups(Arc<Semaphore>);

impl Lookups {
    fn new() -> Self {
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

/// How one gateway connects.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    lookups: Lookups,
    proxy: Option<Arc<OutboundProxy>>,
    /// Lookups of the proxy's own name. Those of names that a sandbox chooses could delay them.
    proxy_lookups: Lookups,
}

impl Dialer {
    /// Reads the configuration.
    pub(super) fn new(network: &Network) -> Result<Self, GatewayError> {
        let read = |value: &Secret| {
            let form = OutboundProxy::FORM;
            let fault = || format!("command_executor.docker.network.proxy is not {form}");
            let proxy = OutboundProxy::parse(value).map(Arc::new);
            proxy.ok_or_else(|| GatewayError::Network(fault()))
        };
        Ok(Self {
            lookups: Lookups::new(),
            proxy: network.proxy.as_ref().map(read).transpose()?,
            proxy_lookups: Lookups::new(),
        })
    }

    /// Connects to `host`, directly or through the proxy. A direct connection skips forbidden addresses.
    pub(super) async fn dial(
        &self,
        host: &Host,
        port: u16,
        grant: Grant,
    ) -> Result<TcpStream, DialError> {
        let found = resolve(host, port, &self.lookups);
        match (&self.proxy, grant) {
            (Some(proxy), Grant::Public) => {
                match timeout(CHECK_TIMEOUT, found).await {
                    Ok(Ok(found)) => {
                        if let Some(reason) = any_refused(&found) {
                            return Err(DialError::Blocked(reason));
                        }
                    }
                    Ok(Err(_)) | Err(_) if is_internal(host) => {
                        return Err(DialError::Blocked("name of an internal network"));
                    }
                    Ok(Err(_)) | Err(_) => {}
                }
                self.through(proxy, host, port).await
            }
            (Some(_), Grant::Private) | (None, Grant::Public | Grant::Private) => {
                direct(found.await?, grant).await
            }
        }
    }

    /// The operator named the proxy, so its address may be a private one.
    async fn through(
        &self,
        proxy: &OutboundProxy,
        host: &Host,
        port: u16,
    ) -> Result<TcpStream, DialError> {
        let unreached = DialError::Unreachable("the operator's proxy cannot be reached");
        let name = proxy.host().to_owned();
        let Ok(found) = look_up(name, proxy.port(), &self.proxy_lookups).await else {
            return Err(unreached);
        };
        for to in found.into_iter().take(MAX_TRIES) {
            if let Some(mut stream) = connect(to).await {
                let opened = outbound_proxy::open(&mut stream, proxy, host, port).await;
                return opened.map(|()| stream).map_err(DialError::Unreachable);
            }
        }
        Err(unreached)
    }
}

/// Why one of these addresses may not be reached: the proxy may choose any of them.
fn any_refused(found: &[SocketAddr]) -> Option<&'static str> {
    found.iter().find_map(|to| address::refused(to.ip()))
}

/// Whether the public DNS never has this name (RFC 6761, 6762, 8375; ICANN reserves `internal`).
fn is_internal(host: &Host) -> bool {
    let Host::Name(name) = host else { return false };
    let last = name.rsplit_once('.').map(|(_, last)| last);
    matches!(last, None | Some("internal" | "local" | "localhost")) || name.ends_with(".home.arpa")
}

async fn direct(found: Vec<SocketAddr>, grant: Grant) -> Result<TcpStream, DialError> {
    let mut blocked = None;
    let mut tried = 0;
    for to in found {
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
        let Some(stream) = connect(to).await else {
            continue;
        };
        if grant == Grant::Public && to_itself(&stream) {
            blocked = Some(OWN_ADDRESS);
            continue;
        }
        return Ok(stream);
    }
    Err(match blocked {
        Some(reason) if tried == 0 => DialError::Blocked(reason),
        Some(OWN_ADDRESS) => DialError::Blocked(OWN_ADDRESS),
        _ => DialError::Unreachable("the host cannot be reached"),
    })
}

async fn connect(to: SocketAddr) -> Option<TcpStream> {
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await;
    let stream = connected.ok()?.ok()?;
    let _ = stream.set_nodelay(true);
    Some(stream)
}

async fn resolve(host: &Host, port: u16, lookups: &Lookups) -> Result<Vec<SocketAddr>, DialError> {
    match host {
        Host::Address(address) => Ok(vec![SocketAddr::new(*address, port)]),
        Host::Name(name) => look_up(name.clone(), port, lookups).await,
    }
}

async fn look_up(name: String, port: u16, lookups: &Lookups) -> Result<Vec<SocketAddr>, DialError> {
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

/// Whether both ends have the same address: the worker's public one, which no list contains.
fn to_itself(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => local.ip() == peer.ip(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

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

    /// A proxy on this machine, which records each request's head and sends back what follows it.
    async fn played_proxy(answer: &'static str) -> (Dialer, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let notes = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                notes.lock().unwrap().push(String::from_utf8(head).unwrap());
                stream.write_all(answer.as_bytes()).await.unwrap();
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let network = Network {
            proxy: Some(Secret::new(format!("http://agent:p%40ss@{address}"))),
            ..Network::default()
        };
        (Dialer::new(&network).unwrap(), heads)
    }

    const ACCEPTED: &str = "HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n";

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[tokio::test]
    async fn a_public_host_is_reached_through_the_proxy_whether_its_name_resolves_or_not() {
        let (dialer, heads) = played_proxy(ACCEPTED).await;
        for (name, port, authority) in [
            ("nowhere.invalid", 443, "nowhere.invalid:443"),
            ("8.8.8.8", 80, "8.8.8.8:80"),
            ("[2606:4700::1111]", 80, "[2606:4700::1111]:80"),
        ] {
            let dialled = dialer.dial(&host(name), port, Grant::Public).await;
            let mut stream = dialled.unwrap();
            stream.write_all(b"hello").await.unwrap();
            let mut echoed = [0; 5];
            stream.read_exact(&mut echoed).await.unwrap();
            assert_eq!(&echoed, b"hello", "{name}");
            let head = format!(
                "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\
                 Proxy-Authorization: Basic YWdlbnQ6cEBzcw==\r\n\r\n"
            );
            assert_eq!(heads.lock().unwrap().pop(), Some(head));
        }
    }

    #[tokio::test]
    async fn a_forbidden_host_is_blocked_and_a_private_one_is_reached_without_asking_the_proxy() {
        let (dialer, heads) = played_proxy(ACCEPTED).await;
        for (name, reason) in [
            ("10.0.0.1", "private address"),
            ("169.254.169.254", "link-local or metadata address"),
            ("[::1]", "loopback address"),
            ("localhost", "loopback address"),
            ("nobody.internal", "name of an internal network"),
        ] {
            let dialled = dialer.dial(&host(name), 80, Grant::Public).await;
            assert_eq!(dialled.unwrap_err(), DialError::Blocked(reason), "{name}");
        }
        let private = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = private.local_addr().unwrap();
        let dialled = dialer
            .dial(&host("127.0.0.1"), to.port(), Grant::Private)
            .await;
        assert_eq!(dialled.unwrap().peer_addr().unwrap(), to);
        assert_eq!(*heads.lock().unwrap(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_or_is_gone_makes_the_host_unreachable() {
        let (dialer, _) = played_proxy("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await;
        let dialled = dialer.dial(&host("8.8.8.8"), 80, Grant::Public).await;
        let refused = "the operator's proxy refused the connection to the host";
        assert_eq!(dialled.unwrap_err(), DialError::Unreachable(refused));

        let network = Network {
            proxy: Some(Secret::new("http://127.0.0.1:1")),
            ..Network::default()
        };
        let dialer = Dialer::new(&network).unwrap();
        let dialled = dialer.dial(&host("8.8.8.8"), 80, Grant::Public).await;
        let gone = "the operator's proxy cannot be reached";
        assert_eq!(dialled.unwrap_err(), DialError::Unreachable(gone));
    }

    #[test]
    fn a_name_with_one_forbidden_address_is_blocked_before_the_proxy() {
        let of = |texts: &[&str]| {
            let found: Vec<SocketAddr> = texts.iter().map(|it| it.parse().unwrap()).collect();
            any_refused(&found)
        };
        assert_eq!(
            of(&["10.0.0.1:80", "127.0.0.1:80"]),
            Some("private address")
        );
        assert_eq!(of(&["8.8.8.8:80", "10.0.0.1:80"]), Some("private address"));
        assert_eq!(of(&["8.8.8.8:80"]), None);
    }
}
