//! Connecting, creating the database where it is missing, and migrating it.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::config::{Migrations, Secret};
use agentmine_runtime::service_url::has_host_in_path;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, PgPool, Postgres};

use super::connect::{CONNECT_LIMIT, attempt};
use super::{encoding, pooler, schema};

use crate::migrations;
use crate::sql::absence::Absence;
use crate::sql::doubt::{Doubt, Fitness};
use crate::sql::failure::{Failure, NOT_ALLOWED, code};
use crate::sql::store::{Role, SqlStore};
use crate::{Store as _, StoreError};

/// How long a transaction may be idle; a relay waits for the broker between its statements. The server ends it then. Without a
/// limit, a process whose host is gone would keep its row locks until the server's TCP notices, after two hours by default.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

/// Shows nothing of the URL, which may hold a password.
const NO_URL: &str = "store.url is not a valid postgres:// URL. hint: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, and \
    percent-encode special characters in the password (@ is %40, / is %2F)";

/// How long a migration waits for a lock. While it waits for a table, every later session waits too, heartbeats included, and a
/// backup may hold the table for hours.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
/// The longest first and later pauses between tries, in which others use the tables.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Opens a pool. In the main role the database is created and migrated first.
pub(crate) async fn open(url: &Secret, role: Role) -> Result<SqlStore<Postgres>, StoreError> {
    let options = named(url)?;
    let address = address(&options);
    let (connections, limit) = match role {
        Role::Main(connections, migrations) => {
            match migrations {
                Migrations::Run => migrate(&options).await,
                Migrations::Wait => wait(&options, &address).await,
            }
            .map_err(|error| error.at(&address))?;
            (connections.max(1), Duration::from_secs(30))
        }
        Role::Heartbeat => (2, Duration::from_secs(5)),
    };
    let settings = settings(limit);
    let doubt = Doubt::default();
    let doubts = doubt.clone();
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT_LIMIT)
        .idle_timeout(Duration::from_secs(300))
        .after_connect(move |connection, _| {
            let settings = sqlx::AssertSqlSafe(settings.clone());
            Box::pin(async move {
                connection.execute(settings).await?;
                Ok(())
            })
        })
        .test_before_acquire(false)
        .before_acquire(move |connection, it| {
            let fitness = doubts.of(it.age, it.idle_for);
            Box::pin(async move {
                if fitness == Fitness::Untested {
                    connection.ping().await?;
                }
                Ok(fitness != Fitness::Unusable)
            })
        })
        .connect_lazy_with(options);
    let store = SqlStore {
        pool,
        kept: None,
        address,
        limit,
        absence: Absence::default(),
        doubt,
        pool_name: role.pool_name(),
        renew: Box::new(renewal(url.clone())),
    };
    store.healthy().await?;
    Ok(store)
}

/// What holds for the sessions of a pool, whatever an administrator has set for the database or the role. After
/// waiting for a lock, a statement has to see what the lock's holder wrote, which this isolation level guarantees.
fn settings(limit: Duration) -> String {
    format!(
        "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
         SET default_transaction_isolation = 'read committed'",
        limit.as_millis(),
        IDLE_LIMIT.as_millis()
    )
}

fn named(url: &Secret) -> Result<PgConnectOptions, StoreError> {
    Ok(options(url.expose())?.application_name("agentmine"))
}

/// Lets new connections of a pool log in with what the file of the URL holds by now. A new text that is no URL of
/// Postgres changes nothing.
fn renewal(url: Secret) -> impl Fn(&PgPool) + Send + Sync {
    let used = Mutex::new(url.clone());
    move |pool| {
        let now = url.current();
        let mut used = used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.expose() == now.expose() {
            return;
        }
        match named(&now) {
            Ok(options) => pool.set_connect_options(options),
            Err(error) => tracing::warn!(%error, "the former store.url stays in use"),
        }
        *used = now;
    }
}

/// Checks a URL.
pub(crate) fn check(url: &str) -> Result<(), StoreError> {
    options(url).map(drop)
}

pub(super) fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    if has_host_in_path(url) {
        return Err(StoreError::Fault(NO_URL.into()));
    }
    let options = PgConnectOptions::from_str(url).map_err(|_| StoreError::Fault(NO_URL.into()))?;
    // PgBouncer refuses a connection with this parameter, which only changes how floating point numbers are written as text.
    Ok(options.extra_float_digits(None))
}

