//! The private key of a GitHub App, which may be replaced while it is in use.

use std::sync::PoisonError;

use agentmine_runtime::app_key::{AppKey, AppKeyError};
use agentmine_runtime::config::Secret;

/// The App's key, and the text that it was read from.
#[derive(Debug)]
pub(super) struct AppKeyFile {
    pem: Secret,
    read: std::sync::Mutex<(Secret, AppKey)>,
}

impl AppKeyFile {
    pub(super) fn new(pem: Secret) -> Result<Self, AppKeyError> {
        let key = AppKey::parse(pem.expose())?;
        let read = (pem.clone(), key).into();
        Ok(Self { pem, read })
    }

    /// The key now. A new text that is no key changes nothing.
    pub(super) fn current(&self) -> AppKey {
        let now = self.pem.current();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, key) = &mut *read;
        if text.expose() != now.expose() {
            match AppKey::parse(now.expose()) {
                Ok(next) => *key = next,
                Err(error) => {
                    tracing::warn!(%error, "the App's new key cannot be used; the former one stays in use");
                }
            }
            *text = now;
        }
        key.clone()
    }
}
