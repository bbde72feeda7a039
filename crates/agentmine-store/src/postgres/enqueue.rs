//! Recording tasks.

use agentmine_domain::{NewTask, Task, TaskId};
use sqlx::{PgConnection, PgPool};

use super::task_columns;
use crate::Enqueued;
use crate::failure::Failure;
use crate::row::{TaskRow, clean, priority_number};

/// Serialises the giving of numbers, so that they have no gaps. Held for milliseconds, by enqueues of
/// new items alone: most scans find their item known and never take it.
const NUMBER_LOCK: i64 = 0x6167_656e_746d_0001;

pub(super) async fn enqueue(pool: &PgPool, id: TaskId, new: &NewTask) -> Result<Enqueued, Failure> {
    let item_key = clean(&new.item.key()).into_owned();
    let dedup_key = clean(&new.dedup_key()).into_owned();
    let mut connection = pool.acquire().await?;
    if let Some(known) = find(&mut connection, &item_key, &dedup_key, id).await? {
        return Ok(known);
    }
    drop(connection);

    let mut tx = pool.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(NUMBER_LOCK)
        .execute(&mut *tx)
        .await?;
    let item_number = i64::try_from(new.item.number)
        .map_err(|_| Failure::Fault(format!("item number {} is too large", new.item.number)))?;
    let made: Option<TaskRow> = sqlx::query_as(concat!(
        "INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number,
             item_key, trigger_event, dedup_key, title, url, priority)
         SELECT $1, COALESCE(max(number), 0) + 1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13
         FROM tasks
         ON CONFLICT DO NOTHING RETURNING ",
        task_columns!()
    ))
    .bind(id.0)
    .bind(new.item.tracker.as_str())
    .bind(clean(&new.item.host))
    .bind(clean(&new.item.repo_id))
    .bind(clean(&new.item.repo_path))
    .bind(new.item.kind.as_str())
    .bind(item_number)
    .bind(&item_key)
    .bind(clean(&new.trigger))
    .bind(&dedup_key)
    .bind(clean(&new.title))
    .bind(clean(&new.url))
    .bind(priority_number(new.priority))
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = made else {
        let known = find(&mut tx, &item_key, &dedup_key, id).await?;
        return known.ok_or_else(|| Failure::Fault("a conflicting task vanished".into()));
    };
    sqlx::query("INSERT INTO outbox (task, due_at) VALUES ($1, now())")
        .bind(id.0)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    metrics::counter!("agentmine_tasks_enqueued_total").increment(1);
    Ok(Enqueued::Created(row.try_into()?))
}

/// The row in the way: the item's open one before one of the same trigger. Our own id means that an
/// earlier try of this call was committed after all.
async fn find(
    connection: &mut PgConnection,
    item_key: &str,
    dedup_key: &str,
    id: TaskId,
) -> Result<Option<Enqueued>, Failure> {
    let row: Option<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks
         WHERE dedup_key = $1
            OR (item_key = $2 AND state IN ('queued', 'leased', 'paused'))
         ORDER BY (state IN ('queued', 'leased', 'paused')) DESC, number DESC LIMIT 1"
    ))
    .bind(dedup_key)
    .bind(item_key)
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let task = Task::try_from(row)?;
    Ok(Some(if task.id == id {
        Enqueued::Created(task)
    } else {
        Enqueued::Known(task)
    }))
}
