//! Ends of tasks that are not yet reported, and which process reports them.
//!
//! A report is claimed in the task's row for a limited time. Two processes can therefore write the same report
//! only if the first one was stalled for longer than that; the tracker then removes what is there twice.
//!
//! Effects are counted where `EXISTS` would do: a count is looked up for each row, by the key of the effects, while
//! Postgres makes `EXISTS` a join, for which it may read all effects that there ever were.

use std::time::Duration;

use agentmine_domain::{ItemRef, Task, TaskId, TaskNumber};
use async_trait::async_trait;
use uuid::Uuid;

use super::arg::args;
use super::db::{Db, Dialect};
use super::failure::Failure;
use super::row::{IdRow, TaskRow};
use super::store::{LONGEST_HOLD, SqlStore};
use crate::{ReportStore, StoreError};

/// How many ends one sweep notes as reported.
const NOTED_AT_ONCE: u32 = 500;

/// After this long an unreported end is given up, for example because no consumer has its tracker any more; otherwise the
/// fleet would keep a worker and the task's effects for it for ever.
const GIVEN_UP: Duration = Duration::from_secs(30 * 24 * 3600);

/// An end that was reported longer ago is not looked at again.
pub(super) const LAST_LOOK: Duration = Duration::from_secs(24 * 3600);

#[async_trait]
impl<D: Dialect> ReportStore for SqlStore<D> {
    async fn unreported(
        &self,
        older_than: Duration,
        after: TaskNumber,
        limit: u32,
    ) -> Result<Vec<Task>, StoreError> {
        self.select::<TaskRow, _>(
            "unreported",
            "SELECT {columns} FROM tasks t
             WHERE state IN ('done', 'failed', 'stopped', 'paused') AND NOT end_reported
               AND updated_at <= {now} - $1{ms} AND number > $2
               AND (SELECT count(*) FROM effects e
                    WHERE {label of t} AND e.done_at IS NOT NULL) = 0
             ORDER BY number LIMIT $3",
            args![older_than, after.0, limit],
        )
        .await
    }

    async fn unconfirmed(
        &self,
        lease: Duration,
        within: Duration,
        after: TaskNumber,
        limit: u32,
    ) -> Result<Vec<Task>, StoreError> {
        // The plus keeps SQLite from going through all tasks in the order of their numbers.
        self.select::<TaskRow, _>(
            "unconfirmed",
            "SELECT {columns} FROM tasks t
             WHERE state IN ('done', 'failed', 'stopped', 'paused') AND updated_at > {now} - $4{ms}
               AND +number > $2
               AND (SELECT count(*) FROM effects e
                    WHERE {label of t} AND e.done_at <= {now} - $1{ms}) > 0
               AND (SELECT count(*) FROM effects e
                    WHERE {label check of t} AND e.done_at IS NOT NULL) = 0
               AND (SELECT count(*) FROM tasks later
                    WHERE later.item_key = t.item_key AND later.number > t.number) = 0
             ORDER BY +number LIMIT $3",
            args![lease, after.0, limit, within.min(LAST_LOOK)],
        )
        .await
    }

    async fn tasks_of_item(&self, item: &ItemRef, limit: u32) -> Result<Vec<Task>, StoreError> {
        let newest =
            "SELECT {columns} FROM tasks WHERE item_key = $1 ORDER BY number DESC LIMIT $2";
        self.select::<TaskRow, _>("tasks_of_item", newest, args![&item.key(), limit])
            .await
    }

    async fn claim_report(
        &self,
        task: &Task,
        nonce: Uuid,
        hold: Duration,
    ) -> Result<Option<Task>, StoreError> {
        self.run("claim_report", || async {
            let mut db = self.connection().await?;
            let taken: Option<TaskRow> = db
                .row(
                    "UPDATE tasks SET report_until = {clock} + $5{ms}, report_nonce = $4
                     WHERE id = $1 AND {state} = $2 AND epoch = $3
                       AND {state} IN ('done', 'failed', 'stopped', 'paused')
                       AND (report_until IS NULL OR report_until <= {clock} OR report_nonce = $4
                            OR report_until > {clock} + $6{ms})
                     RETURNING {columns}",
                    args![
                        task.id,
                        task.state.as_str(),
                        task.epoch,
                        nonce,
                        hold,
                        LONGEST_HOLD
                    ],
                )
                .await?;
            taken.map(Task::try_from).transpose()
        })
        .await
    }

    async fn found_result(
        &self,
        task: TaskId,
        url: &str,
        reason: Option<&str>,
    ) -> Result<Option<Task>, StoreError> {
        self.run("found_result", || async {
            let mut db = self.connection().await?;
            let found: Option<TaskRow> = db
                .row(
                    "UPDATE tasks SET state = 'done', pull_request_url = $2, reason = $3, updated_at = {now},
                         end_reported = false
                     WHERE id = $1 AND ({state} = 'failed' OR ({state} = 'done' AND pull_request_url = $2))
                     RETURNING {columns}",
                    args![task, url, reason],
                )
                .await?;
            found.map(Task::try_from).transpose()
        })
        .await
    }
}

/// Notes which ends are reported, so that [`ReportStore::unreported`] need not look for them among the effects of
/// all tasks that there ever were. One that is as old as [`GIVEN_UP`] counts too.
pub(super) async fn note_reported<D: Dialect>(tx: &mut Db<D>) -> Result<(), Failure> {
    let reported: Vec<IdRow> = tx
        .rows(
            "SELECT {columns} FROM tasks t
             WHERE state IN ('done', 'failed', 'stopped', 'paused') AND NOT end_reported AND state <> 'paused'
               AND ((SELECT count(*) FROM effects e
                     WHERE {label of t} AND e.done_at IS NOT NULL) > 0
                    OR {millis(}{now} - updated_at{)millis} >= $2)
             ORDER BY number LIMIT $1",
            args![NOTED_AT_ONCE, GIVEN_UP],
        )
        .await?;
    for row in reported {
        // Compared again: the result of a failed task may have been found meanwhile.
        tx.execute(
            "UPDATE tasks AS t SET end_reported = true
             WHERE id = $1 AND {state} IN ('done', 'failed', 'stopped')
               AND (EXISTS (SELECT 1 FROM effects e
                            WHERE {label of t} AND e.done_at IS NOT NULL)
                    OR {millis(}{now} - updated_at{)millis} >= $2)",
            args![TaskId::try_from(row)?, GIVEN_UP],
        )
        .await?;
    }
    Ok(())
}
