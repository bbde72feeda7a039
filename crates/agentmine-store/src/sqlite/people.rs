//! What people ask of tasks, and what they look at.

use agentmine_domain::{ItemRef, Session, SessionId, Task, TaskId, TaskNumber};
use sqlx::{SqliteConnection, SqlitePool};

use super::{begin, task_columns};
use crate::TaskFilter;
use crate::failure::Failure;
use crate::row::{SessionRow, TaskRow, all, all_counts, clean, row_states};

pub(super) async fn request_stop(
    pool: &SqlitePool,
    task: TaskId,
    reason: &str,
) -> Result<bool, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let done = sqlx::query(
        "UPDATE tasks SET
             request = CASE state WHEN 'leased' THEN 'stop' END,
             request_reason = CASE state WHEN 'leased' THEN $2 END,
             reason = CASE state WHEN 'leased' THEN reason ELSE $2 END,
             state = CASE state WHEN 'leased' THEN 'leased' ELSE 'stopped' END,
             updated_at = $3
         WHERE id = $1 AND state IN ('queued', 'leased', 'paused')",
    )
    .bind(task.to_string())
    .bind(clean(reason))
    .bind(now)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(done.rows_affected() > 0)
}

/// An earlier stop request stays: it is the stronger one.
pub(super) async fn request_pause(
    pool: &SqlitePool,
    task: TaskId,
    reason: &str,
) -> Result<bool, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let done = sqlx::query(
        "UPDATE tasks SET
             request = CASE state WHEN 'leased' THEN COALESCE(request, 'pause') END,
             request_reason = CASE WHEN state <> 'leased' THEN NULL
                                WHEN request = 'stop' THEN request_reason ELSE $2 END,
             reason = CASE state WHEN 'queued' THEN $2 ELSE reason END,
             state = CASE state WHEN 'leased' THEN 'leased' ELSE 'paused' END,
             updated_at = $3
         WHERE id = $1 AND state IN ('queued', 'leased', 'paused')",
    )
    .bind(task.to_string())
    .bind(clean(reason))
    .bind(now)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn resume(pool: &SqlitePool, task: TaskId) -> Result<bool, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let done = sqlx::query(
        "UPDATE tasks SET state = 'queued', reason = NULL, updated_at = $2
         WHERE id = $1 AND state = 'paused'",
    )
    .bind(task.to_string())
    .bind(now)
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() > 0 {
        wake(&mut tx, task, now).await?;
    }
    tx.commit().await?;
    Ok(done.rows_affected() > 0)
}

/// Puts a wake-up into the outbox.
pub(super) async fn wake(
    tx: &mut SqliteConnection,
    task: TaskId,
    due_at: i64,
) -> Result<(), Failure> {
    sqlx::query("INSERT INTO outbox (task, due_at) VALUES ($1, $2)")
        .bind(task.to_string())
        .bind(due_at)
        .execute(tx)
        .await?;
    Ok(())
}

pub(super) async fn tasks(pool: &SqlitePool, filter: &TaskFilter) -> Result<Vec<Task>, Failure> {
    let (one, other) = row_states(filter.status);
    let rows: Vec<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE $1 IS NULL OR state IN ($1, $2)
         ORDER BY number DESC LIMIT $3"
    ))
    .bind(one)
    .bind(other)
    .bind(no_limit_is_minus_one(filter.limit))
    .fetch_all(pool)
    .await?;
    all(rows)
}

pub(super) async fn task(pool: &SqlitePool, id: TaskId) -> Result<Option<Task>, Failure> {
    let row: Option<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE id = $1"
    ))
    .bind(id.to_string())
    .fetch_optional(pool)
    .await?;
    row.map(Task::try_from).transpose()
}

pub(super) async fn task_by_number(
    pool: &SqlitePool,
    number: TaskNumber,
) -> Result<Option<Task>, Failure> {
    let row: Option<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE number = $1"
    ))
    .bind(number.0)
    .fetch_optional(pool)
    .await?;
    row.map(Task::try_from).transpose()
}

pub(super) async fn task_by_item(
    pool: &SqlitePool,
    item: &ItemRef,
) -> Result<Option<Task>, Failure> {
    let row: Option<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE item_key = $1
         ORDER BY (state IN ('queued', 'leased', 'paused')) DESC, number DESC LIMIT 1"
    ))
    .bind(clean(&item.key()))
    .fetch_optional(pool)
    .await?;
    row.map(Task::try_from).transpose()
}

macro_rules! session_columns {
    () => {
        "s.id, s.task, t.number AS task_number, s.epoch, s.worker, s.model, \
         s.started_at, s.ended_at, s.ending, s.reason, \
         s.model_calls, s.tool_calls, s.input_tokens, s.cached_tokens, s.output_tokens, \
         s.cost_micros"
    };
}

pub(super) async fn sessions(
    pool: &SqlitePool,
    task: Option<TaskId>,
    limit: u32,
) -> Result<Vec<Session>, Failure> {
    let rows: Vec<SessionRow> = sqlx::query_as(concat!(
        "SELECT ",
        session_columns!(),
        " FROM sessions s JOIN tasks t ON t.id = s.task
         WHERE $1 IS NULL OR s.task = $1
         ORDER BY s.id DESC LIMIT $2"
    ))
    .bind(task.map(|task| task.to_string()))
    .bind(no_limit_is_minus_one(limit))
    .fetch_all(pool)
    .await?;
    all(rows)
}

pub(super) async fn session(pool: &SqlitePool, id: SessionId) -> Result<Option<Session>, Failure> {
    let row: Option<SessionRow> = sqlx::query_as(concat!(
        "SELECT ",
        session_columns!(),
        " FROM sessions s JOIN tasks t ON t.id = s.task WHERE s.id = $1"
    ))
    .bind(id.0)
    .fetch_optional(pool)
    .await?;
    row.map(Session::try_from).transpose()
}

pub(super) async fn counts(pool: &SqlitePool) -> Result<Vec<(String, u64)>, Failure> {
    let found: Vec<(String, i64)> =
        sqlx::query_as("SELECT state, count(*) FROM tasks GROUP BY state")
            .fetch_all(pool)
            .await?;
    Ok(all_counts(&found))
}

fn no_limit_is_minus_one(limit: u32) -> i64 {
    match limit {
        0 => -1,
        n => i64::from(n),
    }
}
