//! Steps, usage and checkpoints.
//!
//! A payload is kept as JSON text, not jsonb: jsonb refuses `\u0000`, and a transcript is to come back
//! as it went in.

use agentmine_domain::{Lease, Seq, Step, TaskId, Usage};
use sqlx::PgPool;
use uuid::Uuid;

use crate::failure::Failure;
use crate::row::{CheckpointRow, StepRow, all, clean, signed, signed32};
use crate::{Checkpoint, NewStep};

/// One statement: the row's counter gives the number under the row's lock, so the journal has no gaps,
/// and a row that is not ours gives none.
pub(super) async fn append(
    pool: &PgPool,
    lease: &Lease,
    step: &NewStep,
    token: Uuid,
) -> Result<Seq, Failure> {
    let seq: Option<i64> = sqlx::query_scalar(
        "WITH held AS (
             UPDATE tasks SET last_seq = last_seq + 1
             WHERE id = $1 AND epoch = $2 AND state = 'leased'
               AND NOT EXISTS (SELECT 1 FROM steps WHERE token = $3)
             RETURNING id, last_seq)
         INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, token)
         SELECT id, last_seq, $2, $4, $5, $6, $3 FROM held RETURNING seq",
    )
    .bind(lease.task.0)
    .bind(lease.epoch.0)
    .bind(token)
    .bind(step.kind.as_str())
    .bind(step.payload.to_string())
    .bind(signed(step.duration_ms))
    .fetch_optional(pool)
    .await?;
    if let Some(seq) = seq {
        return Ok(Seq(seq));
    }
    let before: Option<i64> = sqlx::query_scalar("SELECT seq FROM steps WHERE token = $1")
        .bind(token)
        .fetch_optional(pool)
        .await?;
    before.map(Seq).ok_or(Failure::Fenced(lease.task))
}

pub(super) async fn record_usage(
    pool: &PgPool,
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
    // `ended_at IS NULL` is the fence against a claim that commits while this waits: it ends the row.
    let done = sqlx::query(
        "UPDATE sessions s SET model = $4, model_calls = $5, tool_calls = $6, input_tokens = $7,
             cached_tokens = $8, output_tokens = $9, cost_micros = $10
         FROM tasks t
         WHERE t.id = $1 AND t.epoch = $2 AND t.state = 'leased'
           AND s.id = $3 AND s.task = t.id AND s.epoch = t.epoch AND s.ended_at IS NULL",
    )
    .bind(lease.task.0)
    .bind(lease.epoch.0)
    .bind(lease.session.0)
    .bind(clean(model))
    .bind(signed32(model_calls))
    .bind(signed32(tool_calls))
    .bind(signed(input_tokens))
    .bind(signed(cached_tokens))
    .bind(signed(output_tokens))
    .bind(signed(cost_micros))
    .execute(pool)
    .await?;
    match done.rows_affected() {
        0 => Err(Failure::Fenced(lease.task)),
        _ => Ok(()),
    }
}

/// A second checkpoint of one step replaces the first: a worker that resumed at this step took it anew.
pub(super) async fn save_checkpoint(
    pool: &PgPool,
    lease: &Lease,
    checkpoint: &Checkpoint,
) -> Result<(), Failure> {
    let done = sqlx::query(
        "WITH held AS (
             SELECT id FROM tasks WHERE id = $1 AND epoch = $2 AND state = 'leased' FOR SHARE)
         INSERT INTO checkpoints (task, seq, epoch, commit_hash, bundle)
         SELECT id, $3, $2, $4, $5 FROM held
         ON CONFLICT (task, seq) DO UPDATE SET epoch = excluded.epoch,
             commit_hash = excluded.commit_hash, bundle = excluded.bundle,
             recorded_at = excluded.recorded_at",
    )
    .bind(lease.task.0)
    .bind(lease.epoch.0)
    .bind(checkpoint.seq.0)
    .bind(clean(&checkpoint.commit))
    .bind(&checkpoint.bundle)
    .execute(pool)
    .await?;
    match done.rows_affected() {
        0 => Err(Failure::Fenced(lease.task)),
        _ => Ok(()),
    }
}

pub(super) async fn steps(pool: &PgPool, task: TaskId) -> Result<Vec<Step>, Failure> {
    let rows: Vec<StepRow> = sqlx::query_as(
        "SELECT seq, epoch, kind, payload, duration_ms,
             (extract(epoch FROM recorded_at) * 1000)::bigint AS recorded_at
         FROM steps WHERE task = $1 ORDER BY seq",
    )
    .bind(task.0)
    .fetch_all(pool)
    .await?;
    all(rows)
}

pub(super) async fn checkpoints(pool: &PgPool, task: TaskId) -> Result<Vec<Checkpoint>, Failure> {
    let rows: Vec<CheckpointRow> = sqlx::query_as(
        "SELECT seq, commit_hash, bundle FROM checkpoints WHERE task = $1 ORDER BY seq",
    )
    .bind(task.0)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(Checkpoint::from).collect())
}
