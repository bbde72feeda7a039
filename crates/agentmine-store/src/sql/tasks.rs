//! What people ask of tasks, and what they see of them.

use std::collections::HashMap;

use agentmine_domain::{
    CommandRecord, EffectKey, Obeyed, Order, PublicStatus, Session, SessionId, Task, TaskId,
    TaskNumber, credentials_reason,
};
use async_trait::async_trait;

use super::arg::{Arg, args};
use super::db::{Db, Dialect};
use super::effects::end_pause;
use super::enqueue::wake_now;
use super::failure::Failure;
use super::row::{SessionRow, TaskRow};
use super::store::SqlStore;
use crate::{SessionFilter, StoreError, TaskFilter, TaskStore, WhichSessions};

/// Task, reason.
const STOP: &str = "UPDATE tasks SET
         request = CASE state WHEN 'leased' THEN 'stop' END,
         request_reason = CASE state WHEN 'leased' THEN $2 END,
         reason = CASE state WHEN 'leased' THEN reason ELSE $2 END,
         state = CASE state WHEN 'leased' THEN 'leased' ELSE 'stopped' END,
         updated_at = {now}
     WHERE id = $1 AND {state} IN ('queued', 'leased', 'paused')";
/// Task, reason, beginning of the reason of a pause that a producer ends when the credentials are accepted. An earlier stop
/// request stays: it is the stronger one.
const PAUSE: &str = "UPDATE tasks SET
         request = CASE state WHEN 'leased' THEN COALESCE(request, 'pause') END,
         request_reason = CASE WHEN state <> 'leased' THEN NULL
                               WHEN request = 'stop' THEN request_reason ELSE $2 END,
         reason = CASE WHEN state = 'queued' OR (state = 'paused' AND substr(reason, 1, length($3)) = $3)
                       THEN $2 ELSE reason END,
         state = CASE state WHEN 'leased' THEN 'leased' ELSE 'paused' END,
         updated_at = {now}
     WHERE id = $1 AND {state} IN ('queued', 'leased', 'paused')";

#[async_trait]
impl<D: Dialect> TaskStore for SqlStore<D> {
    async fn request_stop(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        let rows = self
            .execute("request_stop", STOP, args![task, reason])
            .await?;
        Ok(rows > 0)
    }

    async fn request_pause(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        let waits = credentials_reason("");
        let rows = self
            .execute("request_pause", PAUSE, args![task, reason, &waits])
            .await?;
        Ok(rows > 0)
    }

    async fn obey(
        &self,
        task: TaskId,
        key: &EffectKey,
        order: Order<'_>,
    ) -> Result<Obeyed, StoreError> {
        self.run("obey", || async {
            let mut tx = self.transaction().await?;
            if let Some(before) = obeyed_before(&mut tx, task, key).await? {
                return Ok(before);
            }
            let changed = match order {
                Order::Stop(reason) => tx.execute(STOP, args![task, reason]).await? > 0,
                Order::Pause(reason) => {
                    let waits = credentials_reason("");
                    tx.execute(PAUSE, args![task, reason, &waits]).await? > 0
                }
                Order::Resume => resume(&mut tx, task).await?,
                Order::SkipDelay => skip_delay(&mut tx, task).await?,
                Order::Remember => false,
            };
            let record = CommandRecord {
                changed: Some(changed),
                said: None,
            };
            let result = serde_json::to_string(&record)?;
            tx.execute(
                "INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
                 VALUES ($1, $2, $3, $4, $5, {now}, {now})",
                args![task, key.kind().as_str(), key.key(), key.epoch(), &result],
            )
            .await?;
            tx.commit().await?;
            Ok(Obeyed::Now { changed })
        })
        .await
    }

    async fn request_reason(&self, task: TaskId) -> Result<Option<String>, StoreError> {
        self.run("request_reason", || async {
            let mut db = self.connection().await?;
            let reason: Option<Option<String>> = db
                .scalar(
                    "SELECT request_reason FROM tasks WHERE id = $1",
                    args![task],
                )
                .await?;
            Ok(reason.flatten())
        })
        .await
    }

    async fn skip_delay(&self, task: TaskId) -> Result<bool, StoreError> {
        self.run("skip_delay", || async {
            let mut tx = self.transaction().await?;
            let waits = skip_delay(&mut tx, task).await?;
            tx.commit().await?;
            Ok(waits)
        })
        .await
    }

