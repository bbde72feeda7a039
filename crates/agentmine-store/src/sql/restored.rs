//! After a restore to an earlier time: workers may hold leases that the database does not know any more, or knows as they
//! were, and sandboxes carry epochs that will be given again.

use std::time::Duration;

use agentmine_domain::{TaskId, TaskNumber};

use super::arg::args;
use super::db::{Db, Dialect};
use super::enqueue::wake;
use super::failure::Failure;
use super::row::NumberedRow;
use super::sweep::settle;
use crate::Restored;

/// No task was claimed as often since the time that was restored.
const LIFT: i64 = 1_000_000;

/// Lifts the epochs of all tasks of the fleet that are not over, and takes them from their workers. An effect needs
/// no change: each looks at the tracker before it acts, also where it seems to begin for the first time.
pub(super) async fn restore<D: Dialect>(mut tx: Db<D>) -> Result<Restored, Failure> {
    let leased: Vec<NumberedRow> = tx
        .rows(
            "SELECT {columns} FROM tasks WHERE state = 'leased' AND {of fleet} ORDER BY +number{lock}",
            &[],
        )
        .await?;
    let lifted = tx
        .execute(
            "UPDATE tasks SET epoch = epoch + $1, report_until = NULL, report_nonce = NULL
             WHERE {of fleet} AND state IN ('queued', 'leased', 'paused')",
            args![LIFT],
        )
        .await?;
    let mut taken = Vec::new();
    for NumberedRow { id, number } in leased {
        let task = TaskId::from(id);
        tx.execute(
            "UPDATE sessions SET ended_at = {now}, ending = 'released', reason = 'the database was restored'
             WHERE task = $1 AND ended_at IS NULL",
            args![task],
        )
        .await?;
        // The restore is not the task's fault.
        tx.execute(
            "UPDATE tasks SET attempt = CASE WHEN attempt > 0 THEN attempt - 1 ELSE 0 END WHERE id = $1",
            args![task],
        )
        .await?;
        if settle(&mut tx, task, u32::MAX).await? == "queued" {
            wake(&mut tx, task, Duration::ZERO).await?;
        }
        taken.push(TaskNumber(number));
    }
    tx.commit().await?;
    Ok(Restored { lifted, taken })
}
