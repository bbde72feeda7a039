//! Claiming, holding and ending a lease.

use std::time::Duration;

use agentmine_domain::{
    Epoch, Lease, Phase, SessionId, Task, TaskId, TaskState, Urgency, WorkerId,
};
use agentmine_runtime::failpoint::Guard;
use async_trait::async_trait;
use uuid::Uuid;

use super::arg::args;
use super::db::{Db, Dialect};
use super::enqueue::wake;
use super::failure::Failure;
use super::lease_end::Ending;
use super::people::{conflict, wake_waiting};
use super::row::{RequestRow, TaskRow, WaitRow, lease_request};
use super::store::SqlStore;
use super::sweep::{expire_sessions, settle};
use crate::{Claim, LeaseEnd, LeaseRequest, LeaseStore, NamedBranch, StoreError};

#[async_trait]
impl<D: Dialect> LeaseStore for SqlStore<D> {
    async fn claim(
        &self,
        task: TaskId,
        worker: &WorkerId,
        nonce: Uuid,
        lease: Duration,
        max_attempts: u32,
    ) -> Result<Option<Claim>, StoreError> {
        self.run("claim", || async {
            self.claim_by(CLAIM, task, worker, (nonce, lease, max_attempts))
                .await
        })
        .await
    }

    async fn claim_of_person(
        &self,
        task: TaskId,
        worker: &WorkerId,
        nonce: Uuid,
        lease: Duration,
    ) -> Result<Option<Claim>, StoreError> {
        // Each attempt is requested by a person, so their number is not limited.
        const NO_LIMIT: u32 = i32::MAX.unsigned_abs();
        self.run("claim_of_person", || async {
            self.claim_by(CLAIM_OF_PERSON, task, worker, (nonce, lease, NO_LIMIT))
                .await
        })
        .await
    }

    async fn claimable(
        &self,
        older_than: Duration,
        skip: u32,
        limit: u32,
    ) -> Result<Vec<Task>, StoreError> {
        // A wake-up that is in the outbox and not due yet belongs to a release that waits. The states are named twice
        // for SQLite, which finds the index of waiting tasks by them.
        self.select::<TaskRow, _>(
            "claimable",
            "SELECT {columns} FROM tasks
             WHERE state IN ('queued', 'leased')
               AND ((state = 'queued' AND (takeover OR updated_at <= {now} - $1{ms}))
                    OR (state = 'leased' AND lease_until <= {now}))
               AND {workable}
               AND NOT EXISTS (SELECT 1 FROM outbox o
                               WHERE o.task = tasks.id AND o.sent_at IS NULL AND o.due_at > {now})
             ORDER BY (takeover OR state = 'leased') DESC, priority DESC, created_at, number
             LIMIT $2 OFFSET $3",
            args![older_than, limit, skip],
        )
        .await
    }

    /// A lease that ran out and was not taken may still be extended: nobody else has acted on it.
    async fn heartbeat(&self, lease: &Lease, extend: Duration) -> Result<LeaseRequest, StoreError> {
        self.run("heartbeat", || async {
            let mut db = self.connection().await?;
            let request: Option<Option<String>> = db
                .scalar(
                    "UPDATE tasks SET lease_since = {clock}, lease_until = {clock} + $4{ms}
                     WHERE {held} RETURNING request",
                    args![lease.task, lease.epoch, lease.nonce, extend],
                )
                .await?;
            let request = request.ok_or(Failure::Fenced(lease.task))?;
            lease_request(request.as_deref())
        })
        .await
    }

    async fn check(&self, lease: &Lease) -> Result<(), StoreError> {
        self.run("check", || async {
            let mut db = self.connection().await?;
            let statement = match Guard::Fence.is_off() {
                false => "SELECT 1 FROM tasks WHERE {held} AND lease_until > {now}",
                true => "SELECT 1 FROM tasks WHERE {held}",
            };
            let held: Option<i32> = db
                .scalar(statement, args![lease.task, lease.epoch, lease.nonce])
                .await?;
            held.map(|_| ()).ok_or(Failure::Fenced(lease.task))
        })
        .await
    }

