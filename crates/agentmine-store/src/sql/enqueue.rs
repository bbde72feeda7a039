//! Recording tasks and publishing their wake-ups.

use std::time::Duration;

use agentmine_domain::{NewTask, Task, TaskId};
use async_trait::async_trait;

use super::arg::args;
use super::db::{Db, Dialect, Relayed};
use super::effects::end_pause;
use super::failure::Failure;
use super::row::{TaskRow, priority_number};
use super::store::SqlStore;
use crate::{EnqueueStore, Enqueued, Publish, RelayError, ScanTime, StoreError};

/// The relay waits for the broker between its statements.
const RELAY_LIMIT: Duration = Duration::from_secs(300);

#[async_trait]
impl<D: Dialect> EnqueueStore for SqlStore<D> {
    async fn enqueue(&self, new: &NewTask) -> Result<Enqueued, StoreError> {
        self.record("enqueue", new, None).await
    }

    async fn scan_time(&self) -> Result<ScanTime, StoreError> {
        self.run("scan_time", || async {
            let mut db = self.connection().await?;
            let millis: Option<i64> = db.scalar("SELECT {millis(}{now}{)millis}", &[]).await?;
            let millis = millis.ok_or_else(|| Failure::Fault("a clock shows no time".into()))?;
            // A row that was changed in the same millisecond was changed before.
            Ok(ScanTime { millis: millis + 1 })
        })
        .await
    }

    async fn answer_request(
        &self,
        task: TaskId,
        trigger: &str,
        scan: ScanTime,
    ) -> Result<bool, StoreError> {
        self.run("answer_request", || async {
            let mut tx = self.transaction().await?;
            let rows = tx
                .execute(
                    "UPDATE tasks SET state = 'queued', reason = NULL, answered_trigger = $2,
                         updated_at = {now}
                     WHERE id = $1 AND {state} IN ('queued', 'paused') AND trigger_event <> $2
                       AND answered_trigger IS DISTINCT FROM $2
                       AND updated_at <= {epoch} + $3{ms}",
                    args![task, trigger, scan.millis],
                )
                .await?;
            if rows > 0 {
                end_pause(&mut tx, task).await?;
                wake_now(&mut tx, task).await?;
                release_held(&mut tx, task).await?;
            }
            tx.commit().await?;
            Ok(rows > 0)
        })
        .await
    }

    async fn relay_outbox(&self, limit: u32, publish: &dyn Publish) -> Result<u64, RelayError> {
        let Relayed { sent, refused, .. } = self
            .run_within(RELAY_LIMIT, "relay_outbox", || {
                D::relay(&self.pool, limit, publish)
            })
            .await?;
        metrics::counter!("agentmine_outbox_sent_total").increment(sent);
        let Some(reason) = refused else {
            return Ok(sent);
        };
        metrics::counter!("agentmine_outbox_failures_total").increment(1);
        Err(RelayError::Publish(reason))
    }
}

/// A request for work on the item of this task was accepted, so an earlier one is not held any more.
async fn release_held<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<(), Failure> {
    tx.execute(
        "DELETE FROM held_requests WHERE item_key = (SELECT item_key FROM tasks WHERE id = $1)",
        args![task],
    )
    .await?;
    Ok(())
}

impl<D: Dialect> SqlStore<D> {
    /// Records a task, and its wake-up if it waits for nothing.
    pub(super) async fn record(
        &self,
        operation: &'static str,
        new: &NewTask,
        waits_for: Option<&str>,
    ) -> Result<Enqueued, StoreError> {
        let id = TaskId::new();
        self.run(operation, || async {
            // Most items that a scan finds are known already, and need no lock.
            if let Some(known) = find(&mut self.connection().await?, id, new).await? {
                return Ok(known);
            }
            let mut tx = self.transaction().await?;
            D::lock_numbers(&mut tx).await?;
            let Some(task) = insert(&mut tx, id, new, waits_for).await? else {
                let known = find(&mut tx, id, new).await?;
                return known.ok_or_else(|| Failure::Fault("a conflicting task vanished".into()));
            };
            wake(&mut tx, id, Duration::ZERO).await?;
            release_held(&mut tx, id).await?;
            tx.commit().await?;
            metrics::counter!("agentmine_tasks_enqueued_total").increment(1);
            Ok(Enqueued::Created(task))
        })
        .await
    }
}

/// Inserts the row, unless another one is in the way.
async fn insert<D: Dialect>(
    tx: &mut Db<D>,
    id: TaskId,
    new: &NewTask,
    waits_for: Option<&str>,
) -> Result<Option<Task>, Failure> {
    let NewTask {
        item,
        trigger,
        title,
        url,
        priority,
    } = new;
    let row: Option<TaskRow> = tx
        .row(
            "INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind,
                 item_number, item_key, trigger_event, dedup_key, title, url, priority, waits_for,
                 created_at, updated_at)
             SELECT $1, COALESCE(max(number), 0) + 1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                 $13, $14, {now}, {now}
             FROM tasks WHERE true
             ON CONFLICT DO NOTHING RETURNING {columns}",
            args![
                id,
                item.tracker.as_str(),
                &item.host,
                &item.repo_id,
                &item.repo_path,
                item.kind.as_str(),
                item.number,
                &item.key(),
                trigger,
                &new.dedup_key(),
                title,
                url,
                priority_number(*priority),
                waits_for,
            ],
        )
        .await?;
    row.map(Task::try_from).transpose()
}

/// The row in the way: the item's open one before one of the same trigger. Our own id means that an
/// earlier attempt was committed after all.
async fn find<D: Dialect>(
    db: &mut Db<D>,
    id: TaskId,
    new: &NewTask,
) -> Result<Option<Enqueued>, Failure> {
    let row: Option<TaskRow> = db
        .row(
            "SELECT {columns} FROM tasks
             WHERE dedup_key = $1
                OR (item_key = $2
                    AND (state IN ('queued', 'leased', 'paused') OR answered_trigger = $3))
             ORDER BY (state IN ('queued', 'leased', 'paused')) DESC, number DESC LIMIT 1",
            args![&new.dedup_key(), &new.item.key(), &new.trigger],
        )
        .await?;
    let task = row.map(Task::try_from).transpose()?;
    Ok(task.map(|task| match task.id == id {
        true => Enqueued::Created(task),
        false => Enqueued::Known(task),
    }))
}

/// Puts a wake-up into the outbox, due after `delay`.
pub(super) async fn wake<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
    delay: Duration,
) -> Result<(), Failure> {
    // A task of a person is worked on where the person says so, and one that waits by nobody: a message would wake no worker.
    tx.execute(
        "INSERT INTO outbox (task, due_at)
         SELECT id, {now} + $2{ms} FROM tasks WHERE id = $1 AND {of fleet} AND waits_for IS NULL",
        args![task, delay],
    )
    .await?;
    Ok(())
}

/// The task is due now: its delayed wake-ups are dropped, and there is a new one.
pub(super) async fn wake_now<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<(), Failure> {
    tx.execute(
        "DELETE FROM outbox WHERE task = $1 AND sent_at IS NULL AND due_at > {now}",
        args![task],
    )
    .await?;
    wake(tx, task, Duration::ZERO).await
}
