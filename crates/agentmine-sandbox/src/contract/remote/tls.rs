//! Over TLS: a peer that ends it in front of the engine's socket.

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

use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, PEM.
type Pair = (String, String);

fn pair(params: CertificateParams, by: &Authority) -> Pair {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn server(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn client(by: &Authority) -> Pair {
    let mut params = CertificateParams::new(["worker".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    pair(params, by)
}

/// The engine behind TLS, which accepts the clients of one authority. Returns `tcp://` and its address.
async fn engine(server: Pair, clients: &Authority) -> String {
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

/// The configuration of a worker with these files in its `cert_path`.
fn worker(folder: &Path, host: String, ca: &Authority, own: &Pair) -> CommandExecutor {
    for (name, pem) in [
        ("ca.pem", &ca.pem()),
        ("cert.pem", &own.0),
        ("key.pem", &own.1),
    ] {
        std::fs::write(folder.join(name), pem).unwrap();
    }
    let mut config = docker_config();
    config.docker.host = Some(host);
    config.docker.cert_path = Some(folder.to_owned());
    config
}

#[tokio::test]
async fn an_engine_over_tls_does_all_that_a_task_needs() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority();
    let host = engine(pair(server("127.0.0.1"), &ours), &ours).await;
    essentials(&worker(folder.path(), host, &ours, &client(&ours))).await;
}

#[tokio::test]
async fn an_error_names_the_side_and_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, foreign) = (authority(), authority());
    let valid = || pair(server("127.0.0.1"), &ours);
    let at = |host| worker(folder.path(), host, &ours, &client(&ours));

    let host = engine(pair(server("127.0.0.1"), &foreign), &ours).await;
    let error = refusal(&at(host)).await;
    let ca = folder.path().join("ca.pem").display().to_string();
    assert!(
        error.contains(&format!("not signed by an authority in {ca}")),
        "{error}"
    );

    let mut expired = server("127.0.0.1");
    expired.not_before = rcgen::date_time_ymd(2019, 1, 1);
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let host = engine(pair(expired, &ours), &ours).await;
    let error = refusal(&at(host)).await;
    assert!(error.contains("its certificate has expired"), "{error}");

    let host = engine(pair(server("engine.example.com"), &ours), &ours).await;
    let error = refusal(&at(host)).await;
    assert!(error.contains("not for the name 127.0.0.1"), "{error}");
    assert!(error.contains("engine.example.com"), "{error}");

    let cert = folder.path().join("cert.pem").display().to_string();
    let host = engine(valid(), &ours).await;
    let error = refusal(&worker(folder.path(), host, &ours, &client(&foreign))).await;
    assert!(
        error.contains(&format!("does not accept the certificate in {cert}")),
        "{error}"
    );

    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("tcp://{}", plain.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = plain.accept().await {
            stream.writable().await.unwrap();
            let _ = stream.try_write(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = refusal(&at(host)).await;
    assert!(error.contains("does not use TLS"), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority();
    let (one, other) = (client(&ours), client(&ours));
    let host = "tcp://engine.example.com".to_owned();
    let config = worker(
        folder.path(),
        host.clone(),
        &ours,
        &(one.0.clone(), other.1),
    );
    let error = DockerBackend::connect(&config).await.unwrap_err();
    assert!(matches!(error, SandboxError::Refused(_)), "{error}");
    assert!(error.to_string().contains("key.pem: "), "{error}");

    let config = worker(folder.path(), host, &ours, &one);
    std::fs::write(folder.path().join("ca.pem"), "").unwrap();
    let error = DockerBackend::connect(&config)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("ca.pem contains no certificate"), "{error}");
}