    async fn name_branch(&self, lease: &Lease, name: &str) -> Result<NamedBranch, StoreError> {
        self.run("name_branch", || async {
            let recorded: Result<Option<Option<String>>, Failure> = self
                .connection()
                .await?
                .scalar(
                    "UPDATE tasks SET branch = COALESCE(branch, $4), updated_at = {now}
                     WHERE {held} RETURNING branch",
                    args![lease.task, lease.epoch, lease.nonce, name],
                )
                .await;
            match recorded {
                Ok(Some(Some(name))) => Ok(NamedBranch::Recorded(name)),
                Ok(Some(None)) => Err(Failure::Fault("a branch was recorded and is not".into())),
                Ok(None) => Err(Failure::Fenced(lease.task)),
                Err(failure) if failure.is_duplicate() => Ok(NamedBranch::Taken),
                Err(failure) => Err(failure),
            }
        })
        .await
    }

    async fn set_phase(&self, lease: &Lease, phase: Phase) -> Result<(), StoreError> {
        self.execute_held(
            lease,
            "set_phase",
            "UPDATE tasks SET phase = $4, updated_at = {now} WHERE {held}",
            args![lease.task, lease.epoch, lease.nonce, phase.as_str()],
        )
        .await
    }

    async fn end_lease(&self, lease: &Lease, end: &LeaseEnd) -> Result<(), StoreError> {
        self.run("end_lease", || async {
            let mut tx = self.transaction().await?;
            let left: Option<RequestRow> = tx
                .row(
                    "SELECT {columns} FROM tasks WHERE {held}{lock}",
                    args![lease.task, lease.epoch, lease.nonce],
                )
                .await?;
            let Some(left) = left else {
                return ended_alike(&mut tx, lease, end).await;
            };
            let request = lease_request(left.request.as_deref())?;
            let ending = Ending::of(end, request, left.request_reason.as_deref());
            write_ending(&mut tx, lease, &ending).await?;
            tx.commit().await?;
            metrics::counter!("agentmine_sessions_ended_total", "end" => ending.session.as_str())
                .increment(1);
            Ok(())
        })
        .await
    }
}

/// The row's change that takes a lease on it, if it may be taken.
macro_rules! claim {
    ($workable:literal) => {
        concat!(
            "UPDATE tasks SET state = 'leased', phase = 'preparing', epoch = epoch + 1,
                 attempt = attempt + 1, owner = $2, nonce = $3, reason = NULL,
                 takeover = false, updated_at = {now}, lease_since = {clock},
                 lease_until = {clock} + $4{ms}
             WHERE id = $1 AND request IS NULL AND attempt < $5 + {one more}
               AND ({state} = 'queued'
                    OR ({state} = 'leased' AND $6 > 0 AND lease_until <= {clock} AND nonce <> $3))
               AND ",
            $workable,
            " RETURNING {columns}"
        )
    };
}

/// The broker may have several wake-ups for a task that waited long. A leftover one does not end a delay.
const CLAIM: &str = claim!("{workable} AND NOT {delayed}");
const CLAIM_OF_PERSON: &str = claim!("{workable here}");

