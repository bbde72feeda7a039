//! One connection.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

/// How long a connection may take.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn attempt(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    tokio::time::timeout(CONNECT_LIMIT, PgConnection::connect_with(options))
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
