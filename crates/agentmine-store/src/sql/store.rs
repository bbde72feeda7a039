//! One wrapper around every operation: a time limit, the repetition of what failed for a passing reason, a
//! metric, and the database's address in the error.

use std::future::Future;
use std::time::{Duration, Instant};

use agentmine_domain::Lease;
use agentmine_runtime::config::Migrations;
use agentmine_runtime::failpoint::around_operation;
use async_trait::async_trait;
use sqlx::Pool;

use super::absence::Absence;
use super::arg::Arg;
use super::db::{AnyRow, Db, Dialect};
use super::doubt::Doubt;
use super::failure::{Failure, Presence};
use super::kept::Kept;
use crate::migrations;
use crate::{Store, StoreError};

/// Attempts at one operation, the first included.
const ATTEMPTS: u32 = 3;

/// A database that takes longer than this for one connection is as good as away.
const SLOW: Duration = Duration::from_secs(5);

/// A claim of a report or a dashboard that lasts longer than this from now on was made before the database's clock was set
/// back: a process claims for as long as its lease.
pub(super) const LONGEST_HOLD: Duration = Duration::from_secs(24 * 3600);

/// What a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// All but heartbeats, with so many connections.
    Main(u32, Migrations),
    /// Heartbeats only. A second connection is opened only where the first one hangs.
    Heartbeat,
}

/// A store in one of the two databases.
pub(crate) struct SqlStore<D: Dialect> {
    pub(super) pool: Pool<D>,
    /// Of this pool; not of Postgres's, whose connections are tested and replaced.
    pub(super) kept: Option<Kept<D>>,
    /// `host:port/database`, or the file.
    pub(super) address: String,
    /// The time limit of one attempt.
    pub(super) limit: Duration,
    /// When the database was away.
    pub(super) absence: Absence,
    /// Which connections are not used again as they are.
    pub(super) doubt: Doubt,
    /// How the pool is named in metrics.
    pub(super) pool_name: &'static str,
    /// Has new connections log in as the configuration says by now.
    pub(super) renew: Box<Renew<D>>,
}

/// Changes how new connections of a pool log in.
pub(super) type Renew<D> = dyn Fn(&Pool<D>) + Send + Sync;

/// The values of the label `pool` of `agentmine_store_connections`.
pub(crate) const POOLS: [&str; 2] = ["main", "heartbeat"];
/// The values of its label `state`.
pub(crate) const CONNECTION_STATES: [&str; 2] = ["used", "idle"];

impl Role {
    pub(super) fn pool_name(self) -> &'static str {
        match self {
            Self::Main(..) => POOLS[0],
            Self::Heartbeat => POOLS[1],
        }
    }
}

impl<D: Dialect> SqlStore<D> {
    pub(super) async fn connection(&self) -> Result<Db<D>, Failure> {
        let begun = Instant::now();
        if let Some(connection) = self.kept.as_ref().and_then(Kept::take) {
            self.note_wait(begun);
            return Ok(Db::of(connection));
        }
        (self.renew)(&self.pool);
        let connection = Db::connection(&self.pool).await;
        self.note_wait(begun);
        connection
    }

    /// Keeps a connection for the next statement, once its own have ended well.
    pub(super) fn keep(&self, connection: Db<D>) {
        if let Some(kept) = &self.kept
            && let Some(connection) = connection.into_connection()
        {
            kept.put(connection);
        }
    }

    pub(super) async fn transaction(&self) -> Result<Db<D>, Failure> {
        self.begun(Db::transaction(&self.pool)).await
    }

    /// One that waits for a lock only for a moment.
    pub(super) async fn brief_transaction(&self) -> Result<Db<D>, Failure> {
        self.begun(Db::brief_transaction(&self.pool)).await
    }

    async fn begun(
        &self,
        transaction: impl Future<Output = Result<Db<D>, Failure>>,
    ) -> Result<Db<D>, Failure> {
        let begun = Instant::now();
        (self.renew)(&self.pool);
        let transaction = transaction.await;
        self.note_wait(begun);
        transaction
    }

    /// Notes what the outcome of an operation that began at `begun` shows of the database.
    fn note_presence<T>(&self, outcome: &Result<T, Failure>, limit: Duration, begun: Instant) {
        match outcome
            .as_ref()
            .map_or_else(Failure::presence, |_| Presence::There)
        {
            Presence::There => self.absence.answered(),
            Presence::Away => self.absence.away(),
            // An operation with a longer limit waits for others than the database.
            Presence::Silent if limit > self.limit => {}
            Presence::Silent => self.absence.unanswered(begun),
        }
    }