    async fn resume(&self, task: TaskId) -> Result<bool, StoreError> {
        self.run("resume", || async {
            let mut tx = self.transaction().await?;
            let was_paused = resume(&mut tx, task).await?;
            tx.commit().await?;
            Ok(was_paused)
        })
        .await
    }

    async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, StoreError> {
        let TaskFilter {
            status,
            assignee,
            before,
            limit,
        } = filter;
        let before = before.map_or(i64::MAX, |number| number.0);
        let mut args = vec![Arg::from(before), Arg::from(row_limit(*limit))];
        args.extend(status.map(listed_as).map(Arg::from));
        args.extend(assignee.as_deref().map(Arg::from));
        let listing = listing(status.is_some(), assignee.is_some());
        self.select::<TaskRow, _>("tasks", listing, &args).await
    }

    async fn queued_and_leased(&self) -> Result<(u64, u64), StoreError> {
        // One statement for each, so that each has its own index.
        const QUEUED: &str = "SELECT count(*) FROM tasks WHERE state = 'queued' AND {of fleet}";
        const LEASED: &str = "SELECT count(*) FROM tasks WHERE state = 'leased'";
        self.run("queued_and_leased", || async {
            let mut db = self.connection().await?;
            let queued: Option<i64> = db.scalar(QUEUED, &[]).await?;
            let leased: Option<i64> = db.scalar(LEASED, &[]).await?;
            let count = |found: Option<i64>| found.unwrap_or(0).unsigned_abs();
            Ok((count(queued), count(leased)))
        })
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

    async fn list_sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError> {
        let SessionFilter {
            task,
            which,
            before,
            limit,
        } = filter;
        let before = before.map_or(i64::MAX, |session| session.0);
        let mut args = vec![Arg::from(before), Arg::from(row_limit(*limit))];
        args.extend(task.map(Arg::from));
        let listing = session_listing(task.is_some(), *which);
        self.select::<SessionRow, _>("list_sessions", listing, &args)
            .await
    }

    async fn sessions_with_tasks(
        &self,
        which: WhichSessions,
        limit: u32,
    ) -> Result<Vec<(Session, Task)>, StoreError> {
        let limit = row_limit(limit);
        let sessions = session_listing(false, Some(which));
        let tasks = match which {
            WhichSessions::Running => TASKS_OF_RUNNING,
            WhichSessions::Ended => TASKS_OF_ENDED,
        };
        self.run("sessions_with_tasks", || async {
            let mut db = self.connection().await?;
            let rows: Vec<SessionRow> = db.rows(sessions, args![i64::MAX, limit]).await?;
            // A session that began since has its task among these; one that ended since may not.
            let mut of: HashMap<TaskId, Task> = HashMap::new();
            for row in db.rows::<TaskRow>(tasks, args![limit]).await? {
                let task = Task::try_from(row)?;
                of.insert(task.id, task);
            }
            let mut found = Vec::new();
            for row in rows {
                let session = Session::try_from(row)?;
                if let Some(task) = of.get(&session.task) {
                    found.push((session, task.clone()));
                }
            }
            Ok(found)
        })
        .await
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        let mut found = self
            .select::<SessionRow, _>("session", SESSION, args![id])
            .await?;
        Ok(found.pop())
    }
}

/// What came of a command, if this task or another one of its item has obeyed it.
async fn obeyed_before<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
    key: &EffectKey,
) -> Result<Option<Obeyed>, Failure> {
    // Two processes may have found it at once.
    let locked: Option<i32> = tx
        .scalar("SELECT 1 FROM tasks WHERE id = $1{lock}", args![task])
        .await?;
    if locked.is_none() {
        return Err(Failure::Fault(format!("there is no task {task}")));
    }
    let names = args![task, key.kind().as_str(), key.key()];
    let own: Option<String> = tx
        .scalar(
            "SELECT result FROM effects WHERE task = $1 AND kind = $2 AND key = $3 AND result IS NOT NULL",
            names,
        )
        .await?;
    if let Some(result) = own {
        let record: Option<CommandRecord> = serde_json::from_str(&result)?;
        let changed = record.and_then(|it| it.changed).unwrap_or_default();
        return Ok(Some(Obeyed::Before { changed }));
    }
    let another: Option<i32> = tx
        .scalar(
            "SELECT 1 FROM tasks own JOIN tasks t ON t.item_key = own.item_key
                                     JOIN effects e ON e.task = t.id
             WHERE own.id = $1 AND e.kind = $2 AND e.key = $3 LIMIT 1",
            names,
        )
        .await?;
    Ok(another.map(|_| Obeyed::ByAnother))
}

