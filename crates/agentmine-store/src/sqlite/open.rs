//! Opening the file, creating it where it is missing, and migrating it.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, SqlitePool};

use super::SqliteStore;
use crate::StoreError;
use crate::failure::Failure;
use crate::migrations;

/// How long a writer waits for the one before it.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// Opens the file and migrates it.
pub(crate) async fn open(url: &str, connections: u32) -> Result<SqliteStore, StoreError> {
    let options = SqliteConnectOptions::from_str(url)
        .map_err(|error| StoreError::Fault(format!("store.url: {error}")))?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY_LIMIT)
        .foreign_keys(true);
    let in_memory = url.contains(":memory:") || url.contains("mode=memory");
    if !in_memory {
        make_folder_of(options.get_filename())?;
    }
    let pool = SqlitePoolOptions::new()
        // A database in memory belongs to its one connection.
        .max_connections(if in_memory { 1 } else { connections.max(1) })
        .min_connections(u32::from(in_memory))
        .idle_timeout((!in_memory).then_some(Duration::from_secs(300)))
        .max_lifetime(None)
        .acquire_timeout(BUSY_LIMIT)
        .connect_with(options)
        .await
        .map_err(|error| StoreError::Unavailable(format!("opening the SQLite file: {error}")))?;
    migrate(&pool).await.map_err(Failure::into_store_error)?;
    Ok(SqliteStore {
        pool,
        limit: Duration::from_secs(30),
    })
}

/// At least our own newest migration stands: a newer schema serves an older process (see
/// migrations/README.md).
pub(super) async fn healthy(pool: &SqlitePool) -> Result<(), Failure> {
    let seen: Option<i64> =
        sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success")
            .fetch_one(pool)
            .await?;
    crate::connect::schema_is_at_least(seen, migrations::newest(migrations::SQLITE))
}

/// sqlx takes no lock of its own on SQLite, so all of it runs in one write transaction. Foreign keys are
/// off for that connection meanwhile, as a migration that makes a table anew needs.
async fn migrate(pool: &SqlitePool) -> Result<(), Failure> {
    let migrator = migrations::migrator(migrations::SQLITE);
    let mut connection = pool.acquire().await?;
    sqlx::query("PRAGMA foreign_keys = OFF")
        .execute(&mut *connection)
        .await?;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    migrator
        .run_direct(None, &mut *tx, false)
        .await
        .map_err(|error: MigrateError| {
            Failure::Fault(format!("migrating the database: {error}"))
        })?;
    let broken = sqlx::query("PRAGMA foreign_key_check")
        .fetch_optional(&mut *tx)
        .await?;
    if broken.is_some() {
        return Err(Failure::Fault(
            "migrating the database: a foreign key has no row".into(),
        ));
    }
    tx.commit().await?;
    sqlx::query("PRAGMA foreign_keys = ON")
        .execute(&mut *connection)
        .await?;
    Ok(())
}

fn make_folder_of(file: &Path) -> Result<(), StoreError> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => std::fs::create_dir_all(folder)
            .map_err(|error| StoreError::Fault(format!("making {}: {error}", folder.display()))),
        _ => Ok(()),
    }
}
