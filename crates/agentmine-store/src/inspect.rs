//! Looking at a database without changing it: nothing is created and nothing is migrated.

use agentmine_runtime::config;
use chrono::{DateTime, Utc};

use crate::StoreError;
use crate::connect::unknown_scheme;
use crate::sql::{inspect_postgres, inspect_sqlite};

/// What is known of a database before it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// `host:port/database` or the file, without credentials.
    pub address: String,
    /// The database, or that there is none yet.
    pub database: Existing,
}

/// Whether there is a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existing {
    /// [`crate::connect`] creates it.
    Absent,
    /// It answers.
    Present {
        /// The product and its version.
        product: String,
        /// The number of migrations that it lacks.
        missing: usize,
        /// Whether it has been migrated at all.
        migrated: Migrated,
        /// Its clock.
        time: DateTime<Utc>,
    },
}

/// Whether a database has a schema of AgentMine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrated {
    /// An older or newer version used it, or this one.
    Before,
    /// It has none of our tables.
    Never,
}

/// Looks at the database that the URL names.
///
/// # Errors
/// As [`crate::connect`]: a URL of another kind, a refused login, or a database that is away.
pub async fn inspect(config: &config::StoreConfig) -> Result<Inspection, StoreError> {
    let url = config.url.expose();
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => inspect_postgres(url).await,
        Some(("sqlite", _)) => inspect_sqlite(url).await,
        _ => Err(unknown_scheme(url)),
    }
}
