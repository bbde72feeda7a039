//! Looking at a Postgres database without changing it.

use chrono::{DateTime, Utc};
use sqlx::Connection as _;

use super::connect::attempt;
use super::open::{address, options};
use crate::StoreError;
use crate::inspection::{Existing, Inspection, Migrated};
use crate::migrations;
use crate::sql::failure::{Failure, code};

/// The database does not exist.
const NO_DATABASE: &str = "3D000";
/// The table does not exist.
const NO_TABLE: &str = "42P01";

/// Looks at the database that a URL names.
pub(crate) async fn inspect(url: &str) -> Result<Inspection, StoreError> {
    let options = options(url)?.application_name("agentmine");
    let address = address(&options);
    let looking = async {
        let mut connection = match attempt(&options).await {
            Err(error) if code(&error).as_deref() == Some(NO_DATABASE) => {
                return Ok(Existing::Absent);
            }
            outcome => outcome?,
        };
        let version: String = sqlx::query_scalar("SHOW server_version")
            .fetch_one(&mut connection)
            .await?;
        let time: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(&mut connection)
            .await?;
        let is_read_only: bool =
            sqlx::query_scalar("SELECT current_setting('transaction_read_only') = 'on'")
                .fetch_one(&mut connection)
                .await?;
        if is_read_only {
            return Err(Failure::ReadOnly);
        }
        let applied: Result<Vec<i64>, sqlx::Error> =
            sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success")
                .fetch_all(&mut connection)
                .await;
        let (applied, migrated) = match applied {
            Ok(applied) => (applied, Migrated::Before),
            Err(error) if code(&error).as_deref() == Some(NO_TABLE) => {
                (Vec::new(), Migrated::Never)
            }
            Err(error) => return Err(error.into()),
        };
        connection.close().await?;
        Ok(Existing::Present {
            product: format!("PostgreSQL {version}"),
            missing: migrations::missing(migrations::POSTGRES, &applied),
            migrated,
            time,
        })
    };
    let database: Result<Existing, Failure> = looking.await;
    let database = database.map_err(|error| error.at(&address))?;
    Ok(Inspection { address, database })
}
