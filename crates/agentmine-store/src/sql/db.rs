//! Statements, and what the two databases do differently.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use agentmine_domain::{Priority, Urgency, WakeUp};
use agentmine_runtime::failpoint::{Guard, around};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Database, FromRow, Pool, SqlSafeStr as _, SqlStr};
use tokio::time::{Instant, timeout};

use super::arg::Arg;
use super::effect_words::EFFECTS;
use super::failure::Failure;
use crate::Publish;
use crate::migrations::Embedded;

/// One of the two databases.
pub(crate) trait Dialect: Database {
    /// The schema.
    const MIGRATIONS: &'static [Embedded];
    /// Begins a transaction that may write.
    const BEGIN: &'static str;
    /// The same for one that waits for a lock only for a moment.
    const BEGIN_BRIEF: &'static str;
    /// `{now}`: the time of the transaction, or of the statement, by the database's clock.
    const NOW: &'static str;
    /// `{clock}`: the time after a wait for a lock.
    const CLOCK: &'static str;
    /// `{epoch}`: the beginning of 1970, UTC.
    const EPOCH: &'static str;
    /// `{ms}`: makes an interval of the milliseconds in front of it.
    const MS: &'static str;
    /// `{state}`: the state of a row of `tasks` that the statement finds by its id, so that no index of tasks in a
    /// state is searched for it.
    const STATE: &'static str;
    /// `{millis(}` and `{)millis}`: make whole milliseconds of the time or interval between them.
    const MILLIS: (&'static str, &'static str);
    /// `{lock}`: locks the selected rows for a change.
    const LOCK: &'static str;
    /// `{lock free}`: the same, omitting rows that others have locked.
    const LOCK_FREE: &'static str;
    /// `{lock shared}`: locks the selected rows against a change.
    const LOCK_SHARED: &'static str;
    /// Selects whether the server takes no writes, as a standby after a failover; `None` if there is no server.
    const IS_READ_ONLY: Option<&'static str>;
    /// Selects the name, rows and bytes of each table, largest first.
    const SIZES: &'static str;
    /// Appends a step of the lease $1 to $3 with token $4, kind $5, payload $6 and milliseconds $7. Returns its number; no row if
    /// the task is not held, or a step of this token is recorded.
    const APPEND_STEP: &'static str;
    /// The same, and in the row of session $8 its model $9 and its usage $10 to $15. Without it, that is a statement of its own.
    const APPEND_STEP_WITH_USAGE: Option<&'static str> = None;

    /// Begins or ends a transaction.
    fn control(
        connection: &mut Self::Connection,
        sql: &'static str,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Executes a statement; returns the number of rows it changed.
    fn execute(
        connection: &mut Self::Connection,
        sql: SqlStr,
        args: &[Arg<'_>],
    ) -> impl Future<Output = Result<u64, Failure>> + Send;

    /// Executes a statement; returns its rows.
    fn fetch<R: AnyRow>(
        connection: &mut Self::Connection,
        sql: SqlStr,
        args: &[Arg<'_>],
    ) -> impl Future<Output = Result<Vec<R>, Failure>> + Send;

    /// Keeps other processes from numbering a task until the transaction ends.
    fn lock_numbers(tx: &mut Db<Self>) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Keeps other processes from changing dependencies, and from beginning tasks whose files are named, until the
    /// transaction ends.
    fn lock_plans(tx: &mut Db<Self>) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Keeps other processes from sweeping until the transaction ends. `false` if one of them is at it.
    fn lock_sweep(tx: &mut Db<Self>) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Publishes due outbox entries. Those of a queue that has refused one are left; those of other queues are
    /// still published.
    fn relay(
        pool: &Pool<Self>,
        limit: u32,
        publish: &dyn Publish,
    ) -> impl Future<Output = Result<Relayed, Failure>> + Send;
}

/// No publish begins this long after its relay: a broker that takes seconds for each would keep the transaction open for too
/// long.
const RELAY_TIME: Duration = Duration::from_secs(30);

/// What a relay did.
#[derive(Debug)]
pub(crate) struct Relayed {
    since: Instant,
    /// Entries that were published and are recorded as sent.
    pub(super) sent: u64,
    /// Why the publisher refused the first one that it refused.
    pub(super) refused: Option<String>,
    /// The queues of the wake-ups that it refused.
    refusing: Vec<WakeUpQueue>,
}

/// A queue of wake-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeUpQueue {
    /// Of tasks that lost their worker.
    Takeovers,
    /// Of the other tasks of a priority.
    Of(Priority),
}

impl WakeUpQueue {
    fn of(wake_up: &WakeUp) -> Self {
        match wake_up.urgency {
            Urgency::Takeover => Self::Takeovers,
            Urgency::Normal => Self::Of(wake_up.priority),
        }
    }
}

impl Default for Relayed {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            sent: 0,
            refused: None,
            refusing: Vec::new(),
        }
    }
}

