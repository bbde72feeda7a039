//! Removes what belongs to tasks that are over.
//!
//! A batch is a short transaction over few tasks, so that neither its locks nor what it writes holds up a claim. The row of
//! a task says that its journal is removed before the first step goes, in the same transaction: the triggers of `steps` let
//! no other step be deleted. A task that is being changed at this moment is left for a later batch.
//!
//! The pull request of a task without a result is recorded as an effect alone, and may be open for longer than effects are
//! kept: that record stays, since `capacity` counts it. Those of a pull request on which a round may begin stay too: by them
//! the producer knows whose the head of the branch is. The records of commands stay for good, since trackers show the comments
//! for good: a producer that starts reads the newest ones of a repository, however old they are.

use std::time::Duration;

use agentmine_domain::{EndState, TaskId, TaskState};
use agentmine_runtime::config::{KeepDays, RetentionConfig};
use async_trait::async_trait;

use super::arg::args;
use super::db::{Db, Dialect};
use super::failure::Failure;
use super::restored::restore;
use super::row::{EndedRow, Id, PrunableRow, SizeRow};
use super::store::SqlStore;
use crate::{Prunable, Pruned, Restored, RetentionKind, RetentionStore, StoreError, TableSize};

/// Tasks of one outcome that a batch looks at.
const TASKS: u32 = 25;
/// Steps that a batch removes, at most, of more than one task.
const STEPS: i64 = 500;
/// Checkpoints that a batch removes.
const CHECKPOINTS: u32 = 50;

const DAY: u64 = 24 * 3600;
const OUTCOMES: [EndState; 3] = [EndState::Done, EndState::Failed, EndState::Stopped];

#[async_trait]
impl<D: Dialect> RetentionStore for SqlStore<D> {
    async fn prune(&self, policy: &RetentionConfig) -> Result<Pruned, StoreError> {
        let RetentionConfig {
            enabled: _,
            checkpoint_hours,
            journal_days,
            effect_days,
        } = policy;
        let checkpoint_age = Duration::from_secs(checkpoint_hours.saturating_mul(3600));
        self.run("prune", || async {
            let mut pruned = Pruned::default();
            let mut tx = self.transaction().await?;
            pruned.checkpoints = remove_checkpoints(&mut tx, checkpoint_age).await?;
            for outcome in OUTCOMES {
                if let Some(age) = age(journal_days, outcome) {
                    remove_journals(&mut tx, outcome, age, &mut pruned).await?;
                }
                if let Some(age) = age(effect_days, outcome) {
                    remove_effects(&mut tx, outcome, age, &mut pruned).await?;
                }
            }
            tx.commit().await?;
            for (what, count) in [
                (RetentionKind::Checkpoints, pruned.checkpoints),
                (RetentionKind::Journal, pruned.steps),
                (RetentionKind::Effects, pruned.effects),
            ] {
                metrics::counter!("agentmine_retention_removed_total", "what" => what.as_str())
                    .increment(count);
            }
            Ok(pruned)
        })
        .await
    }

    async fn prunable(&self, policy: &RetentionConfig) -> Result<Vec<Prunable>, StoreError> {
        let RetentionConfig {
            enabled: _,
            checkpoint_hours,
            journal_days,
            effect_days,
        } = policy;
        let checkpoint_age = Duration::from_secs(checkpoint_hours.saturating_mul(3600));
        self.run("prunable", || async {
            let mut db = self.connection().await?;
            let mut found = Vec::new();
            for outcome in OUTCOMES {
                for what in RetentionKind::ALL {
                    let age = match what {
                        RetentionKind::Checkpoints => Some(checkpoint_age),
                        RetentionKind::Journal => age(journal_days, outcome),
                        RetentionKind::Effects => age(effect_days, outcome),
                    };
                    let Some(age) = age else { continue };
                    let row: Option<PrunableRow> =
                        db.row(due_of(what), args![name(outcome), age]).await?;
                    let row = row.ok_or_else(|| Failure::Fault("a count has no row".into()))?;
                    found.push(Prunable {
                        what,
                        outcome,
                        tasks: row.tasks.unsigned_abs(),
                        rows: row.rows.unsigned_abs(),
                        bytes: row.bytes.unsigned_abs(),
                    });
                }
            }
            Ok(found)
        })
        .await
    }

    async fn sizes(&self) -> Result<Vec<TableSize>, StoreError> {
        self.run("sizes", || async {
            let rows: Vec<SizeRow> = self.connection().await?.rows(D::SIZES, &[]).await?;
            let sizes = rows.into_iter().map(|row| TableSize {
                table: row.name,
                rows: row.rows.unsigned_abs(),
                bytes: row.bytes.unsigned_abs(),
            });
            Ok(sizes.collect())
        })
        .await
    }

    async fn restored(&self) -> Result<Restored, StoreError> {
        self.run("restored", || async {
            restore(self.transaction().await?).await
        })
        .await
    }
}

