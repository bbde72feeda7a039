//! The certificate authority of one session, whose certificates registries have towards the sandbox.
//!
//! Its key is in memory alone and ends with the session. Only this session's sandboxes trust it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use super::host::Host;
use crate::GatewayError;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Clocks of sandboxes may be behind.
const BEFORE: Duration = DAY;
/// Longer than any session.
const AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The certificate authority of one session.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Of all its certificates.
    key: KeyPair,
}

/// Why there is no certificate for a host.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl Authority {
    /// Makes its key and certificate, valid from a day ago and for thirty days.
    pub(super) fn new() -> Result<Self, GatewayError> {
        let mut params = validity(CertificateParams::default());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = name("AgentMine session");
        let made = KeyPair::generate().and_then(|key| CertifiedIssuer::self_signed(params, key));
        Ok(Self {
            issuer: made.map_err(|error| {
                GatewayError::certificates("the session's certificate authority", &error)
            })?,
            key: KeyPair::generate().map_err(|error| {
                GatewayError::certificates("the key of the session's certificates", &error)
            })?,
        })
    }

    /// Its certificate as PEM.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// TLS as this host: HTTP/1.1, with a certificate of its name alone.
    pub(super) fn server(&self, host: &Host) -> Result<Arc<ServerConfig>, CertificateError> {
        let host = host.to_string();
        let mut params = validity(CertificateParams::new(vec![host.clone()])?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.distinguished_name = name(host.get(..64).unwrap_or(&host));
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(self.key.serialize_der().into());
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is not printed.
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn validity(mut params: CertificateParams) -> CertificateParams {
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + AFTER).into();
    params
}

fn name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}