impl Relayed {
    /// Refusals of so many queues are an outage of the broker; a single queue may be broken alone.
    const OUTAGE: usize = 2;

    /// Publishes a wake-up, and returns whether it is sent. One whose queue has refused another is not tried: a
    /// broken queue stops no other.
    pub(super) async fn publish(&mut self, to: &dyn Publish, wake_up: &WakeUp) -> bool {
        if self.since.elapsed() >= RELAY_TIME {
            return false;
        }
        let queue = WakeUpQueue::of(wake_up);
        if self.refusing.len() >= Self::OUTAGE || self.refusing.contains(&queue) {
            return false;
        }
        match to.publish(wake_up).await {
            Ok(()) => {
                self.sent += 1;
                true
            }
            Err(reason) => {
                self.refused.get_or_insert(reason);
                self.refusing.push(queue);
                false
            }
        }
    }

    /// The only queue that has refused a wake-up.
    pub(super) fn broken(&self) -> Option<WakeUpQueue> {
        match self.refusing.as_slice() {
            [only] => Some(*only),
            [] | [_, _, ..] => None,
        }
    }

    /// Whether others may wait behind the entries of a queue that is known to be broken only now: as many entries were
    /// read as may be, and `known` was omitted.
    pub(super) fn hides_others(&self, known: Option<WakeUpQueue>, is_full: bool) -> bool {
        is_full && self.broken().is_some_and(|broken| known != Some(broken))
    }
}