impl<D: Dialect> SqlStore<D> {
    async fn claim_by(
        &self,
        statement: &'static str,
        task: TaskId,
        worker: &WorkerId,
        (nonce, lease, max_attempts): (Uuid, Duration, u32),
    ) -> Result<Option<Claim>, Failure> {
        // A row that somebody keeps locked must not keep a slot from the other rows.
        let mut tx = self.brief_transaction().await?;
        let waited = waited(&mut tx, task).await?;
        // A machine that was suspended shows nothing else, and a claim may come before the next heartbeat and sweep.
        if let Some(row) = &waited {
            self.absence.clock(row.clock);
        }
        // 0: the holder of an expired lease may not have been able to extend it.
        let expired = i64::from(!self.absence.is_within(lease));
        // The clock, since the statement may have waited for the row longer than the lease lasts.
        let taken: Option<TaskRow> = tx
            .row(
                statement,
                args![task, &worker.0, nonce, lease, max_attempts, expired],
            )
            .await?;
        self.absence.written();
        let is_new = taken.is_some();
        let claim = match taken {
            Some(row) => {
                let task = row.try_into()?;
                if is_held_up(&mut tx, &task).await? {
                    // The row stays as it was. It is woken when the other task ends.
                    return Ok(None);
                }
                Some(begin_session(&mut tx, task, worker, nonce).await?)
            }
            None => match own_claim(&mut tx, task, worker, nonce).await? {
                Some(own) => Some(own),
                None => {
                    settle_unclaimable(&mut tx, task, max_attempts, expired).await?;
                    None
                }
            },
        };
        tx.commit().await?;
        let outcome = if claim.is_some() { "taken" } else { "none" };
        metrics::counter!("agentmine_claims_total", "outcome" => outcome).increment(1);
        if let Some(claim) = claim.as_ref().filter(|_| is_new) {
            metrics::counter!("agentmine_attempts_total", "attempt" => attempt_name(claim.task.attempt)).increment(1);
            measure_wait(&claim.task, waited);
        }
        Ok(claim)
    }
}

/// Whether a running task may change the same files. Two claims at once: the lock lets the second one see the first.
async fn is_held_up<D: Dialect>(tx: &mut Db<D>, task: &Task) -> Result<bool, Failure> {
    if task.card.write_scope.is_unknown() {
        return Ok(false);
    }
    D::lock_plans(tx).await?;
    Ok(conflict(tx, task).await?.is_some())
}

/// How long a row has waited for this claim: since it was recorded, admitted or resumed, unless another task may have held it
/// up, and since the last heartbeat if it lost its worker. Beside it: the database's clock.
async fn waited<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<Option<WaitRow>, Failure> {
    tx.row(
        "SELECT {millis(}{clock}{)millis} AS clock,
             CASE WHEN write_scope = ''
                          AND (SELECT count(*) FROM task_dependencies d WHERE d.task = tasks.id) = 0
                     THEN {millis(}{clock} - updated_at{)millis} END AS waited,
             CASE WHEN takeover OR state = 'leased' THEN {millis(}{clock} - lease_since{)millis} END AS unattended
         FROM tasks WHERE id = $1",
        args![task],
    )
    .await
}

/// How attempts are named in `agentmine_attempts_total`.
pub(crate) const ATTEMPTS: [&str; 4] = ["1", "2", "3", "later"];

fn attempt_name(attempt: u32) -> &'static str {
    match attempt {
        0 | 1 => ATTEMPTS[0],
        2 => ATTEMPTS[1],
        3 => ATTEMPTS[2],
        _ => ATTEMPTS[3],
    }
}

/// By the database's clock, as all times in the row.
fn measure_wait(task: &Task, wait: Option<WaitRow>) {
    let Some(WaitRow {
        clock: _,
        waited,
        unattended,
    }) = wait
    else {
        return;
    };
    let seconds = |millis: i64| {
        let millis = u64::try_from(millis).unwrap_or(0);
        Duration::from_millis(millis).as_secs_f64()
    };
    if task.epoch == Epoch(1)
        && let Some(millis) = waited
    {
        metrics::histogram!("agentmine_task_pickup_seconds").record(seconds(millis));
    }
    if let Some(millis) = unattended {
        metrics::histogram!("agentmine_task_recovery_seconds").record(seconds(millis));
    }
}

async fn begin_session<D: Dialect>(
    tx: &mut Db<D>,
    task: Task,
    worker: &WorkerId,
    nonce: Uuid,
) -> Result<Claim, Failure> {
    expire_sessions(tx, task.id).await?;
    let session = tx
        .scalar(
            "INSERT INTO sessions (task, epoch, worker, started_at)
             VALUES ($1, $2, $3, {now}) RETURNING id",
            args![task.id, task.epoch, &worker.0],
        )
        .await?;
    claim_of(task, session, worker, nonce)
}

