//! The outbox relay.
//!
//! Entries are locked with `SKIP LOCKED` while they are published, so relays share the work without
//! waiting for each other. A relay that dies after a publish and before its commit sends the entry
//! again: a doubled wake-up costs a look at the row and nothing else. Task rows are not touched here,
//! since a claim that the message set off must not wait for this transaction.

use agentmine_domain::WakeUp;
use sqlx::PgPool;
use uuid::Uuid;

use crate::Publish;
use crate::failure::Failure;
use crate::row::{priority_from, task_id};

pub(super) async fn relay(
    pool: &PgPool,
    limit: u32,
    publish: &dyn Publish,
) -> Result<u64, Failure> {
    let mut tx = pool.begin().await?;
    let due: Vec<(i64, Uuid, i16)> = sqlx::query_as(
        "SELECT o.id, o.task, t.priority FROM outbox o JOIN tasks t ON t.id = o.task
         WHERE o.sent_at IS NULL AND o.due_at <= now()
         ORDER BY o.due_at, o.id LIMIT $1 FOR UPDATE OF o SKIP LOCKED",
    )
    .bind(i64::from(limit))
    .fetch_all(&mut *tx)
    .await?;
    let mut sent = 0;
    let mut failed = None;
    for (id, task, priority) in due {
        let wake_up = WakeUp {
            task: task_id(&task.to_string())?,
            priority: priority_from(priority)?,
        };
        if let Err(why) = publish.publish(&wake_up).await {
            failed = Some(why);
            break;
        }
        sqlx::query("UPDATE outbox SET sent_at = clock_timestamp() WHERE id = $1")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        sent += 1;
    }
    tx.commit().await?;
    metrics::counter!("agentmine_outbox_sent_total").increment(sent);
    match failed {
        None => Ok(sent),
        Some(why) => {
            metrics::counter!("agentmine_outbox_failures_total").increment(1);
            Err(Failure::Publish(why))
        }
    }
}
