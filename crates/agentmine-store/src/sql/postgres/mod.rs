//! What is Postgres's own.

mod connect;
mod encoding;
mod inspect;
mod open;
mod pooler;
mod schema;

use sqlx::{Arguments as _, Pool, Postgres};

use super::arg::{Arg, args, bind};
use super::db::{AnyRow, Db, Dialect, Relayed, statements};
use super::failure::Failure;
use super::row::{EntryRow, omitted};
use crate::Publish;
use crate::migrations::{self, Embedded};
pub(crate) use inspect::inspect;
pub(crate) use open::{check, open};

/// Keeps numbers free of gaps. Held for milliseconds, and only to record a new item.
const NUMBER_LOCK: i64 = 0x6167_656e_746d_0001;
const SWEEP_LOCK: i64 = 0x6167_656e_746d_0002;
const PLAN_LOCK: i64 = 0x6167_656e_746d_0003;

/// The row's counter gives a step's number under the row's lock.
macro_rules! number {
    () => {
        "held AS (
                 UPDATE tasks SET last_seq = last_seq + 1
                 WHERE {held} AND NOT EXISTS (SELECT 1 FROM steps WHERE token = $4)
                 RETURNING id, last_seq)"
    };
}

macro_rules! insert_numbered {
    () => {
        "
             INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, token)
             SELECT id, last_seq, $2, $5, $6, $7, $4 FROM held RETURNING seq"
    };
}

impl Dialect for Postgres {
    const MIGRATIONS: &'static [Embedded] = migrations::POSTGRES;
    const BEGIN: &'static str = "BEGIN";
    const BEGIN_BRIEF: &'static str = "BEGIN; SET LOCAL lock_timeout = '500ms'";
    const NOW: &'static str = "now()";
    const CLOCK: &'static str = "clock_timestamp()";
    const EPOCH: &'static str = "timestamptz 'epoch'";
    const MS: &'static str = " * interval '1 millisecond'";
    // If no task was leased while the table was analyzed, the planner estimates that the index of leased tasks is empty, and
    // searches it for each task, with every entry since the last vacuum. It does not match this expression to the index.
    const STATE: &'static str = "(state || '')";
    const MILLIS: (&'static str, &'static str) = ("floor(extract(epoch FROM ", ") * 1000)::bigint");
    const LOCK: &'static str = " FOR NO KEY UPDATE";
    const LOCK_FREE: &'static str = " FOR NO KEY UPDATE SKIP LOCKED";
    const LOCK_SHARED: &'static str = " FOR SHARE";
    const IS_READ_ONLY: Option<&'static str> =
        Some("SELECT current_setting('transaction_read_only') = 'on'");
    const SIZES: &'static str =
        "SELECT relname::text AS name, GREATEST(reltuples, 0)::bigint AS rows,
             pg_total_relation_size(oid) AS bytes
         FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
         ORDER BY bytes DESC, name";
    const APPEND_STEP: &'static str = concat!("WITH ", number!(), insert_numbered!());
    const APPEND_STEP_WITH_USAGE: Option<&'static str> = Some(concat!(
        "WITH ",
        number!(),
        ", used AS (
                 UPDATE sessions SET model = $9, model_calls = $10, tool_calls = $11,
                     input_tokens = $12, cached_tokens = $13, output_tokens = $14, cost_micros = $15
                 FROM held WHERE sessions.task = held.id AND sessions.epoch = $2 AND sessions.id = $8
                   AND sessions.ended_at IS NULL)",
        insert_numbered!()
    ));

    statements!(|id| id);

    async fn lock_numbers(tx: &mut Db<Self>) -> Result<(), Failure> {
        tx.execute("SELECT pg_advisory_xact_lock($1)", args![NUMBER_LOCK])
            .await?;
        Ok(())
    }

    async fn lock_plans(tx: &mut Db<Self>) -> Result<(), Failure> {
        tx.execute("SELECT pg_advisory_xact_lock($1)", args![PLAN_LOCK])
            .await?;
        Ok(())
    }

    async fn lock_sweep(tx: &mut Db<Self>) -> Result<bool, Failure> {
        let lock = "SELECT pg_try_advisory_xact_lock($1)";
        Ok(tx.scalar(lock, args![SWEEP_LOCK]).await?.unwrap_or(false))
    }

    /// Entries are locked with `SKIP LOCKED` while they are published, so relays share the work without
    /// waiting for each other. A relay that dies between a publish and its commit sends the entry again; a
    /// second wake-up costs one look at the row. Task rows are not locked: the claim that a message causes must
    /// not wait for this transaction.
    async fn relay(
        pool: &Pool<Self>,
        limit: u32,
        publish: &dyn Publish,
    ) -> Result<Relayed, Failure> {
        let mut tx = Db::transaction(pool).await?;
        let mut relayed = Relayed::default();
        loop {
            let broken = relayed.broken();
            let [takeovers, priority] = omitted(broken);
            let due: Vec<EntryRow> = tx
                .rows(
                    "SELECT o.id, o.task, t.priority, t.takeover FROM outbox o JOIN tasks t ON t.id = o.task
                     WHERE o.sent_at IS NULL AND o.due_at <= {now}
                       AND (NOT t.takeover OR $2 = 0) AND (t.takeover OR t.priority <> $3)
                     ORDER BY o.due_at, o.id LIMIT $1 FOR UPDATE OF o SKIP LOCKED",
                    args![limit, takeovers, priority],
                )
                .await?;
            let is_full = due.len() >= limit as usize;
            for entry in due {
                if relayed.publish(publish, &entry.wake_up()?).await {
                    let sent = "UPDATE outbox SET sent_at = clock_timestamp() WHERE id = $1";
                    tx.execute(sent, args![entry.id]).await?;
                }
            }
            if !relayed.hides_others(broken, is_full) {
                break;
            }
        }
        tx.commit().await?;
        Ok(relayed)
    }
}