/// `host:port/database`.
pub(super) fn address(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => options.get_host().to_owned(),
    };
    let database = options.get_database().unwrap_or(options.get_username());
    format!("{host}:{}/{database}", options.get_port())
}

/// Applies what is missing. If a lock is not free in time, tries again after a pause.
async fn migrate(options: &PgConnectOptions) -> Result<(), Failure> {
    let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        match try_to_migrate(options).await {
            Err(failure) if failure.is_contention() => {
                if backoff.failures() == 0 {
                    tracing::warn!(
                        database = address(options),
                        error = ?failure,
                        "the migration waits for another session of the database, such as another migration or a backup"
                    );
                }
                backoff.wait().await;
            }
            outcome => return outcome,
        }
    }
}

async fn try_to_migrate(options: &PgConnectOptions) -> Result<(), Failure> {
    let mut connection = match attempt(options).await {
        Err(error) if code(&error).as_deref() == Some("3D000") => {
            create_database(options).await?;
            attempt(options).await?
        }
        outcome => outcome?,
    };
    pooler::refuse(&mut connection, options).await?;
    encoding::check(&mut connection).await?;
    // A limit of the server or the role would end a long migration each time it is tried.
    let settings = format!(
        "SET statement_timeout = 0; SET lock_timeout = {}",
        LOCK_LIMIT.as_millis()
    );
    connection.execute(sqlx::AssertSqlSafe(settings)).await?;
    let migrator = migrations::migrator(migrations::POSTGRES);
    match migrator.run(&mut connection).await {
        // sqlx runs CREATE TABLE IF NOT EXISTS, and Postgres checks the privilege even if the table exists.
        Err(MigrateError::Execute(error)) if code(&error).as_deref() == Some(NOT_ALLOWED) => {
            if !schema::is_complete(&mut connection).await? {
                return Err(MigrateError::Execute(error).into());
            }
        }
        migrated => migrated?,
    }
    Ok(connection.close().await?)
}

async fn wait(options: &PgConnectOptions, address: &str) -> Result<(), Failure> {
    schema::wait(options, address).await?;
    let mut connection = attempt(options).await?;
    pooler::refuse(&mut connection, options).await?;
    Ok(connection.close().await?)
}

/// Creates the database through the one that every server has. Another process may be doing the same.
async fn create_database(options: &PgConnectOptions) -> Result<(), Failure> {
    let name = options.get_database().unwrap_or_default();
    let failed = |why: String| {
        Failure::Fault(format!(
            "database \"{name}\" does not exist and could not be created: {why}; \
             create it, or give the user CREATEDB"
        ))
    };
    let mut connection = attempt(&options.clone().database("postgres"))
        .await
        .map_err(|error| failed(error.to_string()))?;
    let sql = format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""));
    for pause in [100, 300, 900, 0] {
        let created = sqlx::query(sqlx::AssertSqlSafe(sql.clone()))
            .execute(&mut connection)
            .await;
        let Err(error) = created else { return Ok(()) };
        match code(&error).as_deref() {
            // It exists by now, or is being created at this moment.
            Some("42P04" | "23505") => return Ok(()),
            // The template is busy with another CREATE DATABASE.
            Some("55006") if pause > 0 => tokio::time::sleep(Duration::from_millis(pause)).await,
            _ => return Err(failed(error.to_string())),
        }
    }
    Err(failed("the server is busy".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_is_not_encoded_is_explained_and_not_shown() {
        for url in [
            "postgres://u:hun/ter2@h/db",
            "postgres://u:hun#ter2@h/db",
            "postgres://u:p@hun/ter2@h/db",
        ] {
            let error = check(url).unwrap_err().to_string();
            assert!(error.contains("hint: write postgres://"), "{error}");
            assert!(!error.contains("hun") && !error.contains("ter2"), "{error}");
        }
        check("postgres://u:hun%2Fter2@h/db").unwrap();
    }

    #[test]
    fn a_session_whose_process_is_gone_keeps_its_locks_for_a_limited_time() {
        let settings = settings(Duration::from_secs(30));
        assert!(
            settings.contains("statement_timeout = 30000;"),
            "{settings}"
        );
        let idle = "idle_in_transaction_session_timeout = 120000;";
        assert!(settings.contains(idle), "{settings}");
    }
}
