//! The outbox relay.
//!
//! SQLite has no row locks to skip and the write lock must not be held while a broker answers, so a relay
//! takes entries for a while by marking them. A relay that dies leaves them taken until then; one that
//! takes longer than that may see an entry sent twice, which costs a look at the row and nothing else.

use agentmine_domain::WakeUp;
use sqlx::SqlitePool;

use super::begin;
use crate::Publish;
use crate::failure::Failure;
use crate::row::{priority_from, row, task_id};

/// Milliseconds that taken entries stay with their relay.
const TAKEN_FOR: i64 = 60_000;

pub(super) async fn relay(
    pool: &SqlitePool,
    limit: u32,
    publish: &dyn Publish,
) -> Result<u64, Failure> {
    let mut sent = 0;
    let mut due = take(pool, limit).await?.into_iter();
    while let Some(entry) = due.next() {
        let wake_up = WakeUp {
            task: task_id(&entry.task)?,
            priority: priority_from(entry.priority)?,
        };
        if let Err(why) = publish.publish(&wake_up).await {
            metrics::counter!("agentmine_outbox_failures_total").increment(1);
            metrics::counter!("agentmine_outbox_sent_total").increment(sent);
            give_back(pool, entry.id).await?;
            for rest in due {
                give_back(pool, rest.id).await?;
            }
            return Err(Failure::Publish(why));
        }
        let (mut tx, now) = begin(pool).await?;
        sqlx::query("UPDATE outbox SET sent_at = $2 WHERE id = $1")
            .bind(entry.id)
            .bind(now)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        sent += 1;
    }
    metrics::counter!("agentmine_outbox_sent_total").increment(sent);
    Ok(sent)
}

row! {
    struct Entry {
        id: i64,
        task: String,
        priority: i16,
    }
}

async fn take(pool: &SqlitePool, limit: u32) -> Result<Vec<Entry>, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let due: Vec<Entry> = sqlx::query_as(
        "SELECT o.id, o.task, t.priority FROM outbox o JOIN tasks t ON t.id = o.task
         WHERE o.sent_at IS NULL AND o.due_at <= $1 AND o.taken_until <= $1
         ORDER BY o.due_at, o.id LIMIT $2",
    )
    .bind(now)
    .bind(i64::from(limit))
    .fetch_all(&mut *tx)
    .await?;
    for entry in &due {
        sqlx::query("UPDATE outbox SET taken_until = $2 WHERE id = $1")
            .bind(entry.id)
            .bind(now + TAKEN_FOR)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(due)
}

async fn give_back(pool: &SqlitePool, id: i64) -> Result<(), Failure> {
    let (mut tx, _) = begin(pool).await?;
    sqlx::query("UPDATE outbox SET taken_until = 0 WHERE id = $1")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}
