//! From a URL to a store.

use std::sync::Arc;

use agentmine_runtime::config;

use crate::failure::Failure;
use crate::{Store, StoreError, postgres, sqlite};

/// Opens the store that the URL names (`postgres://…` or `sqlite:PATH`), makes the database where it
/// is missing and runs its migrations under a lock.
///
/// # Errors
/// [`StoreError::Fault`] for a URL of another kind, a refused login or migration,
/// [`StoreError::Unavailable`] when the database is not there. No message holds the URL or a password.
pub async fn connect(config: &config::StoreConfig) -> Result<Arc<dyn Store>, StoreError> {
    crate::metrics::describe();
    match Backend::of(config.url.expose())? {
        Backend::Postgres(url) => {
            let role = postgres::Role::Main(config.max_connections);
            Ok(Arc::new(postgres::open(url, role).await?))
        }
        Backend::Sqlite(url) => Ok(Arc::new(sqlite::open(url, config.max_connections).await?)),
    }
}

/// Opens the same store for heartbeats alone: a pool of its own with short time limits, so that no
/// other work can keep a lease from being extended. Runs no migrations; call [`connect`] first.
///
/// # Errors
/// As [`connect`].
pub async fn connect_heartbeat(config: &config::StoreConfig) -> Result<Arc<dyn Store>, StoreError> {
    match Backend::of(config.url.expose())? {
        Backend::Postgres(url) => Ok(Arc::new(
            postgres::open(url, postgres::Role::Heartbeat).await?,
        )),
        Backend::Sqlite(url) => Ok(Arc::new(sqlite::open(url, 1).await?)),
    }
}

enum Backend<'a> {
    Postgres(&'a str),
    Sqlite(&'a str),
}

impl<'a> Backend<'a> {
    fn of(url: &'a str) -> Result<Self, StoreError> {
        match url.split_once(':') {
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(url)),
            Some(("sqlite", _)) => Ok(Self::Sqlite(url)),
            other => {
                // Only a well-known scheme is shown: a mistyped URL may begin with a password.
                const KNOWN: &[&str] = &["mysql", "mariadb", "mongodb", "redis", "http", "https"];
                let seen = other
                    .map(|(scheme, _)| scheme)
                    .filter(|s| KNOWN.contains(s))
                    .map_or_else(String::new, |s| format!(" (not {s}:)"));
                Err(StoreError::Fault(format!(
                    "store.url must be postgres://USER@HOST/DATABASE or sqlite:PATH{seen}"
                )))
            }
        }
    }
}

/// For `/ready`: `seen` is the newest migration in the database, `needed` our own newest.
pub(crate) fn schema_is_at_least(seen: Option<i64>, needed: Option<i64>) -> Result<(), Failure> {
    if seen >= needed {
        return Ok(());
    }
    Err(Failure::Fault(format!(
        "the database's schema is at version {}, this program needs {}",
        seen.unwrap_or(0),
        needed.unwrap_or(0)
    )))
}

#[cfg(test)]
mod tests {
    use agentmine_runtime::config::Secret;

    use super::*;

    #[tokio::test]
    async fn another_scheme_names_both_accepted_forms_and_no_password() {
        for url in ["mysql://u:hunter2@h/db", "hunter2:x", "nothing"] {
            let config = config::StoreConfig {
                url: Secret::new(url),
                ..config::StoreConfig::default()
            };
            let message = connect(&config).await.err().unwrap().to_string();
            assert!(message.contains("postgres://"), "{message}");
            assert!(message.contains("sqlite:"), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[tokio::test]
    async fn an_absent_server_is_unavailable_and_its_password_unsaid() {
        let config = config::StoreConfig {
            url: Secret::new("postgres://u:hunter2@127.0.0.1:1/db"),
            ..config::StoreConfig::default()
        };
        let error = connect(&config).await.err().unwrap();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
