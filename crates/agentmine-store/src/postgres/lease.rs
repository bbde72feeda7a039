//! Claiming, holding and ending a lease.

use std::time::Duration;

use agentmine_domain::{Lease, Phase, SessionId, Task, TaskId, WorkerId};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{sweep, task_columns};
use crate::closing::{Closing, RequestRow};
use crate::failure::Failure;
use crate::row::{TaskRow, clean, millis, signed32};
use crate::{Claim, LeaseEnd, LeaseRequest};

pub(super) async fn claim(
    pool: &PgPool,
    task: TaskId,
    worker: &WorkerId,
    nonce: Uuid,
    lease: Duration,
    max_attempts: u32,
) -> Result<Option<Claim>, Failure> {
    let mut tx = pool.begin().await?;
    // clock_timestamp, not now(): the statement may have waited for the row longer than the lease has.
    let taken: Option<TaskRow> = sqlx::query_as(concat!(
        "UPDATE tasks SET state = 'leased', phase = 'preparing', epoch = epoch + 1,
             attempt = attempt + 1, owner = $2, nonce = $3, reason = NULL, updated_at = now(),
             lease_until = clock_timestamp() + $4::bigint * interval '1 millisecond'
         WHERE id = $1 AND request IS NULL AND attempt < $5
           AND (state = 'queued'
                OR (state = 'leased' AND lease_until <= clock_timestamp() AND nonce <> $3))
         RETURNING ",
        task_columns!()
    ))
    .bind(task.0)
    .bind(clean(&worker.0))
    .bind(nonce)
    .bind(millis(lease))
    .bind(signed32(max_attempts))
    .fetch_optional(&mut *tx)
    .await?;
    let claim = match taken {
        Some(row) => Some(begin_session(&mut tx, row.try_into()?, worker).await?),
        None => match own_claim(&mut tx, task, nonce).await? {
            Some(own) => Some(own),
            None => {
                sweep::settle_one(&mut tx, task, max_attempts).await?;
                None
            }
        },
    };
    tx.commit().await?;
    let outcome = if claim.is_some() { "taken" } else { "none" };
    metrics::counter!("agentmine_claims_total", "outcome" => outcome).increment(1);
    Ok(claim)
}

async fn begin_session(
    tx: &mut PgConnection,
    task: Task,
    worker: &WorkerId,
) -> Result<Claim, Failure> {
    sweep::expire_sessions(tx, &[task.id.0]).await?;
    let session: i64 = sqlx::query_scalar(
        "INSERT INTO sessions (task, epoch, worker) VALUES ($1, $2, $3) RETURNING id",
    )
    .bind(task.id.0)
    .bind(task.epoch.0)
    .bind(clean(&worker.0))
    .fetch_one(tx)
    .await?;
    Ok(claim_of(task, session, worker.clone()))
}

async fn own_claim(
    tx: &mut PgConnection,
    task: TaskId,
    nonce: Uuid,
) -> Result<Option<Claim>, Failure> {
    let row: Option<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE id = $1 AND nonce = $2 AND state = 'leased'"
    ))
    .bind(task.0)
    .bind(nonce)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let task = Task::try_from(row)?;
    let (session, worker): (i64, String) =
        sqlx::query_as("SELECT id, worker FROM sessions WHERE task = $1 AND epoch = $2")
            .bind(task.id.0)
            .bind(task.epoch.0)
            .fetch_one(tx)
            .await?;
    Ok(Some(claim_of(task, session, WorkerId(worker))))
}

fn claim_of(task: Task, session: i64, worker: WorkerId) -> Claim {
    let lease = Lease {
        task: task.id,
        session: SessionId(session),
        epoch: task.epoch,
        worker,
    };
    Claim { task, lease }
}

/// Leaves out what a release has put off: a wake-up is in the outbox and not due.
pub(super) async fn claimable(
    pool: &PgPool,
    older_than: Duration,
    limit: u32,
) -> Result<Vec<TaskId>, Failure> {
    let ids: Vec<Uuid> = sqlx::query_scalar(
        "SELECT id FROM tasks t
         WHERE (state = 'queued' OR (state = 'leased' AND lease_until <= now()))
           AND updated_at <= now() - $1::bigint * interval '1 millisecond'
           AND NOT EXISTS (SELECT 1 FROM outbox o
                           WHERE o.task = t.id AND o.sent_at IS NULL AND o.due_at > now())
         ORDER BY priority DESC, created_at, number LIMIT $2",
    )
    .bind(millis(older_than))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    Ok(ids.into_iter().map(TaskId).collect())
}

