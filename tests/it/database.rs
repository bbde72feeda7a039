//! Databases of stories: copies of one that has the present schema, since a copy takes a part of the time of all migrations.
//!
//! The first test that finds no such template makes it, under another name until it is complete. Its name has the digest of
//! the migrations, so checkouts with different ones use one server. Templates of former ones stay; each has about 10 MB.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use agentmine_runtime::config::{Secret, StoreConfig};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

/// What Postgres says of a database that is missing, and of a name that is in use, also as of this moment.
const MISSING: &[&str] = &["3D000"];
const IN_USE: &[&str] = &["42P04", "23505"];

/// The URL of another database of a server.
pub(crate) fn with_database(url: &str, name: &str) -> String {
    let mut url: url::Url = url.parse().unwrap();
    url.set_path(name);
    url.to_string()
}

/// Creates an empty database of this name with the present schema on a server, and returns its URL.
pub(crate) async fn create(server: &str, name: &str) -> String {
    let mut admin = PgConnection::connect(server)
        .await
        .unwrap_or_else(|e| panic!("no Postgres: {e}; run tests/run"));
    let template = format!("agentmine_template_{:016x}", digest());
    let copy = format!(
        "CREATE DATABASE {name} TEMPLATE {template}{}",
        strategy(&admin)
    );
    if !execute(&mut admin, &copy, MISSING).await {
        make(server, &mut admin, &template).await;
        assert!(execute(&mut admin, &copy, MISSING).await, "{copy}");
    }
    admin.close().await.unwrap();
    with_database(server, name)
}

/// Copies files, which takes half the time of a copy through the log. Servers before version 15 know no other way.
fn strategy(admin: &PgConnection) -> &'static str {
    match admin.server_version_num() {
        Some(150_000..) => " STRATEGY file_copy",
        _ => "",
    }
}

async fn make(server: &str, admin: &mut PgConnection, template: &str) {
    let name = format!("t{}", Uuid::new_v4().simple());
    let store = agentmine_store::connect(&StoreConfig {
        url: Secret::new(with_database(server, &name)),
        max_connections: 1,
        ..StoreConfig::default()
    })
    .await
    .unwrap();
    store.close().await;
    let rename = format!("ALTER DATABASE {name} RENAME TO {template}");
    // Another test may have been quicker.
    if !execute(admin, &rename, IN_USE).await {
        let drop = format!("DROP DATABASE {name} WITH (FORCE)");
        execute(admin, &drop, MISSING).await;
    }
}

/// Whether the statement was executed; `false` if it failed for one of these reasons.
async fn execute(admin: &mut PgConnection, sql: &str, expected: &[&str]) -> bool {
    let executed = sqlx::raw_sql(AssertSqlSafe(sql)).execute(admin).await;
    let Err(error) = executed else { return true };
    let code = error.as_database_error().and_then(|it| it.code());
    let is_expected = code.is_some_and(|code| expected.contains(&&*code));
    assert!(is_expected, "{sql}: {error}");
    false
}

/// Of all migrations, their names and texts.
fn digest() -> u64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/postgres");
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.file_name().hash(&mut hasher);
        std::fs::read(&file).unwrap().hash(&mut hasher);
    }
    hasher.finish()
}
