//! What is known of a database before it is opened.

use chrono::{DateTime, Utc};

/// What is known of a database before it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// `host:port/database` or the file, without credentials.
    pub address: String,
    /// The database, or that there is none yet.
    pub database: Existing,
}

/// Whether there is a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existing {
    /// [`crate::connect`] creates it.
    Absent,
    /// It answers.
    Present {
        /// The product and its version.
        product: String,
        /// The number of migrations that it lacks.
        missing: usize,
        /// Whether it has been migrated at all.
        migrated: Migrated,
        /// Its clock.
        time: DateTime<Utc>,
    },
}

/// Whether a database has a schema of AgentMine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrated {
    /// An older or newer version used it, or this one.
    Before,
    /// It has none of our tables.
    Never,
}
