//! The private key of a GitHub App, and the JSON Web Tokens that it signs (RS256).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::config::Secret;

/// An RSA key of 2048 to 4096 bits. Cheap to clone; never printed.
#[derive(Clone)]
pub struct AppKey(Arc<RsaKeyPair>);

/// Why a text is no [`AppKey`].
#[derive(Debug, thiserror::Error)]
pub enum AppKeyError {
    /// It holds no private key.
    #[error("a text without a private key in PEM")]
    NoKey,
    /// The key is of another kind.
    #[error("a private key that is not RSA")]
    NotRsa,
    /// The key is damaged, too short or too long.
    #[error("a private key that cannot be used ({0})")]
    Unfit(String),
    /// It did not sign.
    #[error("the private key does not sign")]
    Sign,
}

impl AppKey {
    /// Reads a PEM text, as GitHub hands it out (PKCS #1) or as other tools write it (PKCS #8).
    ///
    /// # Errors
    /// If it holds no RSA key of at least 2048 bits.
    pub fn parse(pem: &str) -> Result<Self, AppKeyError> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| AppKeyError::NoKey)?;
        let pair = match &der {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(AppKeyError::NotRsa),
        };
        let pair = pair.map_err(|error| match error.to_string().as_str() {
            "WrongAlgorithm" => AppKeyError::NotRsa,
            why => AppKeyError::Unfit(why.to_owned()),
        })?;
        Ok(Self(Arc::new(pair)))
    }

    /// A JSON Web Token with these claims.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn sign(&self, claims: &Value) -> Result<Secret, AppKeyError> {
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
        let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
        let signed = format!("{header}.{claims}");
        let mut signature = vec![0; self.0.public().modulus_len()];
        let random = SystemRandom::new();
        self.0
            .sign(
                &RSA_PKCS1_SHA256,
                &random,
                signed.as_bytes(),
                &mut signature,
            )
            .map_err(|_| AppKeyError::Sign)?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(Secret::new(format!("{signed}.{signature}")))
    }

    /// The public key, DER (PKCS #1).
    #[must_use]
    pub fn public(&self) -> &[u8] {
        self.0.public().as_ref()
    }
}

impl std::fmt::Debug for AppKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppKey").finish_non_exhaustive()
    }
}
