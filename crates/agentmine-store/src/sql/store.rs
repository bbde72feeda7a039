//! One wrapper around every operation: a time limit, the repetition of what failed for a passing reason, a
//! metric, and the database's address in the error.

use std::future::Future;
use std::time::{Duration, Instant};

use agentmine_domain::Lease;
use agentmine_runtime::failpoint::around_operation;
use async_trait::async_trait;
use sqlx::Pool;

use super::absence::Absence;
use super::arg::Arg;
use super::db::{AnyRow, Db, Dialect};
use super::failure::Failure;
use crate::migrations;
use crate::{Store, StoreError};

/// Attempts at one operation, the first included.
const ATTEMPTS: u32 = 3;

/// What a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// All but heartbeats, with so many connections.
    Main(u32),
    /// Heartbeats only. A second connection is opened only where the first one hangs.
    Heartbeat,
}

/// A store in one of the two databases.
pub(crate) struct SqlStore<D: Dialect> {
    pub(super) pool: Pool<D>,
    /// `host:port/database`, or the file.
    pub(super) address: String,
    /// The time limit of one attempt.
    pub(super) limit: Duration,
    /// When the database was away.
    pub(super) absence: Absence,
}

impl<D: Dialect> SqlStore<D> {
    pub(super) async fn connection(&self) -> Result<Db<D>, Failure> {
        let begun = Instant::now();
        let connection = Db::connection(&self.pool).await;
        self.absence.note_if_slow(begun);
        connection
    }

    pub(super) async fn transaction(&self) -> Result<Db<D>, Failure> {
        let begun = Instant::now();
        let transaction = Db::transaction(&self.pool).await;
        self.absence.note_if_slow(begun);
        transaction
    }

    /// An operation that is one SELECT.
    pub(super) async fn select<R, T>(
        &self,
        operation: &'static str,
        template: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<T>, StoreError>
    where
        R: AnyRow,
        T: TryFrom<R, Error = Failure>,
    {
        self.run(operation, || async {
            let rows = self.connection().await?.rows::<R>(template, args).await?;
            rows.into_iter().map(T::try_from).collect()
        })
        .await
    }

    /// An operation that is one statement without rows. Returns the number of rows it changed.
    pub(super) async fn execute(
        &self,
        operation: &'static str,
        template: &'static str,
        args: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        self.run(operation, || async {
            self.connection().await?.execute(template, args).await
        })
        .await
    }

    /// The same under a lease: refused if no row was found.
    pub(super) async fn execute_held(
        &self,
        lease: &Lease,
        operation: &'static str,
        template: &'static str,
        args: &[Arg<'_>],
    ) -> Result<(), StoreError> {
        self.run(operation, || async {
            match self.connection().await?.execute(template, args).await? {
                0 => Err(Failure::Fenced(lease.task)),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Runs an operation. Every method of the store passes through here.
    pub(super) async fn run<T, F>(
        &self,
        operation: &'static str,
        attempt: impl Fn() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        self.run_within(self.limit, operation, attempt).await
    }

    pub(super) async fn run_within<T, F>(
        &self,
        limit: Duration,
        operation: &'static str,
        attempt: impl Fn() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut attempts = 1;
        loop {
            let attempted = around_operation("store.", operation, attempt());
            let outcome = tokio::time::timeout(limit, attempted).await;
            match outcome.unwrap_or(Err(Failure::TimedOut)) {
                Err(failure) if attempts < ATTEMPTS && failure.is_passing() => {
                    metrics::counter!("agentmine_store_retries_total", "operation" => operation)
                        .increment(1);
                    tracing::debug!(operation, attempts, ?failure, "the operation is repeated");
                    tokio::time::sleep(Duration::from_millis(30) * attempts * attempts).await;
                    attempts += 1;
                }
                outcome => {
                    return outcome.map_err(|failure| {
                        let error = failure.at(&self.address);
                        if matches!(error, StoreError::Unavailable(_)) {
                            self.absence.note();
                        }
                        error
                    });
                }
            }
        }
    }
}

#[async_trait]
impl<D: Dialect> Store for SqlStore<D> {
    async fn healthy(&self) -> Result<(), StoreError> {
        self.run("healthy", || async {
            let mut db = self.connection().await?;
            let newest = "SELECT max(version) FROM _sqlx_migrations WHERE success";
            let seen = db.scalar::<Option<i64>>(newest, &[]).await?.flatten();
            let needed = migrations::newest(D::MIGRATIONS);
            // A newer schema serves an older process: see migrations/README.md.
            if seen >= needed {
                return Ok(());
            }
            Err(Failure::Fault(format!(
                "the schema is at version {}, this program needs {}",
                seen.unwrap_or(0),
                needed.unwrap_or(0)
            )))
        })
        .await
    }

    fn address(&self) -> &str {
        &self.address
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use agentmine_domain::TaskId;
    use sqlx::{PgPool, Postgres};

    use super::*;

    fn store(limit: Duration) -> SqlStore<Postgres> {
        SqlStore {
            pool: PgPool::connect_lazy("postgres://u@nowhere/db").unwrap(),
            address: "nowhere:5432/db".into(),
            limit,
            absence: Absence::default(),
        }
    }

    async fn attempts_at(failure: fn() -> Failure) -> u32 {
        let attempts = AtomicU32::new(0);
        let outcome: Result<(), _> = store(Duration::from_secs(9))
            .run("test", || async {
                attempts.fetch_add(1, Ordering::Relaxed);
                Err(failure())
            })
            .await;
        outcome.unwrap_err();
        attempts.into_inner()
    }

    #[tokio::test]
    async fn only_what_failed_for_a_passing_reason_is_repeated() {
        let broken = || Failure::Database(std::io::Error::other("reset").into());
        assert_eq!(attempts_at(broken).await, ATTEMPTS);
        assert_eq!(attempts_at(|| Failure::Fenced(TaskId::new())).await, 1);
        assert_eq!(attempts_at(|| Failure::Fault("x".into())).await, 1);
        let missing = || Failure::Database(sqlx::Error::RowNotFound);
        assert_eq!(attempts_at(missing).await, 1);
    }

    #[tokio::test]
    async fn an_operation_without_an_answer_is_given_up() {
        let outcome: Result<(), _> = store(Duration::from_millis(5))
            .run("test", std::future::pending)
            .await;
        let message = outcome.unwrap_err().to_string();
        assert_eq!(
            message,
            "store unavailable: nowhere:5432/db: no answer within the time limit"
        );
    }
}
