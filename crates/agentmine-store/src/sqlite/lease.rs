//! Claiming, holding and ending a lease.

use std::time::Duration;

use agentmine_domain::{Lease, Phase, SessionId, Task, TaskId, WorkerId};
use sqlx::{SqliteConnection, SqlitePool};
use uuid::Uuid;

use super::{begin, people, sweep, task_columns};
use crate::closing::{Closing, RequestRow};
use crate::failure::Failure;
use crate::row::{TaskRow, clean, millis, signed32, task_id};
use crate::{Claim, LeaseEnd, LeaseRequest};

pub(super) async fn claim(
    pool: &SqlitePool,
    task: TaskId,
    worker: &WorkerId,
    nonce: Uuid,
    lease: Duration,
    max_attempts: u32,
) -> Result<Option<Claim>, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let taken: Option<TaskRow> = sqlx::query_as(concat!(
        "UPDATE tasks SET state = 'leased', phase = 'preparing', epoch = epoch + 1,
             attempt = attempt + 1, owner = $2, nonce = $3, reason = NULL, updated_at = $6,
             lease_until = $6 + $4
         WHERE id = $1 AND request IS NULL AND attempt < $5
           AND (state = 'queued'
                OR (state = 'leased' AND lease_until <= $6 AND nonce <> $3))
         RETURNING ",
        task_columns!()
    ))
    .bind(task.to_string())
    .bind(clean(&worker.0))
    .bind(nonce.to_string())
    .bind(millis(lease))
    .bind(signed32(max_attempts))
    .bind(now)
    .fetch_optional(&mut *tx)
    .await?;
    let claim = match taken {
        Some(row) => Some(begin_session(&mut tx, now, row.try_into()?, worker).await?),
        None => match own_claim(&mut tx, task, nonce).await? {
            Some(own) => Some(own),
            None => {
                sweep::settle_one(&mut tx, now, task, max_attempts).await?;
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
    tx: &mut SqliteConnection,
    now: i64,
    task: Task,
    worker: &WorkerId,
) -> Result<Claim, Failure> {
    sweep::expire_sessions(tx, now, task.id).await?;
    let session: i64 = sqlx::query_scalar(
        "INSERT INTO sessions (task, epoch, worker, started_at) VALUES ($1, $2, $3, $4) RETURNING id",
    )
    .bind(task.id.to_string())
    .bind(task.epoch.0)
    .bind(clean(&worker.0))
    .bind(now)
    .fetch_one(tx)
    .await?;
    Ok(claim_of(task, session, worker.clone()))
}

async fn own_claim(
    tx: &mut SqliteConnection,
    task: TaskId,
    nonce: Uuid,
) -> Result<Option<Claim>, Failure> {
    let row: Option<TaskRow> = sqlx::query_as(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE id = $1 AND nonce = $2 AND state = 'leased'"
    ))
    .bind(task.to_string())
    .bind(nonce.to_string())
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let task = Task::try_from(row)?;
    let (session, worker): (i64, String) =
        sqlx::query_as("SELECT id, worker FROM sessions WHERE task = $1 AND epoch = $2")
            .bind(task.id.to_string())
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
    pool: &SqlitePool,
    older_than: Duration,
    limit: u32,
) -> Result<Vec<TaskId>, Failure> {
    let now = super::now(&mut *pool.acquire().await?).await?;
    let ids: Vec<String> = sqlx::query_scalar(
        "SELECT id FROM tasks t
         WHERE (state = 'queued' OR (state = 'leased' AND lease_until <= $3))
           AND updated_at <= $1
           AND NOT EXISTS (SELECT 1 FROM outbox o
                           WHERE o.task = t.id AND o.sent_at IS NULL AND o.due_at > $3)
         ORDER BY priority DESC, created_at, number LIMIT $2",
    )
    .bind(now - millis(older_than))
    .bind(i64::from(limit))
    .bind(now)
    .fetch_all(pool)
    .await?;
    ids.iter().map(|id| task_id(id)).collect()
}

/// A lease that ran out and was not taken may still be extended: nobody else has acted on it.
pub(super) async fn heartbeat(
    pool: &SqlitePool,
    lease: &Lease,
    extend: Duration,
) -> Result<LeaseRequest, Failure> {
    let (mut tx, now) = begin(pool).await?;
    let request: Option<Option<String>> = sqlx::query_scalar(
        "UPDATE tasks SET lease_until = $3
         WHERE id = $1 AND epoch = $2 AND state = 'leased' RETURNING request",
    )
    .bind(lease.task.to_string())
    .bind(lease.epoch.0)
    .bind(now + millis(extend))
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    let request = request.ok_or(Failure::Fenced(lease.task))?;
    Ok(match request.as_deref() {
        None => LeaseRequest::Continue,
        Some("stop") => LeaseRequest::Stop,
        Some(_) => LeaseRequest::Pause,
    })
}

/// Stricter than the fence of a write: the lease must not have run out either, since a push cannot be
/// taken back when another worker claims the row in the next instant.
pub(super) async fn check(pool: &SqlitePool, lease: &Lease) -> Result<(), Failure> {
    let now = super::now(&mut *pool.acquire().await?).await?;
    let held: Option<i32> = sqlx::query_scalar(
        "SELECT 1 FROM tasks
         WHERE id = $1 AND epoch = $2 AND state = 'leased' AND lease_until > $3",
    )
    .bind(lease.task.to_string())
    .bind(lease.epoch.0)
    .bind(now)
    .fetch_optional(pool)
    .await?;
    held.map(|_| ()).ok_or(Failure::Fenced(lease.task))
}

pub(super) async fn set_phase(
    pool: &SqlitePool,
    lease: &Lease,
    phase: Phase,
) -> Result<(), Failure> {
    let (mut tx, now) = begin(pool).await?;
    let done = sqlx::query(
        "UPDATE tasks SET phase = $3, updated_at = $4
         WHERE id = $1 AND epoch = $2 AND state = 'leased'",
    )
    .bind(lease.task.to_string())
    .bind(lease.epoch.0)
    .bind(phase.as_str())
    .bind(now)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    match done.rows_affected() {
        0 => Err(Failure::Fenced(lease.task)),
        _ => Ok(()),
    }
}

pub(super) async fn close(
    pool: &SqlitePool,
    lease: &Lease,
    close: &LeaseEnd,
) -> Result<(), Failure> {
    let (mut tx, now) = begin(pool).await?;
    let requests: Option<RequestRow> = sqlx::query_as(
        "SELECT request, request_reason FROM tasks
         WHERE id = $1 AND epoch = $2 AND state = 'leased'",
    )
    .bind(lease.task.to_string())
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
             attempt = max(attempt - $5, 0), updated_at = $6
         WHERE id = $1",
    )
    .bind(lease.task.to_string())
    .bind(closing.state)
    .bind(closing.task_reason.map(clean))
    .bind(closing.pull_request_url.map(clean))
    .bind(closing.attempts_back)
    .bind(now)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "UPDATE sessions SET ended_at = $4, ending = $2, reason = $3
         WHERE id = $1 AND ended_at IS NULL",
    )
    .bind(lease.session.0)
    .bind(closing.ending.as_str())
    .bind(closing.session_reason.map(clean))
    .bind(now)
    .execute(&mut *tx)
    .await?;
    if ["done", "failed", "stopped"].contains(&closing.state) {
        // Nobody goes on from here.
        sqlx::query("DELETE FROM checkpoints WHERE task = $1")
            .bind(lease.task.to_string())
            .execute(&mut *tx)
            .await?;
    }
    if let Some(delay) = closing.wake_after {
        people::wake(&mut tx, lease.task, now + millis(delay)).await?;
    }
    tx.commit().await?;
    metrics::counter!("agentmine_sessions_ended_total", "end" => closing.ending.as_str())
        .increment(1);
    Ok(())
}

/// The same close again, after a commit whose outcome was unknown, is no fault.
async fn repeated_close(
    tx: &mut SqliteConnection,
    lease: &Lease,
    close: &LeaseEnd,
) -> Result<(), Failure> {
    let closing = Closing::of(close, None);
    let same: Option<i32> = sqlx::query_scalar(
        "SELECT 1 FROM sessions WHERE id = $1 AND task = $2 AND epoch = $3 AND ending = $4
             AND reason IS $5",
    )
    .bind(lease.session.0)
    .bind(lease.task.to_string())
    .bind(lease.epoch.0)
    .bind(closing.ending.as_str())
    .bind(closing.session_reason.map(clean))
    .fetch_optional(tx)
    .await?;
    same.map(|_| ()).ok_or(Failure::Fenced(lease.task))
}
