//! A listener with TLS, whose handshakes wait for no other connection's.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use axum::serve::Listener;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

type Connection = (TlsStream<TcpStream>, SocketAddr);

/// Connections after their handshake.
pub(super) struct Secured {
    address: io::Result<SocketAddr>,
    connections: mpsc::Receiver<Connection>,
}

impl Secured {
    pub(super) fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        let address = listener.local_addr();
        let (to, connections) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (acceptor, to) = (acceptor.clone(), to.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        // The server has ended otherwise.
                        let _ = to.send((stream, from)).await;
                    }
                });
            }
        });
        Self {
            address,
            connections,
        }
    }
}

impl Listener for Secured {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Connection {
        match self.connections.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.address {
            Ok(address) => Ok(*address),
            Err(error) => Err(error.kind().into()),
        }
    }
}

/// TLS with a new certificate of this address, which is written to `authority`.
pub(super) fn acceptor(address: IpAddr, authority: &Path) -> TlsAcceptor {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec![address.to_string()]).expect("an address");
    let certificate = params.self_signed(&key).expect("a certificate");
    std::fs::write(authority, certificate.pem()).expect("the authority's file");
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .expect("the registry's certificate");
    TlsAcceptor::from(Arc::new(config))
}
