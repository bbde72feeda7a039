//! What people ask of tasks, and what they look at.

use agentmine_domain::{ItemRef, Session, SessionId, Task, TaskId, TaskNumber};
use sqlx::PgPool;

use super::task_columns;
use crate::TaskFilter;
use crate::failure::Failure;
use crate::row::{SessionRow, TaskRow, all, all_counts, clean, row_states};

pub(super) async fn request_stop(
    pool: &PgPool,
    task: TaskId,
    reason: &str,
) -> Result<bool, Failure> {
    let done = sqlx::query(
        "UPDATE tasks SET
             request = CASE state WHEN 'leased' THEN 'stop' END,
             request_reason = CASE state WHEN 'leased' THEN $2 END,
             reason = CASE state WHEN 'leased' THEN reason ELSE $2 END,
             state = CASE state WHEN 'leased' THEN 'leased' ELSE 'stopped' END,
             updated_at = now()
         WHERE id = $1 AND state IN ('queued', 'leased', 'paused')",
    )
    .bind(task.0)
    .bind(clean(reason))
    .execute(pool)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// An earlier stop request stays: it is the stronger one.
pub(super) async fn request_pause(
    pool: &PgPool,
    task: TaskId,
    reason: &str,
) -> Result<bool, Failure> {
    let done = sqlx::query(
        "UPDATE tasks SET
             request = CASE state WHEN 'leased' THEN COALESCE(request, 'pause') END,
             request_reason = CASE WHEN state <> 'leased' THEN NULL
                                WHEN request = 'stop' THEN request_reason ELSE $2 END,
             reason = CASE state WHEN 'queued' THEN $2 ELSE reason END,
             state = CASE state WHEN 'leased' THEN 'leased' ELSE 'paused' END,
             updated_at = now()
         WHERE id = $1 AND state IN ('queued', 'leased', 'paused')",
    )
    .bind(task.0)
    .bind(clean(reason))
    .execute(pool)
    .await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn resume(pool: &PgPool, task: TaskId) -> Result<bool, Failure> {
    let done = sqlx::query(
        "WITH resumed AS (
             UPDATE tasks SET state = 'queued', reason = NULL, updated_at = now()
             WHERE id = $1 AND state = 'paused' RETURNING id)
         INSERT INTO outbox (task, due_at) SELECT id, now() FROM resumed",
    )
    .bind(task.0)
    .execute(pool)
    .await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn tasks(pool: &PgPool, filter: &TaskFilter) -> Result<Vec<Task>, Failure> {
    let (one, other) = row_states(filter.status);
    let rows: Vec<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE $1::text IS NULL OR state IN ($1, $2)
         ORDER BY number DESC LIMIT NULLIF($3::bigint, 0)"
    ))
    .bind(one)
    .bind(other)
    .bind(i64::from(filter.limit))
    .fetch_all(pool)
    .await?;
    all(rows)
}

pub(super) async fn task(pool: &PgPool, id: TaskId) -> Result<Option<Task>, Failure> {
    let row: Option<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE id = $1"
    ))
    .bind(id.0)
    .fetch_optional(pool)
    .await?;
    row.map(Task::try_from).transpose()
}

pub(super) async fn task_by_number(
    pool: &PgPool,
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

pub(super) async fn task_by_item(pool: &PgPool, item: &ItemRef) -> Result<Option<Task>, Failure> {
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
        "s.id, s.task::text AS task, t.number AS task_number, s.epoch, s.worker, s.model, \
         (extract(epoch FROM s.started_at) * 1000)::bigint AS started_at, \
         (extract(epoch FROM s.ended_at) * 1000)::bigint AS ended_at, s.ending, s.reason, \
         s.model_calls, s.tool_calls, s.input_tokens, s.cached_tokens, s.output_tokens, \
         s.cost_micros"
    };
}

pub(super) async fn sessions(
    pool: &PgPool,
    task: Option<TaskId>,
    limit: u32,
) -> Result<Vec<Session>, Failure> {
    let rows: Vec<SessionRow> = sqlx::query_as(concat!(
        "SELECT ",
        session_columns!(),
        " FROM sessions s JOIN tasks t ON t.id = s.task
         WHERE $1::uuid IS NULL OR s.task = $1
         ORDER BY s.id DESC LIMIT NULLIF($2::bigint, 0)"
    ))
    .bind(task.map(|task| task.0))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    all(rows)
}

pub(super) async fn session(pool: &PgPool, id: SessionId) -> Result<Option<Session>, Failure> {
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

pub(super) async fn counts(pool: &PgPool) -> Result<Vec<(String, u64)>, Failure> {
    let found: Vec<(String, i64)> =
        sqlx::query_as("SELECT state, count(*) FROM tasks GROUP BY state")
            .fetch_all(pool)
            .await?;
    Ok(all_counts(&found))
}