/// A lease that ran out and was not taken may still be extended: nobody else has acted on it.
pub(super) async fn heartbeat(
    pool: &PgPool,
    lease: &Lease,
    extend: Duration,
) -> Result<LeaseRequest, Failure> {
    let request: Option<Option<String>> = sqlx::query_scalar(
        "UPDATE tasks
         SET lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond'
         WHERE id = $1 AND epoch = $2 AND state = 'leased' RETURNING request",
    )
    .bind(lease.task.0)
    .bind(lease.epoch.0)
    .bind(millis(extend))
    .fetch_optional(pool)
    .await?;
    let request = request.ok_or(Failure::Fenced(lease.task))?;
    Ok(match request.as_deref() {
        None => LeaseRequest::Continue,
        Some("stop") => LeaseRequest::Stop,
        Some(_) => LeaseRequest::Pause,
    })
}

/// Stricter than the fence of a write: the lease must not have run out either, since a push cannot be
/// taken back when another worker claims the row in the next instant.
pub(super) async fn check(pool: &PgPool, lease: &Lease) -> Result<(), Failure> {
    let held: Option<i32> = sqlx::query_scalar(
        "SELECT 1 FROM tasks
         WHERE id = $1 AND epoch = $2 AND state = 'leased' AND lease_until > now()",
    )
    .bind(lease.task.0)
    .bind(lease.epoch.0)
    .fetch_optional(pool)
    .await?;
    held.map(|_| ()).ok_or(Failure::Fenced(lease.task))
}

pub(super) async fn set_phase(pool: &PgPool, lease: &Lease, phase: Phase) -> Result<(), Failure> {
    let done = sqlx::query(
        "UPDATE tasks SET phase = $3, updated_at = now()
         WHERE id = $1 AND epoch = $2 AND state = 'leased'",
    )
    .bind(lease.task.0)
    .bind(lease.epoch.0)
    .bind(phase.as_str())
    .execute(pool)
    .await?;
    match done.rows_affected() {
        0 => Err(Failure::Fenced(lease.task)),
        _ => Ok(()),
    }
}

pub(super) async fn close(pool: &PgPool, lease: &Lease, close: &LeaseEnd) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    let requests: Option<RequestRow> = sqlx::query_as(
        "SELECT request, request_reason FROM tasks
         WHERE id = $1 AND epoch = $2 AND state = 'leased' FOR NO KEY UPDATE",
    )
    .bind(lease.task.0)
    .bind(lease.epoch.0)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(requests) = requests else {
        return repeated_close(&mut tx, lease, close).await;
    };
    let closing = Closing::of(close, Some(&requests));
    sqlx::query(
        "UPDATE tasks SET state = $2, phase = NULL, lease_until = NULL, nonce = NULL, request = NULL,
             request_reason = NULL, reason = $3, pull_request_url = COALESCE($4, pull_request_url),
             attempt = GREATEST(attempt - $5, 0), updated_at = now()
         WHERE id = $1",
    )
    .bind(lease.task.0)
    .bind(closing.state)
    .bind(closing.task_reason.map(clean))
    .bind(closing.pull_request_url.map(clean))
    .bind(closing.attempts_back)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "UPDATE sessions SET ended_at = now(), ending = $2, reason = $3
         WHERE id = $1 AND ended_at IS NULL",
    )
    .bind(lease.session.0)
    .bind(closing.ending.as_str())
    .bind(closing.session_reason.map(clean))
    .execute(&mut *tx)
    .await?;
    if ["done", "failed", "stopped"].contains(&closing.state) {
        // Nobody goes on from here.
        sqlx::query("DELETE FROM checkpoints WHERE task = $1")
            .bind(lease.task.0)
            .execute(&mut *tx)
            .await?;
    }
    if let Some(delay) = closing.wake_after {
        sqlx::query(
            "INSERT INTO outbox (task, due_at)
             VALUES ($1, now() + $2::bigint * interval '1 millisecond')",
        )
        .bind(lease.task.0)
        .bind(millis(delay))
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    metrics::counter!("agentmine_sessions_ended_total", "end" => closing.ending.as_str())
        .increment(1);
    Ok(())
}

/// The same close again, after a commit whose outcome was unknown, is no fault.
async fn repeated_close(
    tx: &mut PgConnection,
    lease: &Lease,
    close: &LeaseEnd,
) -> Result<(), Failure> {
    let closing = Closing::of(close, None);
    let same: Option<i32> = sqlx::query_scalar(
        "SELECT 1 FROM sessions WHERE id = $1 AND task = $2 AND epoch = $3 AND ending = $4
             AND reason IS NOT DISTINCT FROM $5",
    )
    .bind(lease.session.0)
    .bind(lease.task.0)
    .bind(lease.epoch.0)
    .bind(closing.ending.as_str())
    .bind(closing.session_reason.map(clean))
    .fetch_optional(tx)
    .await?;
    same.map(|_| ()).ok_or(Failure::Fenced(lease.task))
}
