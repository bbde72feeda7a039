//! The one TLS implementation of the process, and the authorities that it trusts: the system's, and those that an
//! operator adds.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use url::Url;

/// Makes ring the process's TLS provider. To be called first in `main`, and in tests that use HTTP. A
/// second call does nothing, and a provider that is set already is kept.
pub fn install_default_provider() {
    // The error case is that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The system trusts no authority, so no server can be verified.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "this system has no certificates of authorities{0}. hint: install the package ca-certificates, or name a PEM \
     file in SSL_CERT_FILE"
)]
pub struct NoAuthorities(String);

/// The authorities that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` override). A bundle has well over a
/// hundred, so it is read once in the life of a process.
///
/// # Errors
/// If there are none.
pub fn system_authorities() -> Result<Arc<RootCertStore>, NoAuthorities> {
    static SYSTEM: OnceLock<Result<Arc<RootCertStore>, NoAuthorities>> = OnceLock::new();
    SYSTEM
        .get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(found.certs);
            if !roots.is_empty() {
                return Ok(Arc::new(roots));
            }
            let why = found.errors.iter().map(|error| format!(" ({error})"));
            Err(NoAuthorities(why.collect()))
        })
        .clone()
}

/// How an HTTP client verifies the server at this URL: by the system's authorities and this one.
///
/// # Errors
/// If there are neither, and the URL is not `http`, which works on a system without any.
pub fn http_config(url: &Url, extra: Option<&Authority>) -> Result<ClientConfig, NoAuthorities> {
    let roots = match (system_authorities(), extra) {
        (system, None) if url.scheme() != "http" => system?,
        (system, None) => system.unwrap_or_else(|_| Arc::new(RootCertStore::empty())),
        (system, Some(extra)) => {
            let mut roots = system.map_or_else(|_| RootCertStore::empty(), Arc::unwrap_or_clone);
            roots.extend(extra.roots.roots.iter().cloned());
            Arc::new(roots)
        }
    };
    install_default_provider();
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Why a TLS connection cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    /// The server's certificate was not issued by an authority that is trusted, or cannot be used for a server.
    Untrusted,
    /// The server's certificate is for other names.
    WrongName,
    /// The server's certificate has expired, or is not valid yet.
    OutOfDate,
    /// The server does not use TLS.
    Plain,
}

/// The fault of TLS that an error is about, or one of its causes.
#[must_use]
pub fn fault(error: &(dyn std::error::Error + 'static)) -> Option<TlsFault> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return of_tls(tls);
        }
        let io = error.downcast_ref::<std::io::Error>();
        // The source of an I/O error is the cause of the error that it holds, not that error.
        next = match io.and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn of_tls(error: &rustls::Error) -> Option<TlsFault> {
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => Some(TlsFault::OutOfDate),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some(TlsFault::WrongName),
        rustls::Error::InvalidCertificate(_) => Some(TlsFault::Untrusted),
        // What the first byte of `HTTP/1.1` is taken for.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(TlsFault::Plain),
        _ => None,
    }
}

/// The certificates of an authority that is trusted in addition to the system's. Cheap to clone.
#[derive(Clone)]
pub struct Authority {
    pem: Arc<[u8]>,
    roots: Arc<RootCertStore>,
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Eq for Authority {}

/// Why a file is no [`Authority`].
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It cannot be read.
    #[error("a file that cannot be read ({0})")]
    Read(#[source] std::io::Error),
    /// It holds no certificate.
    #[error("a file without a certificate")]
    Empty,
    /// One of its certificates is damaged.
    #[error("a file with a damaged certificate")]
    Damaged,
}

impl Authority {
    /// Reads a PEM file, which may hold several certificates.
    ///
    /// # Errors
    /// If it cannot be read, or holds no certificate, or one that cannot be decoded.
    pub fn read(file: &Path) -> Result<Self, AuthorityError> {
        let pem = std::fs::read(file).map_err(AuthorityError::Read)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|_| AuthorityError::Damaged)?;
            roots
                .add(certificate)
                .map_err(|_| AuthorityError::Damaged)?;
        }
        match roots.is_empty() {
            true => Err(AuthorityError::Empty),
            false => Ok(Self {
                pem: pem.into(),
                roots: Arc::new(roots),
            }),
        }
    }

    /// The certificates, PEM.
    #[must_use]
    pub fn pem(&self) -> &[u8] {
        &self.pem
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_fault_of_tls_is_found_inside_of_other_errors() {
        let certificate = rustls::Error::InvalidCertificate;
        let other = rustls::OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity")));
        for (error, expected) in [
            (
                certificate(CertificateError::UnknownIssuer),
                Some(TlsFault::Untrusted),
            ),
            (
                certificate(CertificateError::Other(other)),
                Some(TlsFault::Untrusted),
            ),
            (
                certificate(CertificateError::NotValidForName),
                Some(TlsFault::WrongName),
            ),
            (
                certificate(CertificateError::Expired),
                Some(TlsFault::OutOfDate),
            ),
            (
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
                Some(TlsFault::Plain),
            ),
            (rustls::Error::DecryptError, None),
        ] {
            let of_handshake = io::Error::new(io::ErrorKind::InvalidData, error);
            let of_connector = io::Error::other(of_handshake);
            assert_eq!(fault(&of_connector), expected, "{of_connector}");
        }
        assert_eq!(fault(&io::Error::other("closed")), None);
    }
}
