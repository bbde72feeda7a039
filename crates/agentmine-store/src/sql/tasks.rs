//! What people ask of tasks, and what they see of them.

use std::time::Duration;

use agentmine_domain::{PublicStatus, Session, SessionId, Task, TaskId, TaskNumber};
use async_trait::async_trait;

use super::arg::args;
use super::db::Dialect;
use super::effects::end_pause;
use super::enqueue::{wake, wake_now};
use super::row::{SessionRow, TaskRow};
use super::store::SqlStore;
use crate::{StoreError, TaskFilter, TaskStore};

#[async_trait]
impl<D: Dialect> TaskStore for SqlStore<D> {
    async fn request_stop(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "request_stop",
                "UPDATE tasks SET
                     request = CASE state WHEN 'leased' THEN 'stop' END,
                     request_reason = CASE state WHEN 'leased' THEN $2 END,
                     reason = CASE state WHEN 'leased' THEN reason ELSE $2 END,
                     state = CASE state WHEN 'leased' THEN 'leased' ELSE 'stopped' END,
                     updated_at = {now}
                 WHERE id = $1 AND state IN ('queued', 'leased', 'paused')",
                args![task, reason],
            )
            .await?;
        Ok(rows > 0)
    }

    /// An earlier stop request stays: it is the stronger one.
    async fn request_pause(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        let rows = self
            .execute(
                "request_pause",
                "UPDATE tasks SET
                     request = CASE state WHEN 'leased' THEN COALESCE(request, 'pause') END,
                     request_reason = CASE WHEN state <> 'leased' THEN NULL
                                           WHEN request = 'stop' THEN request_reason ELSE $2 END,
                     reason = CASE state WHEN 'queued' THEN $2 ELSE reason END,
                     state = CASE state WHEN 'leased' THEN 'leased' ELSE 'paused' END,
                     updated_at = {now}
                 WHERE id = $1 AND state IN ('queued', 'leased', 'paused')",
                args![task, reason],
            )
            .await?;
        Ok(rows > 0)
    }

    async fn skip_delay(&self, task: TaskId) -> Result<bool, StoreError> {
        self.run("skip_delay", || async {
            let mut tx = self.transaction().await?;
            let waits: Option<i32> = tx
                .scalar(
                    "SELECT 1 FROM tasks t WHERE id = $1 AND state = 'queued'
                       AND EXISTS (SELECT 1 FROM outbox o WHERE o.task = t.id AND o.sent_at IS NULL
                                     AND o.due_at > {now}){lock}",
                    args![task],
                )
                .await?;
            if waits.is_some() {
                wake_now(&mut tx, task).await?;
            }
            tx.commit().await?;
            Ok(waits.is_some())
        })
        .await
    }

    async fn resume(&self, task: TaskId) -> Result<bool, StoreError> {
        self.run("resume", || async {
            let mut tx = self.transaction().await?;
            let rows = tx
                .execute(
                    "UPDATE tasks SET state = 'queued', reason = NULL, updated_at = {now}
                     WHERE id = $1 AND state = 'paused'",
                    args![task],
                )
                .await?;
            if rows > 0 {
                end_pause(&mut tx, task).await?;
                wake(&mut tx, task, Duration::ZERO).await?;
            }
            tx.commit().await?;
            Ok(rows > 0)
        })
        .await
    }

    async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError> {
        let (one, other) = row_states(filter.status);
        self.select::<TaskRow, _>(
            "tasks",
            "SELECT {columns} FROM tasks
             WHERE ($1 IS NULL OR state IN ($1, $2)) AND ($4 IS NULL OR assignee = $4)
               AND ($5 IS NULL OR number < $5)
             ORDER BY number DESC LIMIT $3",
            args![
                one,
                other,
                row_limit(filter.limit),
                filter.assignee.as_deref(),
                filter.before.map(|number| number.0),
            ],
        )
        .await
    }

    async fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        let by_id = "SELECT {columns} FROM tasks WHERE id = $1";
        let mut found = self.select::<TaskRow, _>("task", by_id, args![id]).await?;
        Ok(found.pop())
    }

    async fn task_by_number(&self, number: TaskNumber) -> Result<Option<Task>, StoreError> {
        let by_number = "SELECT {columns} FROM tasks WHERE number = $1";
        let mut found = self
            .select::<TaskRow, _>("task_by_number", by_number, args![number.0])
            .await?;
        Ok(found.pop())
    }

    async fn sessions(&self, task: Option<TaskId>, limit: u32) -> Result<Vec<Session>, StoreError> {
        self.select::<SessionRow, _>(
            "sessions",
            "SELECT {columns} FROM (
                 SELECT s.*, t.number AS task_number FROM sessions s JOIN tasks t ON t.id = s.task
             ) AS s WHERE $1 IS NULL OR task = $1 ORDER BY id DESC LIMIT $2",
            args![task, row_limit(limit)],
        )
        .await
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        let mut found = self
            .select::<SessionRow, _>(
                "session",
                "SELECT {columns} FROM (
                     SELECT s.*, t.number AS task_number FROM sessions s JOIN tasks t ON t.id = s.task
                 ) AS s WHERE id = $1",
                args![id],
            )
            .await?;
        Ok(found.pop())
    }
}

/// The row states that a public status covers.
fn row_states(status: Option<PublicStatus>) -> (Option<&'static str>, Option<&'static str>) {
    match status {
        None => (None, None),
        Some(PublicStatus::Open) => (Some("queued"), None),
        Some(PublicStatus::InProgress) => (Some("leased"), Some("paused")),
        Some(PublicStatus::Done) => (Some("done"), None),
        Some(PublicStatus::Failed) => (Some("failed"), None),
        Some(PublicStatus::Cancelled) => (Some("stopped"), None),
    }
}

/// 0 is no limit.
pub(super) fn row_limit(limit: u32) -> i64 {
    match limit {
        0 => i64::MAX,
        n => i64::from(n),
    }
}
