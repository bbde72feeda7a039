//! The one TLS implementation of the process.

/// Makes ring the process's TLS provider. Call it first in `main`, and in tests that speak HTTP;
/// calling it again does nothing, and a provider that somebody else has set stays.
pub fn install_default_provider() {
    // The error case is "there is one already", which is what was asked for.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
