//! Opening the store that a URL names.
//!
//! The futures are boxed, so that this crate compiles what they run. An `async fn` is compiled in each crate that awaits
//! it, which here means every statement for both databases.

use std::sync::Arc;

use agentmine_runtime::config;
use futures::future::LocalBoxFuture;

use crate::sql::{Role, check_postgres, check_sqlite, open_postgres, open_sqlite};
use crate::{Store, StoreError};

/// Opens the store that the URL names (`postgres://…` or `sqlite:PATH`), creates the database if it is
/// missing, and runs its migrations under a lock; with `store.migrations: wait` it waits for [`migrate`] instead.
///
/// # Errors
/// [`StoreError::Fault`] for a URL of another kind, a refused login or a failed migration;
/// [`StoreError::Unavailable`] if the database is away or read-only. No message holds the URL or a password.
pub fn connect(
    config: &config::StoreConfig,
) -> LocalBoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
    crate::metrics::describe();
    let role = Role::Main(config.max_connections, config.migrations);
    Box::pin(open(config, role))
}

/// Creates the database if it is missing and applies the missing migrations, whatever `store.migrations` is.
///
/// # Errors
/// As [`connect`].
pub fn migrate(config: &config::StoreConfig) -> LocalBoxFuture<'_, Result<(), StoreError>> {
    let role = Role::Main(1, config::Migrations::Run);
    Box::pin(async move {
        open(config, role).await?.close().await;
        Ok(())
    })
}

/// Opens the same store for heartbeats only, in its own pool with short time limits, so that no
/// other work can keep a lease from being extended. Call [`connect`] first: it runs the migrations.
///
/// # Errors
/// As [`connect`].
pub fn connect_heartbeat(
    config: &config::StoreConfig,
) -> LocalBoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
    Box::pin(open(config, Role::Heartbeat))
}

/// Checks the URL; connects to nothing.
///
/// # Errors
/// [`StoreError::Fault`] for a URL that no store has. No message holds the URL or a password.
pub fn check(config: &config::StoreConfig) -> Result<(), StoreError> {
    let url = config.url.expose();
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => check_postgres(url),
        Some(("sqlite", _)) => check_sqlite(url),
        _ => Err(unknown_scheme(url)),
    }
}

async fn open(config: &config::StoreConfig, role: Role) -> Result<Arc<dyn Store>, StoreError> {
    let url = config.url.expose();
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => {
            Ok(Arc::new(open_postgres(&config.url, role).await?))
        }
        Some(("sqlite", _)) => Ok(Arc::new(open_sqlite(url, role).await?)),
        _ => Err(unknown_scheme(url)),
    }
}

pub(crate) fn unknown_scheme(url: &str) -> StoreError {
    // Only a well-known scheme is shown: a mistyped URL may begin with a password.
    const KNOWN: &[&str] = &["mysql", "mariadb", "mongodb", "redis", "http", "https"];
    let seen = url
        .split_once(':')
        .map(|(scheme, _)| scheme)
        .filter(|s| KNOWN.contains(s))
        .map_or_else(String::new, |s| format!(" (not {s}:)"));
    StoreError::Fault(format!(
        "store.url must be postgres://USER@HOST/DATABASE or sqlite:PATH{seen}"
    ))
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
    async fn an_absent_server_is_unavailable_and_named_without_its_password() {
        let config = config::StoreConfig {
            url: Secret::new("postgres://u:hunter2@127.0.0.1:1/db"),
            ..config::StoreConfig::default()
        };
        let error = connect(&config).await.err().unwrap();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains("127.0.0.1:1/db"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}
