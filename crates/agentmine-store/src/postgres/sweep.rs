//! What puts right what a dead worker, a wiped broker or a lost message left behind.

use agentmine_domain::{Epoch, TaskId};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::failure::Failure;
use crate::row::{clean, millis, signed32};
use crate::{SandboxFate, SweepPolicy, SweepReport};

const SWEEP_LOCK: i64 = 0x6167_656e_746d_0002;

pub(super) async fn sweep(pool: &PgPool, policy: &SweepPolicy) -> Result<SweepReport, Failure> {
    let mut tx = pool.begin().await?;
    let ours: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(SWEEP_LOCK)
        .fetch_one(&mut *tx)
        .await?;
    if !ours {
        return Ok(SweepReport::default());
    }
    // Locked rows are being claimed or extended this moment: not ours to judge.
    let expired: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM tasks WHERE state = 'leased' AND lease_until <= now()
         FOR NO KEY UPDATE SKIP LOCKED",
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut report = SweepReport::default();
    for (id, state) in settle(&mut tx, &expired, policy.max_attempts).await? {
        match state.as_str() {
            "queued" => report.requeued.push(TaskId(id)),
            "failed" => report.failed.push(TaskId(id)),
            // Stopped or paused, as somebody had asked of the dead worker.
            _ => {}
        }
    }
    let requeued: Vec<Uuid> = report.requeued.iter().map(|id| id.0).collect();
    sqlx::query("INSERT INTO outbox (task, due_at) SELECT unnest($1::uuid[]), now()")
        .bind(&requeued)
        .execute(&mut *tx)
        .await?;
    report.rewoken = sqlx::query(
        "INSERT INTO outbox (task, due_at)
         SELECT id, now() FROM tasks t
         WHERE state = 'queued' AND updated_at <= now() - $1::bigint * interval '1 millisecond'
           AND NOT EXISTS (
               SELECT 1 FROM outbox o WHERE o.task = t.id
                 AND (o.sent_at IS NULL
                      OR o.sent_at > now() - $1::bigint * interval '1 millisecond'))",
    )
    .bind(millis(policy.wakeup_after))
    .execute(&mut *tx)
    .await?
    .rows_affected();
    // Sent entries are only looked at to tell whether a wake-up is recent.
    sqlx::query(
        "DELETE FROM outbox WHERE sent_at < now() - interval '1 day'
           AND sent_at < now() - $1::bigint * interval '1 millisecond'",
    )
    .bind(millis(policy.wakeup_after))
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    metrics::counter!("agentmine_leases_expired_total").increment(expired.len() as u64);
    metrics::counter!("agentmine_tasks_rewoken_total").increment(report.rewoken);
    Ok(report)
}

/// Ends the sessions of workers that are gone.
pub(super) async fn expire_sessions(tx: &mut PgConnection, tasks: &[Uuid]) -> Result<(), Failure> {
    sqlx::query(
        "UPDATE sessions SET ended_at = now(), ending = 'expired', reason = 'the lease ran out'
         WHERE task = ANY($1) AND ended_at IS NULL",
    )
    .bind(tasks)
    .execute(tx)
    .await?;
    Ok(())
}

/// A row that a claim could not take because its attempts are used up, or because somebody asked a dead
/// worker to stop or pause it, gets the state that follows.
pub(super) async fn settle_one(
    tx: &mut PgConnection,
    task: TaskId,
    max_attempts: u32,
) -> Result<(), Failure> {
    let found: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM tasks
         WHERE id = $1
           AND ((state = 'queued' AND attempt >= $2)
                OR (state = 'leased' AND lease_until <= clock_timestamp()
                    AND (request IS NOT NULL OR attempt >= $2)))
         FOR NO KEY UPDATE",
    )
    .bind(task.0)
    .bind(signed32(max_attempts))
    .fetch_all(&mut *tx)
    .await?;
    settle(tx, &found, max_attempts).await?;
    Ok(())
}

/// Gives each of these locked rows, which no worker holds, the state that follows: the one
/// requested, failed when it ran out of attempts, else queued.
async fn settle(
    tx: &mut PgConnection,
    tasks: &[Uuid],
    max_attempts: u32,
) -> Result<Vec<(Uuid, String)>, Failure> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    expire_sessions(tx, tasks).await?;
    let settled = sqlx::query_as(
        "UPDATE tasks t SET
             state = CASE WHEN request = 'stop' THEN 'stopped' WHEN request = 'pause' THEN 'paused'
                          WHEN attempt >= $2 THEN 'failed' ELSE 'queued' END,
             reason = CASE WHEN request IS NOT NULL THEN request_reason
                           WHEN attempt >= $2 THEN 'gave up after ' || attempt || ' attempts'
                               || COALESCE('; the last one: ' || (
                                   SELECT s.reason FROM sessions s WHERE s.task = t.id
                                   ORDER BY s.id DESC LIMIT 1), '') END,
             phase = NULL, lease_until = NULL, nonce = NULL, request = NULL, request_reason = NULL,
             updated_at = now()
         WHERE id = ANY($1) RETURNING id, state",
    )
    .bind(tasks)
    .bind(signed32(max_attempts))
    .fetch_all(tx)
    .await?;
    Ok(settled)
}

pub(super) async fn sandbox_fate(
    pool: &PgPool,
    task: TaskId,
    epoch: Epoch,
) -> Result<SandboxFate, Failure> {
    let alive: Option<bool> = sqlx::query_scalar(
        "SELECT state = 'leased' AND epoch = $2 AND COALESCE(lease_until > now(), false)
         FROM tasks WHERE id = $1",
    )
    .bind(task.0)
    .bind(epoch.0)
    .fetch_optional(pool)
    .await?;
    Ok(match alive {
        None => SandboxFate::Unknown,
        Some(true) => SandboxFate::Alive,
        Some(false) => SandboxFate::Dead,
    })
}

pub(super) async fn fail_queued(
    pool: &PgPool,
    task: TaskId,
    reason: &str,
) -> Result<bool, Failure> {
    let done = sqlx::query(
        "UPDATE tasks SET state = 'failed', reason = $2, updated_at = now()
         WHERE id = $1 AND state = 'queued'",
    )
    .bind(task.0)
    .bind(clean(reason))
    .execute(pool)
    .await?;
    Ok(done.rows_affected() > 0)
}
