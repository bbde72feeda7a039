//! The one TLS implementation of the process, and the authorities that an operator adds.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Makes ring the process's TLS provider. To be called first in `main`, and in tests that use HTTP. A
/// second call does nothing, and a provider that is set already is kept.
pub fn install_default_provider() {
    // The error case is that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The certificates of an authority that is trusted in addition to the system's, PEM. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority(Arc<[u8]>);

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
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|_| AuthorityError::Damaged)?;
            roots
                .add(certificate)
                .map_err(|_| AuthorityError::Damaged)?;
        }
        match roots.is_empty() {
            true => Err(AuthorityError::Empty),
            false => Ok(Self(pem.into())),
        }
    }

    /// The certificates, PEM.
    #[must_use]
    pub fn pem(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}