/// `control`, `execute` and `fetch` of a dialect. The text is the same for both; sqlx's traits allow no generic form.
macro_rules! statements {
    ($uuid:expr) => {
        async fn control(
            connection: &mut Self::Connection,
            sql: &'static str,
        ) -> Result<(), Failure> {
            sqlx::Executor::execute(connection, sql).await?;
            Ok(())
        }

        async fn execute(
            connection: &mut Self::Connection,
            sql: sqlx::SqlStr,
            args: &[Arg<'_>],
        ) -> Result<u64, Failure> {
            let query = sqlx::query_with(sql, bind!(args, $uuid));
            Ok(query.execute(connection).await?.rows_affected())
        }

        async fn fetch<R: AnyRow>(
            connection: &mut Self::Connection,
            sql: sqlx::SqlStr,
            args: &[Arg<'_>],
        ) -> Result<Vec<R>, Failure> {
            let query = sqlx::query_as_with(sql, bind!(args, $uuid));
            Ok(query.fetch_all(connection).await?)
        }
    };
}
pub(super) use statements;

/// A row that both databases return.
pub(crate) trait AnyRow:
    for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin + 'static
{
    /// `{columns}`: what a statement selects to fill the row.
    const COLUMNS: &'static str;
}

/// A single value.
impl<T> AnyRow for (T,)
where
    Self: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin + 'static,
{
    const COLUMNS: &'static str = "";
}

/// How long a connection may take to roll back, and to show that it can be used again.
const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// A connection, in a transaction or not. Outside a transaction each statement commits by itself.
///
/// A transaction that is not committed is rolled back; on SQLite it holds the write lock until then.
///
/// The connection goes back to its pool within [`RETURN_LIMIT`], or is closed. The pool alone would wait as long as TCP
/// retransmits to a host that is gone, about a quarter of an hour, and the place would be taken until then.
pub(crate) struct Db<D: Dialect> {
    /// Until it is given back.
    connection: Option<PoolConnection<D>>,
    scope: Scope,
}

/// What a statement is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Statement,
    Transaction,
}

impl<D: Dialect> Db<D> {
    /// Outside a transaction.
    pub(super) fn of(connection: PoolConnection<D>) -> Self {
        Self {
            connection: Some(connection),
            scope: Scope::Statement,
        }
    }

    pub(super) async fn connection(pool: &Pool<D>) -> Result<Self, Failure> {
        Ok(Self::of(pool.acquire().await?))
    }

    pub(super) async fn transaction(pool: &Pool<D>) -> Result<Self, Failure> {
        Self::begun(pool, D::BEGIN).await
    }

    /// In a transaction that waits for a lock only for a moment.
    pub(super) async fn brief_transaction(pool: &Pool<D>) -> Result<Self, Failure> {
        Self::begun(pool, D::BEGIN_BRIEF).await
    }

    async fn begun(pool: &Pool<D>, begin: &'static str) -> Result<Self, Failure> {
        let mut db = Self::connection(pool).await?;
        // Before it is known whether it has begun.
        db.scope = Scope::Transaction;
        D::control(db.raw()?, begin).await?;
        Ok(db)
    }

    pub(super) async fn commit(mut self) -> Result<(), Failure> {
        if self.scope == Scope::Transaction {
            let committing = async { D::control(self.raw()?, "COMMIT").await };
            around("store.commit", committing).await?;
            self.scope = Scope::Statement;
        }
        Ok(())
    }

    /// The connection alone, if it is in no transaction. Only once its last statement has ended.
    pub(super) fn into_connection(mut self) -> Option<PoolConnection<D>> {
        match self.scope {
            Scope::Statement => self.connection.take(),
            Scope::Transaction => None,
        }
    }

    /// The number of rows that the statement changed.
    pub(super) async fn execute(
        &mut self,
        template: &'static str,
        args: &[Arg<'_>],
    ) -> Result<u64, Failure> {
        let sql = render::<D>(template, "");
        #[cfg(test)]
        let text = sql.as_str().to_owned();
        let changed = D::execute(self.raw()?, sql, args).await?;
        #[cfg(test)]
        super::trace::note("execute", &text, args, changed);
        Ok(changed)
    }

    pub(super) async fn rows<R: AnyRow>(
        &mut self,
        template: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<R>, Failure> {
        let sql = render::<D>(template, R::COLUMNS);
        #[cfg(test)]
        let text = sql.as_str().to_owned();
        let rows = D::fetch(self.raw()?, sql, args).await?;
        #[cfg(test)]
        super::trace::note("fetch", &text, args, rows.len() as u64);
        Ok(rows)
    }

    /// The first row.
    pub(super) async fn row<R: AnyRow>(
        &mut self,
        template: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Option<R>, Failure> {
        Ok(self.rows(template, args).await?.into_iter().next())
    }

    /// The only column of the first row.
    pub(super) async fn scalar<T>(
        &mut self,
        template: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Option<T>, Failure>
    where
        (T,): AnyRow,
    {
        Ok(self
            .row::<(T,)>(template, args)
            .await?
            .map(|(value,)| value))
    }

    fn raw(&mut self) -> Result<&mut D::Connection, Failure> {
        let given_back = || Failure::Fault("a connection is used after it was given back".into());
        self.connection.as_deref_mut().ok_or_else(given_back)
    }
}

impl<D: Dialect> Drop for Db<D> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(give_back(connection, self.scope))),
            // The process ends. The pool would give it back in a task, too.
            Err(_) => drop(connection.leak()),
        }
    }
}

/// Gives a connection back to its pool, or closes it.
async fn give_back<D: Dialect>(mut connection: PoolConnection<D>, scope: Scope) {
    if scope == Scope::Transaction {
        // If no transaction is open, this changes nothing, and its error does not matter.
        let rolling_back = D::control(&mut connection, "ROLLBACK");
        if timeout(RETURN_LIMIT, rolling_back).await.is_err() {
            connection.close_on_drop();
            return;
        }
    }
    // If this is given up, the connection is closed at once.
    let _ = timeout(RETURN_LIMIT, connection.return_to_pool()).await;
}

/// Statements with their words filled in, by database, template and columns. All three are constants of the program, so it does not
/// grow.
type Rendered = HashMap<(&'static str, &'static str, &'static str), Arc<str>>;

/// A statement with its words filled in.
fn render<D: Dialect>(template: &'static str, columns: &'static str) -> SqlStr {
    static RENDERED: LazyLock<RwLock<Rendered>> = LazyLock::new(RwLock::default);
    if !template.contains('{') {
        return template.into_sql_str();
    }
    // What a test switches off, it may switch on again.
    if Guard::Fence.is_off() {
        return AssertSqlSafe(filled_in::<D>(template, columns)).into_sql_str();
    }
    let key = (D::NAME, template, columns);
    let known = RENDERED.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(sql) = known.get(&key) {
        return AssertSqlSafe(Arc::clone(sql)).into_sql_str();
    }
    drop(known);
    let sql: Arc<str> = filled_in::<D>(template, columns).into();
    let mut known = RENDERED.write().unwrap_or_else(PoisonError::into_inner);
    known.insert(key, Arc::clone(&sql));
    AssertSqlSafe(sql).into_sql_str()
}

fn filled_in<D: Dialect>(template: &str, columns: &str) -> String {
    let words = [
        ("{columns}", columns),
        ("{held}", held()),
        // The attempt beyond the limit that a task has whose pull request may be open: it only reports. The
        // branch of a task has one name, so there is at most one such effect.
        (
            "{one more}",
            "(SELECT count(*) FROM effects e WHERE e.task = tasks.id AND e.kind = {pull request})",
        ),
        // Records of pull requests that a task opened. A count, as below.
        (
            "{opened}",
            "(SELECT count(*) FROM effects e
              WHERE e.task = tasks.id AND e.kind IN ({opening kinds}) AND e.done_at IS NOT NULL)",
        ),
        // What a worker of the fleet may claim: a task of the fleet that waits for nothing, is not for a person, and has
        // nothing open before it.
        // A count is looked up for each row; Postgres makes `NOT EXISTS` a join, for which it may read all tasks.
        (
            "{workable}",
            "tasks.waits_for IS NULL AND {of fleet} AND tasks.assignee_type = 'ai'
             AND (SELECT count(*) FROM task_dependencies d JOIN tasks before ON before.id = d.depends_on
                  WHERE d.task = tasks.id AND before.state <> 'done') = 0",
        ),
        // What a person may have worked on here: a task of a person likewise, on which no client works.
        (
            "{workable here}",
            "tasks.origin = 'person' AND tasks.host = 'agentmine' AND tasks.assignee_type = 'ai'
             AND (SELECT count(*) FROM task_dependencies d JOIN tasks before ON before.id = d.depends_on
                  WHERE d.task = tasks.id AND before.state <> 'done') = 0
             AND (SELECT count(*) FROM sessions s
                  WHERE s.task = tasks.id AND s.client IS NOT NULL AND s.ended_at IS NULL) = 0",
        ),
        // A task that was given back and whose delay is not over. A count, as above.
        (
            "{delayed}",
            "(SELECT count(*) FROM outbox o
              WHERE o.task = tasks.id AND o.sent_at IS NULL AND o.due_at > {now}) > 0",
        ),
        // No round may begin any more on the pull request that the task opened or worked on. The list of those pull requests is
        // made once; SQLite keeps the order of a cross join, and would read all tasks in the other one.
        (
            "{unwatched}",
            "(SELECT count(*) FROM watched_pulls w WHERE w.task = tasks.id AND w.ended_at IS NULL) = 0
             AND (SELECT count(*) FROM rounds r JOIN watched_pulls w ON w.task = r.origin
                  WHERE r.pull_key = tasks.item_key AND w.ended_at IS NULL) = 0
             AND tasks.url NOT IN (SELECT opener.pull_request_url FROM watched_pulls w CROSS JOIN tasks opener
                                   WHERE w.ended_at IS NULL AND opener.id = w.task
                                     AND opener.pull_request_url IS NOT NULL)",
        ),
        // A task that holds the files of its `write_scope`.
        (
            "{holds files}",
            "tasks.write_scope <> '' AND tasks.state IN ('leased', 'paused')
             AND (tasks.state = 'leased'
                  OR (tasks.state = 'paused' AND tasks.origin = 'person'
                      AND (SELECT count(*) FROM sessions s
                           WHERE s.task = tasks.id AND s.ended_at IS NULL) > 0))",
        ),
        // See `Task::home`. Programs of earlier versions know tasks of trackers alone, and leave the others.
        (
            "{of fleet}",
            "(tasks.origin = 'tracker' OR tasks.host <> 'agentmine')",
        ),
        ("{now}", D::NOW),
        ("{clock}", D::CLOCK),
        ("{epoch}", D::EPOCH),
        ("{ms}", D::MS),
        ("{state}", D::STATE),
        ("{millis(}", D::MILLIS.0),
        ("{)millis}", D::MILLIS.1),
        ("{lock}", D::LOCK),
        ("{lock free}", D::LOCK_FREE),
        ("{lock shared}", D::LOCK_SHARED),
    ];
    let effects = EFFECTS.iter().map(|(word, text)| (*word, text.as_str()));
    let words = words.into_iter().chain(effects);
    words.fold(template.to_owned(), |sql, (word, text)| {
        sql.replace(word, text)
    })
}

