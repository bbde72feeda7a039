//! Connecting, creating the database where it is missing, and migrating it.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool};

use super::Postgres;
use crate::StoreError;
use crate::failure::Failure;
use crate::migrations;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// All but heartbeats: so many connections.
    Main(u32),
    /// Heartbeats alone. A second connection is opened only where the first hangs.
    Heartbeat,
}

/// Opens a pool. In the main role the database is made and migrated first.
pub(crate) async fn open(url: &str, role: Role) -> Result<Postgres, StoreError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|_| StoreError::Fault("store.url is not a valid postgres:// URL".into()))?
        .application_name("agentmine");
    let (connections, limit) = match role {
        Role::Main(connections) => {
            migrate(&options).await?;
            (connections.max(1), Duration::from_secs(30))
        }
        Role::Heartbeat => (2, Duration::from_secs(5)),
    };
    let limit_sql = format!("SET statement_timeout = {}", limit.as_millis());
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT_LIMIT)
        .idle_timeout(Duration::from_secs(300))
        .after_connect(move |connection, _| {
            let sql = sqlx::AssertSqlSafe(limit_sql.clone());
            Box::pin(async move {
                sqlx::query(sql).execute(connection).await?;
                Ok(())
            })
        })
        .connect_lazy_with(options);
    let store = Postgres { pool, limit };
    crate::Store::healthy(&store).await?;
    Ok(store)
}

/// At least our own newest migration stands: a newer schema serves an older process (see
/// migrations/README.md).
pub(super) async fn healthy(pool: &PgPool) -> Result<(), Failure> {
    let seen: Option<i64> =
        sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success")
            .fetch_one(pool)
            .await?;
    crate::connect::schema_is_at_least(seen, migrations::newest(migrations::POSTGRES))
}

async fn migrate(options: &PgConnectOptions) -> Result<(), StoreError> {
    let mut connection = match attempt(options).await {
        Err(error) if code(&error).as_deref() == Some("3D000") => {
            create_database(options).await?;
            attempt(options).await.map_err(unreachable)?
        }
        other => other.map_err(unreachable)?,
    };
    let migrator = migrations::migrator(migrations::POSTGRES);
    migrator
        .run(&mut connection)
        .await
        .map_err(|error| StoreError::Fault(format!("migrating the database: {error}")))?;
    connection.close().await.map_err(unreachable)
}

async fn attempt(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    tokio::time::timeout(CONNECT_LIMIT, PgConnection::connect_with(options))
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// Makes the database, by way of the one that every server has. Another process may be doing the same.
async fn create_database(options: &PgConnectOptions) -> Result<(), StoreError> {
    let name = options.get_database().unwrap_or_default().to_owned();
    let missing = |why: String| {
        StoreError::Fault(format!(
            "database \"{name}\" does not exist and could not be created: {why}; \
             create it, or give the user CREATEDB"
        ))
    };
    let mut connection = attempt(&options.clone().database("postgres"))
        .await
        .map_err(|error| missing(error.to_string()))?;
    let sql = format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""));
    for pause in [100, 300, 900, 0] {
        let made = sqlx::query(sqlx::AssertSqlSafe(sql.clone()))
            .execute(&mut connection)
            .await;
        match made {
            Ok(_) => return Ok(()),
            Err(error) => match code(&error).as_deref() {
                // It is there already, or is being made this moment.
                Some("42P04" | "23505") => return Ok(()),
                // The template is busy with another CREATE DATABASE.
                Some("55006") if pause > 0 => {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                _ => return Err(missing(error.to_string())),
            },
        }
    }
    Err(missing("the server is busy".into()))
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

fn unreachable(error: sqlx::Error) -> StoreError {
    Failure::Database(error).into_store_error()
}
