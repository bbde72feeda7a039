//! The socket to the broker: TCP for `amqp`, TLS for `amqps`.
//!
//! lapin can do TLS itself, but its connector compiles thirty more crates, to read client certificates from
//! PKCS #12 files that no configuration names. A broker's certificate is checked against the system's
//! certificate authorities.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures::{AsyncRead, AsyncWrite, Stream};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::compat::TokioAsyncReadCompatExt;

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
    let stream = TcpStream::connect((host, uri.authority.port)).await?;
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
    use tokio::net::TcpListener;

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
}
