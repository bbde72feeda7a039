//! Repairs what a dead worker, a wiped broker or a lost message left behind.

use std::time::Duration;

use agentmine_domain::{Epoch, SandboxFate, TaskId};
use agentmine_runtime::failpoint::Guard;
use async_trait::async_trait;

use super::arg::args;
use super::db::{Db, Dialect};
use super::enqueue::wake_now;
use super::failure::Failure;
use super::intents::close_intents;
use super::people::wake_waiting;
use super::reports::note_reported;
use super::row::IdRow;
use super::store::SqlStore;
use crate::{StoreError, SweepPolicy, SweepReport, SweepStore};

/// A row gets a wake-up after so many times the shortest interval at the latest.
const RAREST: u32 = 60;
const DAY: Duration = Duration::from_secs(24 * 3600);

#[async_trait]
impl<D: Dialect> SweepStore for SqlStore<D> {
    async fn sweep(&self, policy: &SweepPolicy) -> Result<SweepReport, StoreError> {
        self.run("sweep", || async {
            let mut report = SweepReport::default();
            let mut tx = self.transaction().await?;
            // Also where another process sweeps: this one's claims depend on what it has seen.
            let clock: Option<i64> = tx.scalar("SELECT {millis(}{now}{)millis}", &[]).await?;
            if let Some(millis) = clock {
                self.absence.clock(millis);
            }
            if !D::lock_sweep(&mut tx).await? {
                report.next_expiry = next_expiry(&mut tx).await?;
                return Ok(report);
            }
            shorten_leases(&mut tx).await?;
            count_from_now(&mut tx).await?;
            self.absence.written();
            // A locked row is being claimed or extended at this moment. The plus: as in `unconfirmed`.
            let expired: Vec<IdRow> = match self.absence.is_within(policy.lease) {
                true => Vec::new(),
                false => {
                    tx.rows(
                        "SELECT {columns} FROM tasks WHERE state = 'leased' AND lease_until <= {now}
                         ORDER BY +number{lock free}",
                        &[],
                    )
                    .await?
                }
            };
            let leases_expired = expired.len() as u64;
            for row in expired {
                let task = TaskId::try_from(row)?;
                match settle(&mut tx, task, policy.max_attempts).await?.as_str() {
                    "queued" => {
                        wake_now(&mut tx, task).await?;
                        report.requeued.push(task);
                    }
                    "failed" => report.failed.push(task),
                    // Stopped or paused, as a person had asked of the dead worker.
                    _ => {}
                }
            }
            report.rewoken = rewake(&mut tx, policy.wakeup_after).await?;
            report.closed_effects = close_intents(&mut tx, policy.lease).await?;
            note_reported(&mut tx).await?;
            // Sent entries serve only to see whether a wake-up is recent.
            tx.execute(
                "DELETE FROM outbox WHERE sent_at < {now} - $1{ms}",
                args![policy.wakeup_after.max(DAY)],
            )
            .await?;
            report.next_expiry = next_expiry(&mut tx).await?;
            tx.commit().await?;
            metrics::counter!("agentmine_leases_expired_total").increment(leases_expired);
            metrics::counter!("agentmine_tasks_rewoken_total").increment(report.rewoken);
            Ok(report)
        })
        .await
    }

    async fn worker_died(&self, process: &str, rest: Duration) -> Result<u64, StoreError> {
        let workers = format!("{process}/");
        self.execute(
            "worker_died",
            "UPDATE tasks SET lease_until = {clock} + $2{ms}
             WHERE state = 'leased' AND substr(owner, 1, length($1)) = $1
               AND lease_until > {clock} + $2{ms}",
            args![&workers, rest],
        )
        .await
    }

    async fn sandbox_fate(&self, task: TaskId, epoch: Epoch) -> Result<SandboxFate, StoreError> {
        self.run("sandbox_fate", || async {
            let mut db = self.connection().await?;
            let alive: Option<bool> = db
                .scalar(
                    // Until somebody takes it, an expired lease is still its holder's, see `absence`.
                    "SELECT state = 'leased' AND epoch = $2 FROM tasks WHERE id = $1",
                    args![task, epoch],
                )
                .await?;
            Ok(match alive {
                None => SandboxFate::Unknown,
                Some(true) => SandboxFate::Alive,
                Some(false) => SandboxFate::Dead,
            })
        })
        .await
    }

    async fn fail_queued(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "fail_queued",
                "UPDATE tasks SET state = 'failed', reason = $2, updated_at = {now}
                 WHERE id = $1 AND {state} = 'queued' AND {one more} = 0",
                args![task, reason],
            )
            .await?;
        Ok(rows > 0)
    }
}

/// Lets leases begin now that begin later: the database's clock was set back since they were extended. Each
/// keeps its own length, which is not the same for all workers; a holder that lives extends it in time.
async fn shorten_leases<D: Dialect>(tx: &mut Db<D>) -> Result<(), Failure> {
    let shortened = tx
        .execute(
            "UPDATE tasks SET lease_until = {clock} + (lease_until - lease_since), lease_since = {clock}
             WHERE state = 'leased' AND lease_since > {clock}",
            &[],
        )
        .await?;
    if shortened > 0 {
        tracing::warn!(
            shortened,
            "leases begin in the future; was the database's clock set back?"
        );
    }
    Ok(())
}

