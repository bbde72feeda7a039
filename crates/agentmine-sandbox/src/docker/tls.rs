//! An engine over TLS, with certificates of both sides. No authority is trusted but those of `ca.pem`.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

use super::address::TlsFiles;
use super::causes::{cause, chain};
use crate::error::SandboxError;

/// How long the other end may not answer what was sent, in milliseconds.
const SILENT_MILLIS: u32 = 60_000;
/// How often a silent connection is probed.
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// The port of an engine with TLS.
const PORT: u16 = 2376;

/// An engine, and what proves who is at both ends. The files are read again after they were changed: certificates are renewed.
pub(super) struct TlsRoute {
    host: String,
    port: u16,
    authority: String,
    name: ServerName<'static>,
    config: Mutex<(Stamps, Arc<ClientConfig>)>,
    files: TlsFiles,
}

/// Ends a connection whose other end has vanished without a word within a minute, as ssh does.
fn notice_silence(tcp: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(tcp, SILENT_MILLIS)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, PROBE_EVERY)?;
    sockopt::set_tcp_keepintvl(tcp, PROBE_EVERY)?;
    Ok(())
}

/// When each of the files was changed.
type Stamps = [Option<SystemTime>; 3];

fn stamps(files: &TlsFiles) -> Stamps {
    let of = |file: &Path| std::fs::metadata(file).and_then(|it| it.modified()).ok();
    [of(&files.ca), of(&files.cert), of(&files.key)]
}

impl TlsRoute {
    /// The route to `HOST[:PORT]`.
    ///
    /// # Errors
    /// When the address or a file is not what it should be.
    pub(super) fn new(address: &str, files: TlsFiles) -> Result<Self, SandboxError> {
        let refused = |why: String| SandboxError::Refused(why);
        let invalid = || refused(format!("{address:?} is not the address of an engine"));
        let url = Url::parse(&format!("tcp://{address}")).map_err(|_| invalid())?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(invalid)?.trim_matches(['[', ']']);
        let port = url.port().unwrap_or(PORT);
        Ok(Self {
            name: ServerName::try_from(host.to_owned()).map_err(|_| invalid())?,
            host: host.to_owned(),
            port,
            authority: match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            },
            config: Mutex::new((stamps(&files), Arc::new(client(&files).map_err(refused)?))),
            files,
        })
    }

    /// `HOST:PORT`.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) async fn open(&self) -> io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        tcp.set_nodelay(true)?;
        notice_silence(&tcp)?;
        TlsConnector::from(self.config())
            .connect(self.name.clone(), tcp)
            .await
            .map_err(|err| io::Error::new(err.kind(), self.explain(&err)))
    }

    /// What the files say now; what they said before, while they cannot be read.
    fn config(&self) -> Arc<ClientConfig> {
        let mut known = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if stamps != known.0 {
            match client(&self.files) {
                Ok(config) => *known = (stamps, Arc::new(config)),
                // They may be half written.
                Err(why) => tracing::debug!(why, "the certificates cannot be read again"),
            }
        }
        Arc::clone(&known.1)
    }

    /// What a person can do something about. With TLS 1.3 an engine refuses our certificate only after the
    /// handshake, in place of its first answer.
    pub(super) fn explain(&self, err: &(dyn StdError + 'static)) -> String {
        let mut next = Some(err);
        while let Some(err) = next {
            if let Some(tls) = err.downcast_ref::<rustls::Error>() {
                return self.of_tls(tls);
            }
            next = cause(err);
        }
        chain(err)
    }

    fn of_tls(&self, err: &rustls::Error) -> String {
        let ca = self.files.ca.display();
        let cert = self.files.cert.display();
        match err {
            // A bad signature is that of another authority of the same name.
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => format!("its certificate is not signed by an authority in {ca}"),
            rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => "its certificate has expired".into(),
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => format!("its certificate is not for the name {}: {err}", self.host),
            rustls::Error::AlertReceived(
                alert @ (AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::DecryptError),
            ) => format!("it does not accept the certificate in {cert}: {alert:?}"),
            rustls::Error::InvalidMessage(_) => format!("it does not use TLS: {err}"),
            err => err.to_string(),
        }
    }
}

fn client(files: &TlsFiles) -> Result<ClientConfig, String> {
    agentmine_runtime::tls::install_default_provider();
    let TlsFiles { ca, cert, key } = files;
    let certificates = |file: &Path| {
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        let read: Vec<CertificateDer<'static>> =
            read.map_err(|err| format!("{}: {err}", file.display()))?;
        match read.is_empty() {
            true => Err(format!("{} contains no certificate", file.display())),
            false => Ok(read),
        }
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(ca)? {
        let added = roots.add(authority);
        added.map_err(|err| format!("{}: {err}", ca.display()))?;
    }
    let own = certificates(cert)?;
    let secret = PrivateKeyDer::from_pem_file(key);
    let secret = secret.map_err(|err| format!("{}: {err}", key.display()))?;
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(own, secret)
        .map_err(|err| format!("{} and {}: {err}", cert.display(), key.display()))
}
