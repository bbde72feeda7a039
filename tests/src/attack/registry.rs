//! A package registry that the operator allowed, whose credentials the gateway adds, and another server on the same host.
//!
//! Both notice what must not arrive: what the sandbox marked with [`MARK`], a method that writes, and at the other server
//! the registry's credentials.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agentmine_runtime::config::{Network, RegistryCredential, Secret};
use anyhow::Context as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::canaries::Canaries;

/// The name of both servers.
const HOST: &str = "localhost";
/// In what a sandbox sends and no server may receive.
const MARK: &str = "stolen";
/// Where the worker finds the folder of [`certify`].
const FOLDER: &str = "AGENTMINE_ATTACKS_CERTIFICATE";
/// The first byte of TLS.
const TLS_RECORD: u8 = 22;

/// Both servers. They end with the process.
pub(super) struct Registry {
    own: SocketAddr,
    other: SocketAddr,
    token: String,
    arrivals: Arc<Mutex<Vec<String>>>,
}

/// One of the servers.
#[derive(Clone)]
struct Server {
    name: &'static str,
    /// Part of a request that must not arrive here.
    refused: String,
    redirects: Arc<[(&'static str, String)]>,
    arrivals: Arc<Mutex<Vec<String>>>,
}

/// Writes a certificate of [`HOST`] and its key. Gives the environment with which a worker trusts it.
pub(super) fn certify(folder: &Path) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let key = rcgen::KeyPair::generate()?;
    let params = rcgen::CertificateParams::new(vec![HOST.to_owned()])?;
    let certificate = folder.join("registry.pem");
    std::fs::write(&certificate, params.self_signed(&key)?.pem())?;
    std::fs::write(folder.join("registry.key"), key.serialize_pem())?;
    Ok(vec![
        ("SSL_CERT_FILE", certificate),
        (FOLDER, folder.to_owned()),
    ])
}

/// TLS with that certificate, or with one that nobody trusts.
fn acceptor() -> anyhow::Result<TlsAcceptor> {
    let temporary = tempfile::tempdir()?;
    let folder = match std::env::var_os(FOLDER) {
        Some(folder) => PathBuf::from(folder),
        None => {
            certify(temporary.path())?;
            temporary.path().to_owned()
        }
    };
    let certificate = CertificateDer::from_pem_file(folder.join("registry.pem"))?;
    let key = PrivateKeyDer::from_pem_file(folder.join("registry.key"))?;
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Registry {
    /// Starts both; one path of the registry redirects to `inside`. Adds the credentials to `canaries`.
    pub(super) async fn start(
        canaries: &mut Canaries,
        inside: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let acceptor = acceptor().context("the registry's certificate")?;
        let token = format!("canary{}", uuid::Uuid::new_v4().simple());
        canaries.add("the registry's token", &token);
        let arrivals = Arc::<Mutex<Vec<String>>>::default();
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (own_address, other_address) = (own.local_addr()?, other.local_addr()?);
        let inside = inside.map_or_else(String::new, |it| it.ip().to_string());
        let redirects = Arc::new([
            ("/inside", format!("http://{inside}/")),
            (
                "/other",
                format!("https://{HOST}:{}/", other_address.port()),
            ),
        ]);
        let server = |name, refused: &str| Server {
            name,
            refused: refused.to_owned(),
            redirects: redirects.clone(),
            arrivals: Arc::clone(&arrivals),
        };
        tokio::spawn(server("the registry", MARK).serve(own, acceptor.clone()));
        tokio::spawn(server("another server", &token).serve(other, acceptor));
        Ok(Self {
            own: own_address,
            other: other_address,
            token,
            arrivals,
        })
    }

    /// As an operator allows both, and configures the registry's credentials.
    pub(super) fn allow(&self, network: &mut Network) {
        let named = |it: SocketAddr| format!("{HOST}:{}", it.port());
        network.allowed_private = vec![named(self.own), named(self.other)];
        network.registry_credentials = vec![RegistryCredential {
            host: named(self.own),
            authorization: None,
            token: Some(Secret::new(self.token.as_str())),
            paths: Vec::new(),
        }];
    }

    /// Where scripts find it.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("REGISTRY", format!("{HOST}:{}", self.own.port())),
            ("OTHER", format!("{HOST}:{}", self.other.port())),
        ]
    }

    /// Where both listen.
    pub(super) fn listeners(&self) -> [SocketAddr; 2] {
        [self.own, self.other]
    }

    /// What arrived since the last call and should not have.
    pub(super) fn damage(&self) -> Option<String> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.drain(..).next()
    }
}

impl Server {
    async fn serve(self, listener: TcpListener, acceptor: TlsAcceptor) {
        while let Ok((stream, _)) = listener.accept().await {
            let (server, acceptor) = (self.clone(), acceptor.clone());
            tokio::spawn(async move {
                // A connection that breaks is the client's affair.
                let _ = server.greet(stream, &acceptor).await;
            });
        }
    }

    async fn greet(&self, stream: TcpStream, acceptor: &TlsAcceptor) -> std::io::Result<()> {
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first[0] == TLS_RECORD {
            return self.converse(acceptor.accept(stream).await?).await;
        }
        self.converse(stream).await
    }

    async fn converse(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        while stream.read_buf(&mut bytes).await? > 0 {
            while let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
                let head: Vec<u8> = bytes.drain(..end + 4).collect();
                let head = String::from_utf8_lossy(&head);
                self.judge(&head);
                stream.write_all(self.answer(&head).as_bytes()).await?;
            }
        }
        Ok(())
    }

    fn judge(&self, head: &str) {
        let writes = !head.starts_with("GET ") && !head.starts_with("HEAD ");
        if writes || head.contains(MARK) || head.contains(&self.refused) {
            let first = head.lines().next().unwrap_or_default();
            let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            arrivals.push(format!("{} received {first:?}", self.name));
        }
    }

    fn answer(&self, head: &str) -> String {
        let path = head.split(' ').nth(1).unwrap_or_default();
        match self.redirects.iter().find(|it| it.0 == path) {
            Some((_, to)) => {
                format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
            }
            None if head.starts_with("HEAD") => {
                "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".into()
            }
            None => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\npackage".into(),
        }
    }
}