/// Rows that are this much newer than now were written before the database's clock was set back, not by a transaction that runs
/// beside this one.
const SET_BACK: Duration = Duration::from_secs(10);

/// Lets waits begin now that begin later, for the same reason: of wake-ups, of looks at a task that waits for a place, and of
/// ends that are to be reported.
async fn count_from_now<D: Dialect>(tx: &mut Db<D>) -> Result<(), Failure> {
    tx.execute(
        "UPDATE outbox SET due_at = due_at - (t.updated_at - {now}) FROM tasks t
         WHERE t.id = outbox.task AND outbox.sent_at IS NULL AND outbox.due_at > {now}
           AND t.state = 'queued' AND t.updated_at > {now} + $1{ms}",
        args![SET_BACK],
    )
    .await?;
    let queued = tx
        .execute(
            "UPDATE tasks SET look_at = look_at - (updated_at - {now}), updated_at = {now}
             WHERE state = 'queued' AND updated_at > {now} + $1{ms}",
            args![SET_BACK],
        )
        .await?;
    let ended = tx
        .execute(
            "UPDATE tasks SET report_until = report_until - (updated_at - {now}), updated_at = {now}
             WHERE state IN ('done', 'failed', 'stopped', 'paused') AND NOT end_reported
               AND updated_at > {now} + $1{ms}",
            args![SET_BACK],
        )
        .await?;
    if queued + ended > 0 {
        tracing::warn!(
            queued,
            ended,
            "tasks were changed in the future; was the database's clock set back?"
        );
    }
    Ok(())
}

/// The time until the next lease runs out; zero for one that ran out and is left to its holder.
async fn next_expiry<D: Dialect>(tx: &mut Db<D>) -> Result<Option<Duration>, Failure> {
    let left: Option<Option<i64>> = tx
        .scalar(
            "SELECT {millis(}min(lease_until) - {now}{)millis} FROM tasks WHERE state = 'leased'",
            &[],
        )
        .await?;
    let left = left.flatten();
    Ok(left.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))))
}

/// Gives queued rows without a recent wake-up another one. A row gets its next one when its wait
/// has doubled, so that the messages in the broker do not grow with the length of the backlog and the time.
async fn rewake<D: Dialect>(tx: &mut Db<D>, wakeup_after: Duration) -> Result<u64, Failure> {
    if Guard::SecondNet.is_off() {
        return Ok(0);
    }
    tx.execute(
        "INSERT INTO outbox (task, due_at)
         SELECT id, {now} FROM tasks
         WHERE state = 'queued' AND updated_at <= {now} - $1{ms} AND {workable}
           AND NOT EXISTS (
               SELECT 1 FROM outbox o WHERE o.task = tasks.id
                 AND (o.sent_at IS NULL OR o.sent_at > {now} - $1{ms}
                      OR (o.sent_at > {now} - ({now} - tasks.updated_at) / 2
                          AND o.sent_at > {now} - $2{ms})))",
        args![wakeup_after, wakeup_after.saturating_mul(RAREST)],
    )
    .await
}

/// Ends the sessions of a worker that is gone.
pub(super) async fn expire_sessions<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
) -> Result<(), Failure> {
    tx.execute(
        "UPDATE sessions SET ended_at = {now}, ending = 'expired', reason = 'the lease ran out'
         WHERE task = $1 AND ended_at IS NULL",
        args![task],
    )
    .await?;
    Ok(())
}

/// Gives a locked row that no worker holds the state that follows, and returns it: the one that a person
/// requested, failed if the task ran out of attempts, else queued.
pub(super) async fn settle<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
    max_attempts: u32,
) -> Result<String, Failure> {
    expire_sessions(tx, task).await?;
    // A task that lost its worker keeps `lease_since`, from which the next claim sees how long nobody worked on it.
    let state: Option<String> = tx
        .scalar(
            "UPDATE tasks SET
                 state = CASE WHEN request = 'stop' THEN 'stopped' WHEN request = 'pause' THEN 'paused'
                              WHEN attempt >= $2 + {one more} THEN 'failed' ELSE 'queued' END,
                 reason = CASE WHEN request IS NOT NULL THEN request_reason
                               WHEN attempt >= $2 + {one more} THEN 'gave up after ' || attempt || ' attempts'
                                   || COALESCE('; the last one: ' || (
                                       SELECT s.reason FROM sessions s WHERE s.task = tasks.id
                                       ORDER BY s.id DESC LIMIT 1), '') END,
                 takeover = (request IS NULL AND attempt < $2 + {one more}),
                 lease_since = CASE WHEN request IS NULL AND attempt < $2 + {one more} THEN lease_since END,
                 phase = NULL, lease_until = NULL, nonce = NULL, request = NULL,
                 request_reason = NULL, updated_at = {now}
             WHERE id = $1 RETURNING state",
            args![task, max_attempts],
        )
        .await?;
    let state =
        state.ok_or_else(|| Failure::Fault(format!("task {task} vanished under its lock")))?;
    // It holds its files no longer.
    wake_waiting(tx, task).await?;
    Ok(state)
}
