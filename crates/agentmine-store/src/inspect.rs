//! Looking at a database without changing it: nothing is created and nothing is migrated.

use agentmine_runtime::config;
use futures::future::LocalBoxFuture;

use crate::StoreError;
use crate::connect::unknown_scheme;
use crate::inspection::Inspection;
use crate::sql::{inspect_postgres, inspect_sqlite};

/// Looks at the database that the URL names.
///
/// # Errors
/// As [`crate::connect`]: a URL of another kind, a refused login, or a database that is away.
pub fn inspect(config: &config::StoreConfig) -> LocalBoxFuture<'_, Result<Inspection, StoreError>> {
    let url = config.url.expose();
    Box::pin(async move {
        match url.split_once(':') {
            Some(("postgres" | "postgresql", _)) => inspect_postgres(url).await,
            Some(("sqlite", _)) => inspect_sqlite(url).await,
            _ => Err(unknown_scheme(url)),
        }
    })
}