/// The fence: the lease's task is $1, its epoch is $2 and its nonce is $3.
fn held() -> &'static str {
    match Guard::Fence.is_off() {
        false => "id = $1 AND epoch = $2 AND nonce = $3 AND {state} = 'leased'",
        true => "id = $1 AND epoch >= $2 AND (nonce = $3 OR true)",
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Postgres;
    use sqlx::postgres::PgPoolOptions;

    use super::*;
    use crate::sql::fake_postgres;

    /// Takes five seconds for each, and never fails.
    struct Slow;

    #[async_trait::async_trait]
    impl Publish for Slow {
        async fn publish(&self, _: &WakeUp) -> Result<(), String> {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_relay_ends_in_time_however_slow_the_broker_is() {
        let wake_up = WakeUp {
            task: agentmine_domain::TaskId::new(),
            priority: Priority::Medium,
            urgency: Urgency::Normal,
        };
        let mut relayed = Relayed::default();
        let mut sent = 0;
        for _ in 0..100 {
            sent += u64::from(relayed.publish(&Slow, &wake_up).await);
        }
        assert_eq!((sent, relayed.sent), (6, 6));
        // The rest is no outage.
        assert_eq!(relayed.refused, None);
    }

    /// A server that lets everybody in and answers nothing, as after the loss of its host.
    async fn pool_of_one() -> Pool<Postgres> {
        PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(3 * RETURN_LIMIT)
            .connect_lazy(&fake_postgres::server(|_, _| Vec::new()).await)
            .unwrap()
    }

    #[tokio::test]
    async fn what_waits_for_a_silent_server_leaves_its_place_to_the_next() {
        const MOMENT: Duration = Duration::from_millis(100);
        let statement = async {
            let pool = pool_of_one().await;
            let mut db = Db::connection(&pool).await.unwrap();
            let waiting = timeout(MOMENT, db.execute("SELECT 1", &[])).await;
            assert!(waiting.is_err(), "{waiting:?}");
            drop(db);
            Db::connection(&pool).await.map(drop)
        };
        let transaction = async {
            let pool = pool_of_one().await;
            let waiting = timeout(MOMENT, Db::transaction(&pool)).await;
            assert!(waiting.is_err(), "it has begun");
            Db::connection(&pool).await.map(drop)
        };
        let (statement, transaction) = tokio::join!(statement, transaction);
        statement.unwrap();
        transaction.unwrap();
    }
}
