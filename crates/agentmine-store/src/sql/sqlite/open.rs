//! Opening the file, creating it where it is missing, and migrating it.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, Sqlite, SqliteConnection, SqlitePool};

use crate::StoreError;
use crate::migrations;
use crate::sql::absence::Absence;
use crate::sql::doubt::Doubt;
use crate::sql::failure::Failure;
use crate::sql::kept::Kept;
use crate::sql::store::{Role, SqlStore};

/// How long a writer waits for the one before it.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// Opens the file and migrates it.
pub(crate) async fn open(url: &str, role: Role) -> Result<SqlStore<Sqlite>, StoreError> {
    let connections = match role {
        // Nobody else could migrate the file.
        Role::Main(connections, _) => connections.max(1),
        Role::Heartbeat => 1,
    };
    let options = options(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY_LIMIT)
        .foreign_keys(true);
    let address = options.get_filename().display().to_string();
    create_folder_of(options.get_filename()).map_err(|error| error.at(&address))?;
    create_for_this_user(options.get_filename()).map_err(|error| error.at(&address))?;
    let pool = SqlitePoolOptions::new()
        .max_connections(connections)
        .idle_timeout(Duration::from_secs(300))
        .max_lifetime(None)
        .acquire_timeout(BUSY_LIMIT)
        // It would ask the connection's own thread, and not the file.
        .test_before_acquire(false)
        .connect_lazy_with(options);
    migrate(&pool).await.map_err(|error| error.at(&address))?;
    Ok(SqlStore {
        kept: Some(Kept::of(&pool)),
        pool,
        address,
        limit: Duration::from_secs(30),
        absence: Absence::default(),
        doubt: Doubt::default(),
        pool_name: role.pool_name(),
        renew: Box::new(|_| {}),
    })
}

/// Checks a URL.
pub(crate) fn check(url: &str) -> Result<(), StoreError> {
    options(url).map(drop)
}

pub(super) fn options(url: &str) -> Result<SqliteConnectOptions, StoreError> {
    SqliteConnectOptions::from_str(url)
        .map_err(|error| StoreError::Fault(format!("store.url: {error}")))
}

/// sqlx takes no lock of its own on SQLite, so all migrations run in one write transaction. Foreign keys are
/// off for that connection meanwhile, as a migration that makes a table again needs. Where no migration is missing,
/// nothing is locked and nothing is checked: every command opens the file, beside processes that write to it.
async fn migrate(pool: &SqlitePool) -> Result<(), Failure> {
    let mut connection = pool.acquire().await?;
    if migrations::missing(migrations::SQLITE, &applied(&mut connection).await?) == 0 {
        return Ok(());
    }
    let migrator = migrations::migrator(migrations::SQLITE);
    sqlx::query("PRAGMA foreign_keys = OFF")
        .execute(&mut *connection)
        .await?;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    migrator.run_direct(None, &mut *tx, false).await?;
    let broken = sqlx::query("PRAGMA foreign_key_check")
        .fetch_optional(&mut *tx)
        .await?;
    if broken.is_some() {
        let reason = "migrating the schema left a foreign key without its row";
        return Err(Failure::Fault(reason.into()));
    }
    tx.commit().await?;
    sqlx::query("PRAGMA foreign_keys = ON")
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// The migrations that the file has.
pub(super) async fn applied(connection: &mut SqliteConnection) -> Result<Vec<i64>, Failure> {
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'";
    let tables: i64 = sqlx::query_scalar(tables)
        .fetch_one(&mut *connection)
        .await?;
    match tables {
        0 => Ok(Vec::new()),
        _ => {
            let applied = "SELECT version FROM _sqlx_migrations WHERE success";
            Ok(sqlx::query_scalar(applied).fetch_all(connection).await?)
        }
    }
}

/// Creates a file that no other user can read: it holds what issues, people and models wrote. SQLite gives the mode to
/// the files beside it too. A file that exists keeps its mode.
fn create_for_this_user(file: &Path) -> Result<(), Failure> {
    // A database in memory has no file, but a name.
    if file.to_string_lossy().starts_with("file:") || file == Path::new(":memory:") {
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(file) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Failure::Fault(format!("creating the file: {error}"))),
    }
}

fn create_folder_of(file: &Path) -> Result<(), Failure> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => std::fs::create_dir_all(folder)
            .map_err(|error| Failure::Fault(format!("creating the folder: {error}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::SystemTime;

    use agentmine_domain::{ItemKind, ItemRef, NewTask, Priority, TrackerKind, WorkerId};
    use agentmine_runtime::config::Migrations;
    use uuid::Uuid;

    use super::*;
    use crate::{EnqueueStore as _, Enqueued, LeaseStore as _};

    #[tokio::test]
    async fn a_new_database_is_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("fleet.db").display());
        let store = open(&url, Role::Main(1, Migrations::Run)).await.unwrap();
        let files: Vec<_> = folder.path().read_dir().unwrap().flatten().collect();
        assert!(files.len() > 1, "{files:?}");
        for file in files {
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file:?}");
        }
        store.pool.close().await;
    }

    /// Each command opens the file. It must not wait for a process that writes for long.
    #[tokio::test]
    async fn a_file_that_needs_no_migration_is_opened_while_another_process_writes() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("fleet.db").display());
        let first = open(&url, Role::Main(1, Migrations::Run)).await.unwrap();
        let writing = first.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let opened = open(&url, Role::Main(1, Migrations::Run));
        let limit = BUSY_LIMIT / 5;
        let second = tokio::time::timeout(limit, opened).await.unwrap().unwrap();
        second.pool.close().await;
        drop(writing);
        first.pool.close().await;
    }

    /// As after a laptop's lid was closed, or a step of the clock: a slot may look before the holder's heartbeat.
    #[tokio::test]
    async fn a_lease_that_ran_out_while_the_clock_jumped_is_left_to_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("db").display());
        let store = open(&url, Role::Heartbeat).await.unwrap();
        let new = NewTask {
            item: ItemRef {
                tracker: TrackerKind::GitHub,
                host: "forge.example".into(),
                repo_id: "42".into(),
                repo_path: "acme/shop".into(),
                kind: ItemKind::Issue,
                number: 1,
            },
            trigger: "e1".into(),
            title: "Greet".into(),
            url: "https://forge.example/1".into(),
            priority: Priority::Medium,
        };
        let Enqueued::Created(task) = store.enqueue(&new).await.unwrap() else {
            panic!("it is new");
        };
        let minute = Duration::from_secs(60);
        let claim = async |lease| {
            let (worker, nonce) = (WorkerId("host/1/0".into()), Uuid::new_v4());
            store
                .claim(task.id, &worker, nonce, lease, 3)
                .await
                .unwrap()
        };
        assert!(claim(minute).await.is_some());
        let an_hour = "UPDATE tasks SET lease_until = lease_until - 3600000, lease_since = lease_since - 3600000";
        sqlx::query(an_hour).execute(&store.pool).await.unwrap();
        let before = SystemTime::now() - 60 * minute;
        let before = before.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        store
            .absence
            .clock(i64::try_from(before.as_millis()).unwrap());
        assert!(claim(minute).await.is_none());
        // One that asks for less than the jump leaves it too, and one for whom it is long ago does not.
        assert!(claim(3 * 60 * minute).await.is_some());
    }
}
