//! The one TLS implementation of the process.

/// Makes ring the process's TLS provider. To be called first in `main`, and in tests that use HTTP. A
/// second call does nothing, and a provider that is set already is kept.
pub fn install_default_provider() {
    // The error case is that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
