//! The socket to the broker: TCP for `amqp`, TLS for `amqps`.
//!
//! lapin can do TLS itself, but its connector compiles thirty more crates, to read client certificates from
//! PKCS #12 files that no configuration names. A broker's certificate is checked against the system's
//! certificate authorities.
//!
//! A broker's name may have several addresses, and one of them may never answer: that of a node that is gone, or one of
//! IPv6 where a network policy drops it. The others are tried while it is waited for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures::stream::FuturesUnordered;
use futures::{AsyncRead, AsyncWrite, Stream, StreamExt as _};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_util::compat::TokioAsyncReadCompatExt;

/// How much later the next address of a host is tried while those before it do not answer (RFC 8305, section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Connects to the broker of the URL.
pub(super) async fn connect(
    uri: AMQPUri,
    properties: ConnectionProperties,
) -> Result<Connection, lapin::Error> {
    let tokio = Tokio::current();
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), Sockets(tokio)));
    let open = async |uri: AMQPUri, _| Ok(AsyncTcpStream::Plain(open(&uri).await?));
    Connection::connector(uri, runtime, open, properties).await
}

/// What lapin reads from and writes to. The URL decides whether it is encrypted.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

async fn open(uri: &AMQPUri) -> io::Result<Box<dyn Socket>> {
    let host = uri.authority.host.as_str();
    let addresses: Vec<SocketAddr> = lookup_host((host, uri.authority.port)).await?.collect();
    let stream = reach(&addresses).await?;
    stream.set_nodelay(true)?;
    match uri.scheme {
        AMQPScheme::AMQP => Ok(Box::new(stream.compat())),
        AMQPScheme::AMQPS => {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let stream = connector()?.connect(name, stream).await?;
            Ok(Box::new(stream.compat()))
        }
    }
}

/// Connects to the first of these addresses that answers.
async fn reach(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let mut attempts = FuturesUnordered::new();
    let mut left = addresses.iter();
    loop {
        match left.next() {
            Some(address) => attempts.push(TcpStream::connect(*address)),
            None if attempts.is_empty() => return Err(error),
            None => {}
        }
        tokio::select! {
            Some(connected) = attempts.next() => match connected {
                Ok(stream) => return Ok(stream),
                Err(failed) => error = failed,
            },
            () = tokio::time::sleep(NEXT_ADDRESS), if left.len() > 0 => {}
        }
    }
}

fn connector() -> io::Result<TlsConnector> {
    let roots = agentmine_runtime::tls::system_authorities().map_err(io::Error::other)?;
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Tokio's reactor, with the sockets of this module.
#[derive(Clone, Debug)]
struct Sockets(Tokio);

impl Reactor for Sockets {
    type TcpStream = Box<dyn Socket>;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: io::Read + io::Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    /// Unused: connections are opened by [`open`], which knows the host's name.
    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async move { Ok(Box::new(connecting.await?) as Box<dyn Socket>) }
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    use super::*;

    /// The first bytes that a broker at this URL receives.
    async fn greeting(scheme: &str) -> [u8; 4] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let uri = AMQPUri::from_str(&format!("{scheme}://guest:guest@127.0.0.1:{port}/")).unwrap();
        let connecting = tokio::spawn(connect(uri, ConnectionProperties::default()));
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut first = [0; 4];
        stream.read_exact(&mut first).await.unwrap();
        connecting.abort();
        first
    }

    #[tokio::test]
    async fn amqp_begins_with_the_protocol_header() {
        assert_eq!(greeting("amqp").await, *b"AMQP");
    }

    #[tokio::test]
    async fn amqps_begins_with_a_tls_handshake() {
        const HANDSHAKE: u8 = 22;
        let [kind, major, ..] = greeting("amqps").await;
        assert_eq!((kind, major), (HANDSHAKE, 3));
    }

    /// A listener whose address answers nobody, since its queue is full of these connections.
    async fn unanswering() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(connected) =
            timeout(Duration::from_millis(500), TcpStream::connect(address)).await
        {
            waiting.push(connected.unwrap());
        }
        (listener, waiting)
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_no_obstacle_to_the_next_one() {
        let (full, _waiting) = unanswering().await;
        let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [&full, &broker].map(|it| it.local_addr().unwrap());
        let reached = timeout(Duration::from_secs(10), reach(&addresses)).await;
        let reached = reached.unwrap().unwrap();
        assert_eq!(reached.peer_addr().unwrap(), addresses[1]);
    }

    #[tokio::test]
    async fn a_host_without_an_address_is_an_error() {
        assert_eq!(
            reach(&[]).await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
