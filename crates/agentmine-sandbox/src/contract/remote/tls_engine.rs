//! A peer that ends TLS in front of the engine's socket, and certificates of both sides. The story tests take this file
//! in too.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, PEM.
pub(crate) type Pair = (String, String);

pub(crate) fn pair(params: CertificateParams, by: &Authority) -> Pair {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    (certificate.pem(), key.serialize_pem())
}

pub(crate) fn server(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

pub(crate) fn client(by: &Authority) -> Pair {
    let mut params = CertificateParams::new(["worker".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    pair(params, by)
}

/// The engine behind TLS, which accepts the clients of one authority. Returns `tcp://` and its address.
pub(crate) async fn engine(server: Pair, clients: &Authority) -> String {
    agentmine_runtime::tls::install_default_provider();
    let mut roots = RootCertStore::empty();
    roots.add(clients.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
        .build()
        .unwrap();
    let config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(server.0.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(server.1.as_bytes()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(acceptor.clone(), stream));
        }
    });
    address
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let host = std::env::var("DOCKER_HOST").unwrap_or("unix:///var/run/docker.sock".into());
    let _ = match host.split_once("://").unwrap() {
        ("unix", socket) => {
            let mut engine = UnixStream::connect(socket).await.unwrap();
            tokio::io::copy_bidirectional(&mut stream, &mut engine).await
        }
        (_, address) => {
            let mut engine = TcpStream::connect(address).await.unwrap();
            tokio::io::copy_bidirectional(&mut stream, &mut engine).await
        }
    };
}

/// Writes the files of a `cert_path`.
pub(crate) fn write_files(folder: &Path, ca: &Authority, own: &Pair) {
    for (name, pem) in [
        ("ca.pem", &ca.pem()),
        ("cert.pem", &own.0),
        ("key.pem", &own.1),
    ] {
        std::fs::write(folder.join(name), pem).unwrap();
    }
}
