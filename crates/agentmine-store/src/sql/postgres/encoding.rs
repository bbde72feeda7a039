//! The encoding of a database, which was fixed when it was created.

use sqlx::{PgConnection, Row as _};

use super::schema;
use crate::sql::failure::Failure;

/// Encodings that can store any text; with `SQL_ASCII` the server stores bytes unchecked.
const WHOLE: [&str; 2] = ["UTF8", "SQL_ASCII"];

/// Refuses to begin in a database that cannot hold the characters of issues and transcripts: its first emoji would end a scan
/// or a session with an error. One that has tables of AgentMine is used as it is.
pub(super) async fn check(connection: &mut PgConnection) -> Result<(), Failure> {
    let row = sqlx::raw_sql("SHOW server_encoding")
        .fetch_one(&mut *connection)
        .await?;
    let encoding: String = row.try_get(0)?;
    if WHOLE.contains(&encoding.as_str()) {
        return Ok(());
    }
    let why = format!(
        "the encoding of the database is {encoding}, which lacks characters that issues and transcripts have"
    );
    let hint = "create one with `CREATE DATABASE … ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`";
    if schema::newest(connection).await? > 0 {
        tracing::warn!("{why}. hint: {hint}, and move the data there with pg_dump and pg_restore");
        return Ok(());
    }
    Err(Failure::Fault(format!("{why}. hint: {hint}")))
}
