//! The parts of the database that the store does not show.

use sqlx::{PgPool, SqlitePool};

use crate::chaos::fleet::{Fleet, StoreKind};

/// A connection of the oracle's own.
pub(crate) enum Rows {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Rows {
    pub(crate) async fn open(fleet: &Fleet) -> anyhow::Result<Self> {
        Ok(match fleet.setup.store {
            StoreKind::Postgres => Self::Postgres(PgPool::connect(&fleet.store_url).await?),
            StoreKind::Sqlite => Self::Sqlite(SqlitePool::connect(&fleet.store_url).await?),
        })
    }

    async fn count(&self, statement: &'static str) -> anyhow::Result<i64> {
        Ok(match self {
            Self::Postgres(pool) => sqlx::query_scalar(statement).fetch_one(pool).await?,
            Self::Sqlite(pool) => sqlx::query_scalar(statement).fetch_one(pool).await?,
        })
    }

    /// Steps of all journals.
    pub(crate) async fn steps(&self) -> anyhow::Result<i64> {
        self.count("SELECT count(*) FROM steps").await
    }

    /// Wake-ups whose time has not come.
    pub(crate) async fn put_off(&self) -> anyhow::Result<i64> {
        let now = match self {
            Self::Postgres(_) => {
                "SELECT count(*) FROM outbox WHERE sent_at IS NULL AND due_at > clock_timestamp()"
            }
            Self::Sqlite(_) => {
                "SELECT count(*) FROM outbox WHERE sent_at IS NULL AND due_at > unixepoch('subsec') * 1000"
            }
        };
        self.count(now).await
    }

    /// What is begun and not done: wake-ups that were not sent, effects of which nobody knows the outcome,
    /// sessions without an end.
    pub(crate) async fn open_work(&self) -> anyhow::Result<Option<String>> {
        for (what, statement) in [
            (
                "wake-ups in the outbox",
                "SELECT count(*) FROM outbox WHERE sent_at IS NULL",
            ),
            (
                "open effects",
                "SELECT count(*) FROM effects WHERE result IS NULL",
            ),
            (
                "open sessions",
                "SELECT count(*) FROM sessions WHERE ended_at IS NULL",
            ),
        ] {
            let count = self.count(statement).await?;
            if count > 0 {
                return Ok(Some(format!("{count} {what}")));
            }
        }
        Ok(None)
    }
}