    /// A connection was waited for since `begun`.
    fn note_wait(&self, begun: Instant) {
        let waited = begun.elapsed();
        metrics::histogram!("agentmine_store_connection_wait_seconds").record(waited.as_secs_f64());
        if waited >= SLOW {
            self.absence.unanswered(begun);
        }
        // At each use, which the relay makes twice a second.
        let kept = self.kept.as_ref().is_some_and(Kept::is_some);
        let idle = self.pool.num_idle() as f64 + f64::from(u8::from(kept));
        let all = f64::from(self.pool.size());
        for (state, count) in CONNECTION_STATES.into_iter().zip([all - idle, idle]) {
            metrics::gauge!("agentmine_store_connections", "pool" => self.pool_name, "state" => state)
                .set(count.max(0.0));
        }
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
            let mut db = self.connection().await?;
            let rows = db.rows::<R>(template, args).await?;
            self.keep(db);
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
        self.run(operation, || self.execute_once(template, args))
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
            match self.execute_once(template, args).await? {
                0 => Err(Failure::Fenced(lease.task)),
                _ => Ok(()),
            }
        })
        .await
    }

    async fn execute_once(&self, template: &'static str, args: &[Arg<'_>]) -> Result<u64, Failure> {
        let mut db = self.connection().await?;
        let changed = db.execute(template, args).await?;
        self.keep(db);
        Ok(changed)
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
        // Whether an attempt may have changed something all the same.
        let mut is_in_doubt = false;
        let begun = Instant::now();
        loop {
            let attempted = around_operation("store.", operation, attempt());
            let outcome = tokio::time::timeout(limit, attempted).await;
            let outcome = outcome.unwrap_or(Err(Failure::TimedOut));
            if let Err(failure) = &outcome {
                self.doubt.note(failure);
                is_in_doubt |= !failure.is_refusal();
            }
            match outcome {
                Err(failure) if attempts < ATTEMPTS && failure.is_passing() => {
                    metrics::counter!("agentmine_store_retries_total", "operation" => operation)
                        .increment(1);
                    tracing::debug!(operation, attempts, ?failure, "the operation is repeated");
                    tokio::time::sleep(Duration::from_millis(30) * attempts * attempts).await;
                    attempts += 1;
                }
                outcome => {
                    self.note_presence(&outcome, limit, begun);
                    return outcome.map_err(|failure| match is_in_doubt {
                        true => failure.at_work(&self.address),
                        false => failure.in_the_way(&self.address),
                    });
                }
            }
        }
    }
}

/// Refuses a server that answers and takes no writes: nobody can work with it.
pub(super) async fn refuse_read_only<D: Dialect>(db: &mut Db<D>) -> Result<(), Failure> {
    let Some(is_read_only) = D::IS_READ_ONLY else {
        return Ok(());
    };
    match db.scalar::<bool>(is_read_only, &[]).await? {
        Some(true) => Err(Failure::ReadOnly),
        Some(false) | None => Ok(()),
    }
}

#[async_trait]
impl<D: Dialect> Store for SqlStore<D> {
    async fn healthy(&self) -> Result<(), StoreError> {
        self.run("healthy", || async {
            let mut db = self.connection().await?;
            refuse_read_only(&mut db).await?;
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
        match &self.kept {
            Some(kept) => kept.close().await,
            None => self.pool.close().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

    use agentmine_domain::TaskId;
    use sqlx::{PgPool, Postgres};

    use super::*;

    fn store(limit: Duration) -> SqlStore<Postgres> {
        SqlStore {
            pool: PgPool::connect_lazy("postgres://u@nowhere/db").unwrap(),
            kept: None,
            address: "nowhere:5432/db".into(),
            limit,
            absence: Absence::default(),
            doubt: Doubt::default(),
            pool_name: POOLS[0],
            renew: Box::new(|_| {}),
        }
    }

    /// An answer of Postgres with this SQLSTATE.
    #[derive(Debug, thiserror::Error)]
    #[error("SQLSTATE {0}")]
    struct Refusal(&'static str);

    impl sqlx::error::DatabaseError for Refusal {
        fn message(&self) -> &str {
            self.0
        }

        fn code(&self) -> Option<std::borrow::Cow<'_, str>> {
            Some(self.0.into())
        }

        fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> sqlx::error::ErrorKind {
            sqlx::error::ErrorKind::Other
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
    async fn others_in_the_way_are_told_from_an_outcome_that_is_unknown() {
        let store = store(Duration::from_secs(9));
        let outcome = async |failures: &[fn() -> Failure]| {
            let attempts = AtomicUsize::new(0);
            let failed: Result<(), _> = store
                .run("test", || async {
                    let attempt = attempts.fetch_add(1, Ordering::Relaxed);
                    Err(failures[attempt.min(failures.len() - 1)]())
                })
                .await;
            failed.unwrap_err()
        };
        let locked = || Failure::Database(Refusal("55P03").into());
        let canceled = || Failure::Database(Refusal("57014").into());
        let broken = || Failure::Database(std::io::Error::other("reset").into());
        for refused in [
            &[locked as fn() -> Failure][..],
            &[canceled],
            &[locked, canceled],
        ] {
            let error = outcome(refused).await;
            assert!(matches!(error, StoreError::Busy(_)), "{error}");
        }
        // The broken connection may have carried a commit.
        let error = outcome(&[broken, locked]).await;
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    }

    #[tokio::test]
    async fn a_statement_or_a_publisher_that_is_waited_for_in_vain_is_no_absence() {
        let store = store(Duration::from_millis(50));
        let lease = Duration::from_secs(60);
        let answered = async || store.run("test", async || Ok(())).await.unwrap();
        let waits = async |limit| {
            let never = std::future::pending::<Result<(), Failure>>;
            store.run_within(limit, "test", never).await.unwrap_err();
        };
        answered().await;
        // Others are answered while this one waits for a lock.
        tokio::join!(waits(store.limit), async {
            tokio::task::yield_now().await;
            answered().await;
        });
        assert!(!store.absence.is_within(lease));
        // A relay waits for the broker.
        waits(store.limit * 2).await;
        assert!(!store.absence.is_within(lease));
        waits(store.limit).await;
        assert!(store.absence.is_within(lease));
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
