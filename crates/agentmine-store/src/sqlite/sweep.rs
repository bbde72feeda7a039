//! What puts right what a dead worker, a wiped queue or a lost message left behind.
//!
//! The write lock is the sweep's lock: two sweeps come one after another, and the second finds nothing
//! left to do.

use agentmine_domain::{Epoch, TaskId};
use sqlx::{SqliteConnection, SqlitePool};

use super::{begin, people};
use crate::failure::Failure;
use crate::row::{clean, millis, signed32, task_id};
use crate::{SandboxFate, SweepPolicy, SweepReport};

pub(super) async fn sweep(pool: &SqlitePool, policy: &SweepPolicy) -> Result<SweepReport, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let expired: Vec<String> = sqlx::query_scalar(
        "SELECT id FROM tasks WHERE state = 'leased' AND lease_until <= $1 ORDER BY number",
    )
    .bind(now)
    .fetch_all(&mut *tx)
    .await?;
    let mut report = SweepReport::default();
    for id in &expired {
        let id = task_id(id)?;
        match settle(&mut tx, now, id, policy.max_attempts)
            .await?
            .as_str()
        {
            "queued" => {
                people::wake(&mut tx, id, now).await?;
                report.requeued.push(id);
            }
            "failed" => report.failed.push(id),
            // Stopped or paused, as somebody had asked of the dead worker.
            _ => {}
        }
    }
    let recent = now - millis(policy.wakeup_after);
    report.rewoken = sqlx::query(
        "INSERT INTO outbox (task, due_at)
         SELECT id, $1 FROM tasks t
         WHERE state = 'queued' AND updated_at <= $2
           AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.task = t.id
                           AND (o.sent_at IS NULL OR o.sent_at > $2))",
    )
    .bind(now)
    .bind(recent)
    .execute(&mut *tx)
    .await?
    .rows_affected();
    // Sent entries are only looked at to tell whether a wake-up is recent.
    const DAY: i64 = 24 * 3600 * 1000;
    sqlx::query("DELETE FROM outbox WHERE sent_at < $1")
        .bind(recent.min(now - DAY))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    metrics::counter!("agentmine_leases_expired_total").increment(expired.len() as u64);
    metrics::counter!("agentmine_tasks_rewoken_total").increment(report.rewoken);
    Ok(report)
}

/// Ends the sessions of workers that are gone.
pub(super) async fn expire_sessions(
    tx: &mut SqliteConnection,
    now: i64,
    task: TaskId,
) -> Result<(), Failure> {
    sqlx::query(
        "UPDATE sessions SET ended_at = $2, ending = 'expired', reason = 'the lease ran out'
         WHERE task = $1 AND ended_at IS NULL",
    )
    .bind(task.to_string())
    .bind(now)
    .execute(tx)
    .await?;
    Ok(())
}

/// A row that a claim could not take because its attempts are used up, or because somebody asked a dead
/// worker to stop or pause it, gets the state that follows.
pub(super) async fn settle_one(
    tx: &mut SqliteConnection,
    now: i64,
    task: TaskId,
    max_attempts: u32,
) -> Result<(), Failure> {
    let found: Option<i32> = sqlx::query_scalar(
        "SELECT 1 FROM tasks
         WHERE id = $1
           AND ((state = 'queued' AND attempt >= $2)
                OR (state = 'leased' AND lease_until <= $3
                    AND (request IS NOT NULL OR attempt >= $2)))",
    )
    .bind(task.to_string())
    .bind(signed32(max_attempts))
    .bind(now)
    .fetch_optional(&mut *tx)
    .await?;
    if found.is_some() {
        settle(tx, now, task, max_attempts).await?;
    }
    Ok(())
}

/// Gives a row that no worker holds the state that follows: the one requested, failed when it ran
/// out of attempts, else queued.
async fn settle(
    tx: &mut SqliteConnection,
    now: i64,
    task: TaskId,
    max_attempts: u32,
) -> Result<String, Failure> {
    expire_sessions(tx, now, task).await?;
    let state = sqlx::query_scalar(
        "UPDATE tasks SET
             state = CASE WHEN request = 'stop' THEN 'stopped' WHEN request = 'pause' THEN 'paused'
                          WHEN attempt >= $2 THEN 'failed' ELSE 'queued' END,
             reason = CASE WHEN request IS NOT NULL THEN request_reason
                           WHEN attempt >= $2 THEN 'gave up after ' || attempt || ' attempts'
                               || COALESCE('; the last one: ' || (
                                   SELECT s.reason FROM sessions s WHERE s.task = tasks.id
                                   ORDER BY s.id DESC LIMIT 1), '') END,
             phase = NULL, lease_until = NULL, nonce = NULL, request = NULL, request_reason = NULL,
             updated_at = $3
         WHERE id = $1 RETURNING state",
    )
    .bind(task.to_string())
    .bind(signed32(max_attempts))
    .bind(now)
    .fetch_one(tx)
    .await?;
    Ok(state)
}

pub(super) async fn sandbox_fate(
    pool: &SqlitePool,
    task: TaskId,
    epoch: Epoch,
) -> Result<SandboxFate, Failure> {
    let now = super::now(&mut *pool.acquire().await?).await?;
    let alive: Option<bool> = sqlx::query_scalar(
        "SELECT state = 'leased' AND epoch = $2 AND COALESCE(lease_until > $3, false)
         FROM tasks WHERE id = $1",
    )
    .bind(task.to_string())
    .bind(epoch.0)
    .bind(now)
    .fetch_optional(pool)
    .await?;
    Ok(match alive {
        None => SandboxFate::Unknown,
        Some(true) => SandboxFate::Alive,
        Some(false) => SandboxFate::Dead,
    })
}

pub(super) async fn fail_queued(
    pool: &SqlitePool,
    task: TaskId,
    reason: &str,
) -> Result<bool, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let done = sqlx::query(
        "UPDATE tasks SET state = 'failed', reason = $2, updated_at = $3
         WHERE id = $1 AND state = 'queued'",
    )
    .bind(task.to_string())
    .bind(clean(reason))
    .bind(now)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(done.rows_affected() > 0)
}
