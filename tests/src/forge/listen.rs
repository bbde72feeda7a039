//! What the forge listens on: plain TCP, or TLS under its own authority.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Time limit of a handshake.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(5);

pub(super) enum Listening {
    Plain(TcpListener),
    Tls(TlsListener),
}

impl Listening {
    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::Plain(tcp) | Self::Tls(TlsListener { tcp, .. }) => tcp.local_addr(),
        }
    }

    pub(super) fn scheme(&self) -> &'static str {
        match self {
            Self::Plain(_) => "http",
            Self::Tls(_) => "https",
        }
    }
}

/// Accepts one handshake after the other, which is enough for a test.
pub(super) struct TlsListener {
    pub(super) tcp: TcpListener,
    pub(super) acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.tcp.accept().await else {
                // Out of descriptors: other connections end.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            };
            // A client that does not trust the authority ends the handshake; one that is silent gives way.
            let handshake = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// A server's certificate for this machine, and the certificate of its authority, PEM.
pub(super) fn certified() -> anyhow::Result<(TlsAcceptor, String)> {
    agentmine_runtime::tls::install_default_provider();
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = ["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
    let mut params = CertificateParams::new(names)?;
    // Its own name: OpenSSL takes a certificate whose issuer has its name for self-signed.
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "the fake forge");
    let server = params.signed_by(&key, &issuer)?;
    let private = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![server.der().clone()], private.into())?;
    Ok((TlsAcceptor::from(Arc::new(config)), issuer.pem()))
}