/// The claim that an earlier attempt with this nonce made.
async fn own_claim<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
    worker: &WorkerId,
    nonce: Uuid,
) -> Result<Option<Claim>, Failure> {
    let row: Option<TaskRow> = tx
        .row(
            "SELECT {columns} FROM tasks WHERE id = $1 AND nonce = $2 AND {state} = 'leased'",
            args![task, nonce],
        )
        .await?;
    let Some(task) = row.map(Task::try_from).transpose()? else {
        return Ok(None);
    };
    let session = tx
        .scalar(
            "SELECT id FROM sessions WHERE task = $1 AND epoch = $2",
            args![task.id, task.epoch],
        )
        .await?;
    claim_of(task, session, worker, nonce).map(Some)
}

fn claim_of(
    task: Task,
    session: Option<i64>,
    worker: &WorkerId,
    nonce: Uuid,
) -> Result<Claim, Failure> {
    let session = session.ok_or_else(|| Failure::Fault("a leased task has no session".into()))?;
    let lease = Lease {
        task: task.id,
        session: SessionId(session),
        epoch: task.epoch,
        nonce,
        worker: worker.clone(),
    };
    Ok(Claim { task, lease })
}

/// A row that cannot be claimed because it ran out of attempts, or because a person asked a dead worker to
/// stop or pause it, gets the state that follows.
async fn settle_unclaimable<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
    max_attempts: u32,
    expired: i64,
) -> Result<(), Failure> {
    let found: Option<i32> = tx
        .scalar(
            "SELECT 1 FROM tasks
             WHERE id = $1
               AND (({state} = 'queued' AND attempt >= $2 + {one more})
                    OR ({state} = 'leased' AND $3 > 0 AND lease_until <= {clock}
                        AND (request IS NOT NULL OR attempt >= $2 + {one more}))){lock}",
            args![task, max_attempts, expired],
        )
        .await?;
    if found.is_some() {
        settle(tx, task, max_attempts).await?;
    }
    Ok(())
}

async fn write_ending<D: Dialect>(
    tx: &mut Db<D>,
    lease: &Lease,
    ending: &Ending<'_>,
) -> Result<(), Failure> {
    tx.execute(
        "UPDATE tasks SET state = $2, phase = NULL, lease_until = NULL, lease_since = NULL, nonce = NULL,
             request = NULL, request_reason = NULL, reason = $3,
             pull_request_url = COALESCE($4, pull_request_url),
             attempt = CASE WHEN attempt > $5 THEN attempt - $5 ELSE 0 END, takeover = ($6 > 0),
             updated_at = {now}
         WHERE id = $1",
        args![
            lease.task,
            ending.state.as_str(),
            ending.task_reason,
            ending.pull_request_url,
            ending.refunded_attempts,
            i64::from(ending.urgency == Urgency::Takeover),
        ],
    )
    .await?;
    tx.execute(
        "UPDATE sessions SET ended_at = {now}, ending = $2, reason = $3
         WHERE id = $1 AND ended_at IS NULL",
        args![
            lease.session,
            ending.session.as_str(),
            ending.session_reason
        ],
    )
    .await?;
    tx.execute("DELETE FROM replies WHERE task = $1", args![lease.task])
        .await?;
    if let TaskState::Ended(_) = ending.state {
        // Nobody resumes from here.
        tx.execute("DELETE FROM checkpoints WHERE task = $1", args![lease.task])
            .await?;
    }
    wake_waiting(tx, lease.task).await?;
    match ending.wake_after {
        Some(delay) => wake(tx, lease.task, delay).await,
        None => Ok(()),
    }
}

/// The same end again, after a commit whose outcome was unknown, is not an error.
async fn ended_alike<D: Dialect>(
    tx: &mut Db<D>,
    lease: &Lease,
    end: &LeaseEnd,
) -> Result<(), Failure> {
    let ending = Ending::of(end, LeaseRequest::Continue, None);
    let same: Option<i32> = tx
        .scalar(
            "SELECT 1 FROM sessions WHERE id = $1 AND task = $2 AND epoch = $3 AND ending = $4
                 AND reason IS NOT DISTINCT FROM $5",
            args![
                lease.session,
                lease.task,
                lease.epoch,
                ending.session.as_str(),
                ending.session_reason,
            ],
        )
        .await?;
    same.map(|_| ()).ok_or(Failure::Fenced(lease.task))
}
