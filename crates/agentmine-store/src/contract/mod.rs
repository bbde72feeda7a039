//! One suite for both databases: each fact is a function of a [`World`], run once for each.
//!
//! On Postgres each test has its own database, which `connect` itself creates and the test drops; on SQLite
//! a file in a temporary folder. No test sleeps for a lease: leases have no length, or are awaited by the
//! database's own clock.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_domain::*;
use agentmine_runtime::config::{Secret, StoreConfig};
use async_trait::async_trait;
use serde_json::json;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, Pool, Postgres, Sqlite, SqliteConnection,
};
use tempfile::TempDir;
use uuid::Uuid;

use crate::sql::trace;
use crate::*;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);
const NONE: Duration = Duration::ZERO;

/// Runs each fact on both databases.
macro_rules! facts {
    ($($fact:ident,)+) => {
        mod sqlite {
            $(#[tokio::test] async fn $fact() {
                $crate::contract::on($crate::contract::Database::sqlite(), super::$fact).await;
            })+
        }
        mod postgres {
            $(#[tokio::test] async fn $fact() {
                $crate::contract::on($crate::contract::Database::postgres(), super::$fact).await;
            })+
        }
    };
}

mod capacity;
mod dashboards;
mod effects;
mod enqueue;
mod figures;
mod held;
mod journal;
mod lease;
mod listings;
mod memory;
mod migrations;
mod million;
mod ninety_days;
mod outage;
mod people;
mod plans;
mod reports;
mod retention;
mod rounds;
mod sweep;
mod tasks;
mod upgrade;

async fn on<F: Future<Output = ()>>(database: Database, fact: impl FnOnce(World) -> F) {
    let database = Arc::new(database);
    let store = connect(&database.config()).await.unwrap();
    let world = World {
        store: Arc::clone(&store),
        database: Arc::clone(&database),
    };
    fact(world).await;
    plans::no_statement_reads_all(&database).await;
    store.close().await;
    database.remove().await;
}

/// The database of one test.
enum Database {
    Sqlite(TempDir),
    Postgres { server: String, name: String },
}

impl Database {
    fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    fn postgres() -> Self {
        let server = std::env::var("AGENTMINE_TEST_POSTGRES_URL")
            .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:54329/postgres".into());
        let name = format!("agentmine_test_{}", Uuid::new_v4().simple());
        Self::Postgres { server, name }
    }

    fn config(&self) -> StoreConfig {
        StoreConfig {
            url: Secret::new(self.url()),
            max_connections: 4,
            ..StoreConfig::default()
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(_) => format!("sqlite:{}", self.address()),
            Self::Postgres { server, name } => {
                let (server, _) = server.rsplit_once('/').unwrap();
                format!("{server}/{name}")
            }
        }
    }

    /// How the store's errors name it.
    fn address(&self) -> String {
        match self {
            Self::Sqlite(folder) => {
                let file = folder.path().join("new folder/agentmine.db");
                file.display().to_string()
            }
            Self::Postgres { .. } => self.url().rsplit_once('@').unwrap().1.to_owned(),
        }
    }

    /// Executes a statement on the Postgres server, with the database's name for `NAME`.
    async fn on_server(&self, sql: &str) {
        let Self::Postgres { server, name } = self else {
            panic!("not on Postgres");
        };
        let mut admin = match PgConnection::connect(server).await {
            Ok(admin) => admin,
            Err(error) => panic!("no Postgres for the tests ({error}): run tests/run"),
        };
        let sql = AssertSqlSafe(sql.replace("NAME", name));
        sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
    }

