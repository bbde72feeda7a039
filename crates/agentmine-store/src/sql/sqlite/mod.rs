//! What is SQLite's own.
//!
//! Time is SQLite's own clock, in milliseconds. The file is in WAL mode with `synchronous = NORMAL`: the death of
//! a process loses nothing; a power cut may lose the last transactions, never the file.

mod inspect;
mod open;

use std::time::Duration;

use sqlx::{Arguments as _, Pool, Sqlite};
use uuid::Uuid;

use super::arg::{Arg, args, bind};
use super::db::{AnyRow, Db, Dialect, Relayed, WakeUpQueue, statements};
use super::failure::Failure;
use super::row::{EntryRow, omitted};
use crate::Publish;
use crate::migrations::{self, Embedded};
pub(crate) use inspect::inspect;
pub(crate) use open::{check, open};

/// How long taken entries stay with their relay.
const TAKEN_FOR: Duration = Duration::from_secs(60);

impl Dialect for Sqlite {
    const MIGRATIONS: &'static [Embedded] = migrations::SQLITE;
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const BEGIN_BRIEF: &'static str = Self::BEGIN;
    const NOW: &'static str = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";
    const CLOCK: &'static str = Self::NOW;
    const EPOCH: &'static str = "0";
    const MS: &'static str = "";
    // An index that holds a row by its id is always preferred.
    const STATE: &'static str = "state";
    const MILLIS: (&'static str, &'static str) = ("(", ")");
    // The write lock is the lock.
    const LOCK: &'static str = "";
    const LOCK_FREE: &'static str = "";
    const LOCK_SHARED: &'static str = "";
    // Only a write shows whether the file or its disk is.
    const IS_READ_ONLY: Option<&'static str> = None;
    const SIZES: &'static str = "SELECT m.tbl_name AS name,
             COALESCE(sum(CASE WHEN s.name = m.tbl_name AND s.pagetype = 'leaf' THEN s.ncell END), 0) AS rows,
             sum(s.pgsize) AS bytes
         FROM dbstat s JOIN sqlite_schema m ON m.name = s.name
         GROUP BY m.tbl_name ORDER BY bytes DESC, m.tbl_name";
    /// One statement, since each one is a message to the connection's thread and back. A trigger sets the counter of the task.
    const APPEND_STEP: &'static str =
        "INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, recorded_at, token)
             SELECT id, last_seq + 1, $2, $5, $6, $7, {now}, $4 FROM tasks WHERE {held}
             ON CONFLICT (token) DO NOTHING RETURNING seq";

    statements!(Uuid::hyphenated);

    async fn lock_numbers(_: &mut Db<Self>) -> Result<(), Failure> {
        Ok(())
    }

    async fn lock_plans(_: &mut Db<Self>) -> Result<(), Failure> {
        Ok(())
    }

    /// Two sweeps come one after the other, and the second finds nothing left to do.
    async fn lock_sweep(_: &mut Db<Self>) -> Result<bool, Failure> {
        Ok(true)
    }

    /// SQLite has no row locks to skip, and the write lock must not be held while a broker answers, so a relay
    /// takes entries for a while by marking them. A relay that dies leaves them taken until then. One that is
    /// slower than that may see an entry sent twice, which costs one look at the row.
    async fn relay(
        pool: &Pool<Self>,
        limit: u32,
        publish: &dyn Publish,
    ) -> Result<Relayed, Failure> {
        let mut relayed = Relayed::default();
        loop {
            let broken = relayed.broken();
            let due = take(pool, limit, broken).await?;
            let is_full = due.len() >= limit as usize;
            for entry in due {
                let record = match relayed.publish(publish, &entry.wake_up()?).await {
                    true => "UPDATE outbox SET sent_at = {now} WHERE id = $1",
                    false => "UPDATE outbox SET taken_until = 0 WHERE id = $1",
                };
                let mut db = Db::connection(pool).await?;
                db.execute(record, args![entry.id]).await?;
            }
            if !relayed.hides_others(broken, is_full) {
                return Ok(relayed);
            }
        }
    }
}

/// Takes due entries, without those of a queue that is broken.
async fn take(
    pool: &Pool<Sqlite>,
    limit: u32,
    broken: Option<WakeUpQueue>,
) -> Result<Vec<EntryRow>, Failure> {
    let [takeovers, priority] = omitted(broken);
    let mut tx = Db::transaction(pool).await?;
    let due: Vec<EntryRow> = tx
        .rows(
            "SELECT o.id, o.task, t.priority, t.takeover FROM outbox o JOIN tasks t ON t.id = o.task
             WHERE o.sent_at IS NULL AND o.due_at <= {now}
               AND (o.taken_until <= {now} OR o.taken_until > {now} + 2 * $4)
               AND (NOT t.takeover OR $2 = 0) AND (t.takeover OR t.priority <> $3)
             ORDER BY o.due_at, o.id LIMIT $1",
            // One that is taken for longer was taken before the clock was set back.
            args![limit, takeovers, priority, TAKEN_FOR],
        )
        .await?;
    for entry in &due {
        tx.execute(
            "UPDATE outbox SET taken_until = {now} + $2 WHERE id = $1",
            args![entry.id, TAKEN_FOR],
        )
        .await?;
    }
    tx.commit().await?;
    Ok(due)
}
