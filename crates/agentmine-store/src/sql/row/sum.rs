//! Numbers over many rows.

use super::column::Id;

row!(StandingRow {
    priority: i16,
    standing: String,
    count: i64,
    oldest: i64,
});

row!(
    /// A queued task that names its files.
    ScopedRow {
        priority: i16,
        standing: String,
        oldest: i64,
        tracker: String,
        host: String,
        repo_id: String,
        write_scope: String,
    }
);

row!(
    /// The files that a task holds.
    HeldFilesRow {
        write_scope: String,
    }
);

row!(
    /// A part of a sum, or the sum of some rows.
    TotalRow {
        what: String,
        amount: i64,
        rows: i64,
    }
);

row!(
    /// A task with its number of steps.
    EndedRow {
        id: Id,
        steps: i64,
    }
);

row!(
    /// What would be removed.
    PrunableRow {
        tasks: i64,
        rows: i64,
        bytes: i64,
    }
);

row!(
    /// The size of a table.
    SizeRow {
        name: String,
        rows: i64,
        bytes: i64,
    }
);

row!(AgeRow {
    count: i64,
    oldest: i64,
});