/// Whether the task was paused.
async fn resume<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<bool, Failure> {
    let rows = tx
        .execute(
            "UPDATE tasks SET state = 'queued', reason = NULL, updated_at = {now}
             WHERE id = $1 AND {state} = 'paused'",
            args![task],
        )
        .await?;
    if rows > 0 {
        end_pause(tx, task).await?;
        // It may have been paused during a delay.
        wake_now(tx, task).await?;
    }
    Ok(rows > 0)
}

/// Whether the task waited for the end of a delay.
async fn skip_delay<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<bool, Failure> {
    let waits: Option<i32> = tx
        .scalar(
            "SELECT 1 FROM tasks t WHERE id = $1 AND {state} = 'queued'
               AND EXISTS (SELECT 1 FROM outbox o WHERE o.task = t.id AND o.sent_at IS NULL
                             AND o.due_at > {now}){lock}",
            args![task],
        )
        .await?;
    if waits.is_some() {
        wake_now(tx, task).await?;
    }
    Ok(waits.is_some())
}

/// The statement that lists tasks by these. Each has its own index: no listing reads tasks that it does not show.
fn listing(by_status: bool, by_assignee: bool) -> &'static str {
    match (by_status, by_assignee) {
        (false, false) => {
            "SELECT {columns} FROM tasks WHERE number < $1 ORDER BY number DESC LIMIT $2"
        }
        (true, false) => {
            "SELECT {columns} FROM tasks
             WHERE CASE state WHEN 'paused' THEN 'leased' ELSE state END = $3 AND number < $1
             ORDER BY number DESC LIMIT $2"
        }
        (false, true) => {
            "SELECT {columns} FROM tasks WHERE assignee = $3 AND number < $1
             ORDER BY number DESC LIMIT $2"
        }
        (true, true) => {
            "SELECT {columns} FROM tasks
             WHERE assignee = $4 AND CASE state WHEN 'paused' THEN 'leased' ELSE state END = $3 AND number < $1
             ORDER BY number DESC LIMIT $2"
        }
    }
}

// The number of the task comes from a subquery: as a join, Postgres would read all tasks for a long list.
const SESSION: &str = "SELECT {columns} FROM (
         SELECT s.*, (SELECT number FROM tasks t WHERE t.id = s.task) AS task_number FROM sessions s
     ) AS s WHERE id = $1";

const TASKS_OF_RUNNING: &str = "SELECT {columns} FROM tasks
     WHERE id IN (SELECT task FROM sessions WHERE ended_at IS NULL ORDER BY id DESC LIMIT $1)";
const TASKS_OF_ENDED: &str = "SELECT {columns} FROM tasks
     WHERE id IN (SELECT task FROM sessions WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT $1)";

macro_rules! session_listing {
    ($filter:literal) => {
        concat!(
            "SELECT {columns} FROM (
                 SELECT s.*, (SELECT number FROM tasks t WHERE t.id = s.task) AS task_number FROM sessions s
                 WHERE s.id < $1",
            $filter,
            ") AS s ORDER BY id DESC LIMIT $2"
        )
    };
}

/// One statement for each filter, so that each has its own index.
fn session_listing(of_task: bool, which: Option<WhichSessions>) -> &'static str {
    match (of_task, which) {
        (false, None) => session_listing!(""),
        (false, Some(WhichSessions::Running)) => session_listing!(" AND s.ended_at IS NULL"),
        (false, Some(WhichSessions::Ended)) => session_listing!(" AND s.ended_at IS NOT NULL"),
        (true, None) => session_listing!(" AND s.task = $3"),
        (true, Some(WhichSessions::Running)) => {
            session_listing!(" AND s.task = $3 AND s.ended_at IS NULL")
        }
        (true, Some(WhichSessions::Ended)) => {
            session_listing!(" AND s.task = $3 AND s.ended_at IS NOT NULL")
        }
    }
}

/// The state under which the index by status has a task: the paused ones are among the leased.
fn listed_as(status: PublicStatus) -> &'static str {
    match status {
        PublicStatus::Open => "queued",
        PublicStatus::InProgress => "leased",
        PublicStatus::Done => "done",
        PublicStatus::Failed => "failed",
        PublicStatus::Cancelled => "stopped",
    }
}

/// 0 is no limit.
pub(super) fn row_limit(limit: u32) -> i64 {
    match limit {
        0 => i64::MAX,
        n => i64::from(n),
    }
}
