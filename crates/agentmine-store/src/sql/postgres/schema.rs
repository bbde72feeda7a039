//! Waiting for the schema, without the right to change it.

use std::time::Duration;

use agentmine_runtime::backoff::Backoff;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::time::Instant;

use super::connect::attempt;
use crate::migrations;
use crate::sql::failure::{Failure, code};

/// How long a process waits for the migration of its version.
const LIMIT: Duration = Duration::from_secs(600);
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// The SQLSTATE of a database and of a table that does not exist (yet).
const MISSING: [&str; 2] = ["3D000", "42P01"];

/// Waits until the schema is as new as this program.
pub(super) async fn wait(options: &PgConnectOptions, address: &str) -> Result<(), Failure> {
    let needed = migrations::newest(migrations::POSTGRES).unwrap_or(0);
    let begun = Instant::now();
    let mut backoff = Backoff::new(SHORTEST, LONGEST);
    let mut reported = false;
    loop {
        let seen = version(options).await?;
        if seen >= needed {
            return Ok(());
        }
        if begun.elapsed() >= LIMIT {
            return Err(Failure::Fault(format!(
                "the schema is at version {seen}, and nobody brought it to {needed} within {} s. \
                 hint: run `producer migrate` of this version with a user who owns the tables",
                LIMIT.as_secs()
            )));
        }
        if !std::mem::replace(&mut reported, true) {
            tracing::info!(
                database = address,
                schema.seen = seen,
                schema.needed = needed,
                "waiting for `producer migrate`"
            );
        }
        backoff.wait().await;
    }
}

/// Whether the schema is as new as this program.
pub(super) async fn is_complete(connection: &mut PgConnection) -> Result<bool, Failure> {
    let needed = migrations::newest(migrations::POSTGRES).unwrap_or(0);
    Ok(newest(connection).await? >= needed)
}

/// The newest migration that was applied; 0 also for a database that does not exist.
async fn version(options: &PgConnectOptions) -> Result<i64, Failure> {
    let mut connection = match attempt(options).await {
        Err(error) if is_missing(&error) => return Ok(0),
        connected => connected?,
    };
    let newest = newest(&mut connection).await?;
    connection.close().await?;
    Ok(newest)
}

/// The newest migration that was applied; 0 before the first.
pub(super) async fn newest(connection: &mut PgConnection) -> Result<i64, Failure> {
    // Not prepared: behind a pooler, another client's statement may have its name.
    let newest = sqlx::raw_sql("SELECT max(version) FROM _sqlx_migrations WHERE success")
        .fetch_one(connection)
        .await
        .and_then(|row| row.try_get::<Option<i64>, _>(0));
    match newest {
        Err(error) if is_missing(&error) => Ok(0),
        newest => Ok(newest?.unwrap_or(0)),
    }
}

fn is_missing(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| MISSING.contains(&code.as_str()))
}
