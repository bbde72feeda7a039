//! The migrations of both databases, embedded by `build.rs`.

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// A file of `migrations/`.
pub(crate) struct Embedded {
    pub(crate) version: i64,
    description: &'static str,
    sql: &'static str,
}

/// Runs what is missing. Migrations that only a newer version knows are ignored.
pub(crate) fn migrator(files: &[Embedded]) -> Migrator {
    let mut migrator = Migrator::with_migrations(files.iter().map(migration).collect());
    migrator.set_ignore_missing(true);
    migrator
}

/// The newest version among them.
pub(crate) fn newest(files: &[Embedded]) -> Option<i64> {
    files.iter().map(|file| file.version).max()
}

/// How many of them are not in `applied`.
pub(crate) fn missing(files: &[Embedded], applied: &[i64]) -> usize {
    let is_missing = |file: &&Embedded| !applied.contains(&file.version);
    files.iter().filter(is_missing).count()
}

fn migration(file: &Embedded) -> Migration {
    Migration::new(
        file.version,
        file.description.into(),
        MigrationType::Simple,
        SqlStr::from_static(file.sql),
        file.sql.starts_with("-- no-transaction"),
    )
}
