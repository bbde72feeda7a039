//! One connection.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use crate::sql::failure::{FULL, code};

/// How long a connection may take.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long it is tried again while the server has no free connection: those of others come and go.
const FULL_LIMIT: Duration = Duration::from_secs(10);
/// The wait in between.
const FULL_PAUSE: Duration = Duration::from_millis(250);

pub(super) async fn attempt(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    attempt_for(options, FULL_LIMIT).await
}

async fn attempt_for(
    options: &PgConnectOptions,
    full_limit: Duration,
) -> Result<PgConnection, sqlx::Error> {
    let begun = Instant::now();
    loop {
        let connected = tokio::time::timeout(CONNECT_LIMIT, PgConnection::connect_with(options))
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut));
        match connected {
            Err(error) if code(&error).as_deref() == Some(FULL) && begun.elapsed() < full_limit => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;
    use crate::StoreError;
    use crate::sql::failure::Failure;
    use crate::sql::fake_postgres;

    fn options(url: &str) -> PgConnectOptions {
        PgConnectOptions::from_str(url).unwrap()
    }

    #[tokio::test]
    async fn a_server_without_a_free_connection_is_tried_again_and_then_named_with_what_to_do() {
        let url = fake_postgres::full_for(2).await;
        attempt(&options(&url)).await.unwrap();
        let url = fake_postgres::full_for(usize::MAX).await;
        let refused = attempt_for(&options(&url), Duration::ZERO).await;
        let shown = Failure::from(refused.unwrap_err()).at("h:1/db").to_string();
        for part in [
            "too many clients already",
            "hint: ",
            "store.max_connections",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[tokio::test]
    async fn a_refused_password_is_reported_with_what_to_do() {
        let url = fake_postgres::wrong_password().await;
        let refused = attempt(&options(&url)).await.unwrap_err();
        let error = Failure::from(refused).at("h:1/db");
        assert!(matches!(error, StoreError::Fault(_)), "{error}");
        let shown = error.to_string();
        for part in [
            "password authentication failed",
            "hint: ",
            "AGENTMINE_STORE_URL",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
