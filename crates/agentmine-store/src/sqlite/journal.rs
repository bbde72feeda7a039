//! Steps, usage and checkpoints. A payload is JSON text.

use agentmine_domain::{Lease, Seq, Step, TaskId, Usage};
use sqlx::SqlitePool;
use uuid::Uuid;

use super::begin;
use crate::failure::Failure;
use crate::row::{CheckpointRow, StepRow, all, clean, signed, signed32};
use crate::{Checkpoint, NewStep};

pub(super) async fn append(
    pool: &SqlitePool,
    lease: &Lease,
    step: &NewStep,
    token: Uuid,
) -> Result<Seq, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let before: Option<i64> = sqlx::query_scalar("SELECT seq FROM steps WHERE token = $1")
        .bind(token.to_string())
        .fetch_optional(&mut *tx)
        .await?;
    if let Some(seq) = before {
        return Ok(Seq(seq));
    }
    let seq: Option<i64> = sqlx::query_scalar(
        "UPDATE tasks SET last_seq = last_seq + 1
         WHERE id = $1 AND epoch = $2 AND state = 'leased' RETURNING last_seq",
    )
    .bind(lease.task.to_string())
    .bind(lease.epoch.0)
    .fetch_optional(&mut *tx)
    .await?;
    let seq = seq.ok_or(Failure::Fenced(lease.task))?;
    sqlx::query(
        "INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, recorded_at, token)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(lease.task.to_string())
    .bind(seq)
    .bind(lease.epoch.0)
    .bind(step.kind.as_str())
    .bind(step.payload.to_string())
    .bind(signed(step.duration_ms))
    .bind(now)
    .bind(token.to_string())
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(Seq(seq))
}

pub(super) async fn record_usage(
    pool: &SqlitePool,
    lease: &Lease,
    model: &str,
    usage: &Usage,
) -> Result<(), Failure> {
    let Usage {
        model_calls,
        tool_calls,
        input_tokens,
        cached_tokens,
        output_tokens,
        cost_micros,
    } = *usage;
    let (mut tx, _) = begin(pool).await?;
    let done = sqlx::query(
        "UPDATE sessions SET model = $4, model_calls = $5, tool_calls = $6, input_tokens = $7,
             cached_tokens = $8, output_tokens = $9, cost_micros = $10
         WHERE id = $3 AND task = $1 AND epoch = $2 AND ended_at IS NULL
           AND EXISTS (SELECT 1 FROM tasks t
                       WHERE t.id = $1 AND t.epoch = $2 AND t.state = 'leased')",
    )
    .bind(lease.task.to_string())
    .bind(lease.epoch.0)
    .bind(lease.session.0)
    .bind(clean(model))
    .bind(signed32(model_calls))
    .bind(signed32(tool_calls))
    .bind(signed(input_tokens))
    .bind(signed(cached_tokens))
    .bind(signed(output_tokens))
    .bind(signed(cost_micros))
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    match done.rows_affected() {
        0 => Err(Failure::Fenced(lease.task)),
        _ => Ok(()),
    }
}

/// A second checkpoint of one step replaces the first: a worker that resumed at this step took it anew.
pub(super) async fn save_checkpoint(
    pool: &SqlitePool,
    lease: &Lease,
    checkpoint: &Checkpoint,
) -> Result<(), Failure> {
    let (mut tx, now) = begin(pool).await?;
    let done = sqlx::query(
        "INSERT INTO checkpoints (task, seq, epoch, commit_hash, bundle, recorded_at)
         SELECT id, $3, $2, $4, $5, $6 FROM tasks
         WHERE id = $1 AND epoch = $2 AND state = 'leased'
         ON CONFLICT (task, seq) DO UPDATE SET epoch = excluded.epoch,
             commit_hash = excluded.commit_hash, bundle = excluded.bundle,
             recorded_at = excluded.recorded_at",
    )
    .bind(lease.task.to_string())
    .bind(lease.epoch.0)
    .bind(checkpoint.seq.0)
    .bind(clean(&checkpoint.commit))
    .bind(&checkpoint.bundle)
    .bind(now)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    match done.rows_affected() {
        0 => Err(Failure::Fenced(lease.task)),
        _ => Ok(()),
    }
}

pub(super) async fn steps(pool: &SqlitePool, task: TaskId) -> Result<Vec<Step>, Failure> {
    let rows: Vec<StepRow> = sqlx::query_as(
        "SELECT seq, epoch, kind, payload, duration_ms,
             recorded_at
         FROM steps WHERE task = $1 ORDER BY seq",
    )
    .bind(task.to_string())
    .fetch_all(pool)
    .await?;
    all(rows)
}

pub(super) async fn checkpoints(
    pool: &SqlitePool,
    task: TaskId,
) -> Result<Vec<Checkpoint>, Failure> {
    let rows: Vec<CheckpointRow> = sqlx::query_as(
        "SELECT seq, commit_hash, bundle FROM checkpoints WHERE task = $1 ORDER BY seq",
    )
    .bind(task.to_string())
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(Checkpoint::from).collect())
}
