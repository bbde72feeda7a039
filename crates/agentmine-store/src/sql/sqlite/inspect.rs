//! Looking at a SQLite file without changing it.

use chrono::Utc;
use sqlx::{ConnectOptions as _, Connection as _};

use super::open::{applied, options};
use crate::StoreError;
use crate::inspection::{Existing, Inspection, Migrated};
use crate::migrations;
use crate::sql::failure::Failure;

/// Looks at the file that a URL names.
pub(crate) async fn inspect(url: &str) -> Result<Inspection, StoreError> {
    let options = options(url)?.read_only(true).create_if_missing(false);
    let file = options.get_filename().to_owned();
    let address = file.display().to_string();
    if !file.exists() {
        return Ok(Inspection {
            address,
            database: Existing::Absent,
        });
    }
    let looking = async {
        let mut connection = options.connect().await?;
        let version: String = sqlx::query_scalar("SELECT sqlite_version()")
            .fetch_one(&mut connection)
            .await?;
        let applied = applied(&mut connection).await?;
        let migrated = match applied.as_slice() {
            [] => Migrated::Never,
            [_, ..] => Migrated::Before,
        };
        connection.close().await?;
        Ok(Existing::Present {
            product: format!("SQLite {version}"),
            missing: migrations::missing(migrations::SQLITE, &applied),
            migrated,
            // Its clock is this machine's.
            time: Utc::now(),
        })
    };
    let database: Result<Existing, Failure> = looking.await;
    let database = database.map_err(|error| error.at(&address))?;
    Ok(Inspection { address, database })
}