    /// Executes statements on the rows.
    async fn execute(&self, sql: &str) {
        match self {
            Self::Sqlite(_) => {
                let mut connection = SqliteConnection::connect(&self.url()).await.unwrap();
                let sql = AssertSqlSafe(sql.to_owned());
                sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Postgres { .. } => {
                let mut connection = PgConnection::connect(&self.url()).await.unwrap();
                let sql = AssertSqlSafe(sql.to_owned());
                sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// How the database executes a statement that was recorded.
    async fn plan(&self, recorded: &serde_json::Value) -> Vec<String> {
        let plans = self.plans("", std::slice::from_ref(recorded)).await;
        plans.into_iter().next().unwrap()
    }

    /// The same of several statements, on Postgres with settings.
    async fn plans(&self, settings: &str, recorded: &[serde_json::Value]) -> Vec<Vec<String>> {
        let mut plans = Vec::new();
        match self {
            Self::Sqlite(_) => {
                let pool = Pool::<Sqlite>::connect(&self.url()).await.unwrap();
                for recorded in recorded {
                    plans.push(trace::plan(&pool, "EXPLAIN QUERY PLAN", recorded).await);
                }
                pool.close().await;
            }
            Self::Postgres { .. } => {
                let url = format!("{}{settings}", self.url());
                let pool = Pool::<Postgres>::connect(&url).await.unwrap();
                for recorded in recorded {
                    plans.push(trace::plan(&pool, "EXPLAIN", recorded).await);
                }
                pool.close().await;
            }
        }
        plans.into_iter().map(Result::unwrap).collect()
    }

    async fn remove(&self) {
        if let Self::Postgres { .. } = self {
            self.on_server(r#"DROP DATABASE "NAME" WITH (FORCE)"#).await;
        }
    }
}

struct World {
    store: Arc<dyn Store>,
    database: Arc<Database>,
}

impl World {
    async fn new_task(&self, number: u64) -> Task {
        match self.store.enqueue(&issue(number, "e1")).await.unwrap() {
            Enqueued::Created(task) => task,
            Enqueued::Known(task) => panic!("known: {task:?}"),
        }
    }

    async fn claim(&self, task: TaskId, lease: Duration) -> Option<Claim> {
        self.claim_of(task, lease, 3).await
    }

    async fn claim_of(&self, task: TaskId, lease: Duration, max: u32) -> Option<Claim> {
        let (worker, nonce) = (WorkerId("host/1/0".into()), Uuid::new_v4());
        let claim = self.store.claim(task, &worker, nonce, lease, max).await;
        claim.unwrap()
    }

    async fn leased(&self, number: u64) -> Lease {
        let task = self.new_task(number).await;
        self.claim(task.id, MINUTE).await.unwrap().lease
    }

    async fn task(&self, id: TaskId) -> Task {
        self.store.task(id).await.unwrap().unwrap()
    }

    /// A scan that begins now finds this request.
    async fn answer(&self, task: TaskId, trigger: &str) -> bool {
        let scan = self.store.scan_time().await.unwrap();
        let answered = self.store.answer_request(task, trigger, scan).await;
        answered.unwrap()
    }

    async fn claimable(&self, older_than: Duration, limit: u32) -> Vec<TaskId> {
        let found = self.store.claimable(older_than, 0, limit).await.unwrap();
        found.iter().map(|task| task.id).collect()
    }

    /// The tasks whose end is not reported.
    async fn unreported(&self) -> Vec<TaskId> {
        let found = self.store.unreported(NONE, TaskNumber(0), 99).await;
        found.unwrap().iter().map(|task| task.id).collect()
    }

    async fn relay(&self) -> Vec<TaskId> {
        let outbox = Outbox::default();
        self.store.relay_outbox(100, &outbox).await.unwrap();
        outbox.sent()
    }

    /// Relays, and returns the tasks whose wake-ups go before all others.
    async fn relay_takeovers(&self) -> Vec<TaskId> {
        let outbox = Outbox::default();
        self.store.relay_outbox(100, &outbox).await.unwrap();
        let sent = outbox.sent.lock().unwrap();
        let takeovers = sent.iter().filter(|w| w.urgency == Urgency::Takeover);
        takeovers.map(|w| w.task).collect()
    }

    async fn sweep(&self, wakeup_after: Duration) -> SweepReport {
        let policy = SweepPolicy {
            max_attempts: 3,
            wakeup_after,
            lease: MINUTE,
        };
        self.store.sweep(&policy).await.unwrap()
    }
}

/// A publisher that records, and fails after so many.
#[derive(Default)]
struct Outbox {
    sent: Mutex<Vec<WakeUp>>,
    fail_after: Option<usize>,
    /// Its queue is broken.
    broken: Option<Priority>,
}

impl Outbox {
    fn sent(&self) -> Vec<TaskId> {
        self.sent.lock().unwrap().iter().map(|w| w.task).collect()
    }
}

#[async_trait]
impl Publish for Outbox {
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), String> {
        // Lets the other relay in between.
        tokio::task::yield_now().await;
        let mut sent = self.sent.lock().unwrap();
        let is_broken = self.broken == Some(wake_up.priority);
        if is_broken || self.fail_after.is_some_and(|n| sent.len() >= n) {
            return Err("no broker".into());
        }
        sent.push(wake_up.clone());
        Ok(())
    }
}

fn issue(number: u64, trigger: &str) -> NewTask {
    NewTask {
        item: ItemRef {
            tracker: TrackerKind::GitHub,
            host: "github.com".into(),
            repo_id: "42".into(),
            repo_path: "acme/shop".into(),
            kind: ItemKind::Issue,
            number,
        },
        trigger: trigger.into(),
        title: format!("Issue {number}"),
        url: format!("https://github.com/acme/shop/issues/{number}"),
        priority: Priority::Medium,
    }
}

fn note(text: &str) -> NewStep {
    NewStep::new(StepKind::Note, payload(json!({ "text": text })), 7)
}

fn payload(value: serde_json::Value) -> StepPayload {
    StepPayload::encode(&value).unwrap()
}

fn done() -> LeaseEnd {
    LeaseEnd::Finish {
        state: EndState::Done,
        reason: None,
        pull_request_url: Some("https://github.com/acme/shop/pull/9".into()),
    }
}

fn release(attempt: Attempt, delay: Duration) -> LeaseEnd {
    LeaseEnd::Release {
        reason: "draining".into(),
        delay,
        attempt,
    }
}

fn is_fenced<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Fenced(_)))
}