/// How old what is removed is at least; `None`: it is kept for good.
fn age(days: &KeepDays, outcome: EndState) -> Option<Duration> {
    let days = match outcome {
        EndState::Done => days.done,
        EndState::Failed => days.failed,
        EndState::Stopped => days.stopped,
    };
    (days > 0).then(|| Duration::from_secs(days.saturating_mul(DAY)))
}

fn name(outcome: EndState) -> &'static str {
    TaskState::Ended(outcome).as_str()
}

/// The end of a lease removes the checkpoints; other ends of tasks do not.
async fn remove_checkpoints<D: Dialect>(tx: &mut Db<D>, age: Duration) -> Result<u64, Failure> {
    tx.execute(
        "DELETE FROM checkpoints WHERE (task, seq) IN (
             SELECT c.task, c.seq FROM checkpoints c JOIN tasks t ON t.id = c.task
             WHERE t.state IN ('done', 'failed', 'stopped') AND t.updated_at <= {now} - $1{ms} LIMIT $2)",
        args![age, CHECKPOINTS],
    )
    .await
}

async fn remove_journals<D: Dialect>(
    tx: &mut Db<D>,
    outcome: EndState,
    age: Duration,
    pruned: &mut Pruned,
) -> Result<(), Failure> {
    let due: Vec<EndedRow> = tx
        .rows(
            "SELECT id, last_seq AS steps FROM tasks
             WHERE state = $1 AND state IN ('done', 'failed', 'stopped')
               AND NOT journal_removed AND updated_at <= {now} - $2{ms}
             ORDER BY updated_at LIMIT $3{lock free}",
            args![name(outcome), age, TASKS],
        )
        .await?;
    let mut left = STEPS;
    for EndedRow { id, steps } in due {
        if left < STEPS && steps > left {
            break;
        }
        left -= steps;
        let task = TaskId::from(id);
        tx.execute(
            "UPDATE tasks SET journal_removed = true WHERE id = $1",
            args![task],
        )
        .await?;
        pruned.steps += tx
            .execute("DELETE FROM steps WHERE task = $1", args![task])
            .await?;
        // Left by a worker that died.
        tx.execute("DELETE FROM replies WHERE task = $1", args![task])
            .await?;
        pruned.tasks += 1;
    }
    Ok(())
}

async fn remove_effects<D: Dialect>(
    tx: &mut Db<D>,
    outcome: EndState,
    age: Duration,
    pruned: &mut Pruned,
) -> Result<(), Failure> {
    let due: Vec<(Id,)> = tx
        .rows(
            "SELECT id FROM tasks
             WHERE state = $1 AND state IN ('done', 'failed', 'stopped')
               AND NOT effects_removed AND updated_at <= {now} - $2{ms} AND end_reported AND {unwatched}
             ORDER BY updated_at LIMIT $3{lock free}",
            args![name(outcome), age, TASKS],
        )
        .await?;
    for (id,) in due {
        let task = TaskId::from(id);
        tx.execute(
            "UPDATE tasks SET effects_removed = true WHERE id = $1",
            args![task],
        )
        .await?;
        pruned.effects += tx
            .execute(
                "DELETE FROM effects WHERE task = $1 AND kind NOT IN ({command kinds})
                   AND ($2 = 'done' OR kind NOT IN ({opening kinds}))",
                args![task, name(outcome)],
            )
            .await?;
        pruned.tasks += 1;
    }
    Ok(())
}

/// Counts what a batch would remove of the tasks with the outcome $1 that are as old as $2.
fn due_of(what: RetentionKind) -> &'static str {
    match what {
        RetentionKind::Checkpoints => {
            "SELECT count(DISTINCT t.id) AS tasks, count(*) AS rows,
                 CAST(COALESCE(sum(octet_length(c.bundle)), 0) AS bigint) AS bytes
             FROM checkpoints c JOIN tasks t ON t.id = c.task
             WHERE t.state = $1 AND t.updated_at <= {now} - $2{ms}"
        }
        RetentionKind::Journal => {
            "SELECT count(DISTINCT t.id) AS tasks, count(s.seq) AS rows,
                 CAST(COALESCE(sum(octet_length(s.payload)), 0) AS bigint) AS bytes
             FROM tasks t LEFT JOIN steps s ON s.task = t.id
             WHERE t.state = $1 AND t.state IN ('done', 'failed', 'stopped')
               AND NOT t.journal_removed AND t.updated_at <= {now} - $2{ms}"
        }
        RetentionKind::Effects => {
            "SELECT count(DISTINCT tasks.id) AS tasks, count(e.key) AS rows,
                 CAST(COALESCE(sum(octet_length(e.result)), 0) AS bigint) AS bytes
             FROM tasks LEFT JOIN effects e ON e.task = tasks.id AND e.kind NOT IN ({command kinds})
               AND ($1 = 'done' OR e.kind NOT IN ({opening kinds}))
             WHERE tasks.state = $1 AND tasks.state IN ('done', 'failed', 'stopped')
               AND NOT tasks.effects_removed AND tasks.updated_at <= {now} - $2{ms} AND tasks.end_reported
               AND {unwatched}"
        }
    }
}
