//! Tasks that people make and change.
//!
//! A task of a person has no item. One for a repository of a tracker is worked on by the fleet like any other; in its row it
//! has the number 0, which no item of a tracker has, so that no program of an earlier version takes an issue for it. The
//! others are of a host that no tracker serves: such a row is `queued` while it is open, and `paused` while somebody works on
//! it; no worker claims it in either state.

use std::time::Duration;

use agentmine_domain::{
    AssigneeType, EndState, PEOPLE_HOST, PublicStatus, RepositoryRef, SessionId, Task, TaskHome,
    TaskId, TaskNumber, TaskState, TrackerKind,
};
use async_trait::async_trait;
use chrono::{DateTime, TimeZone as _, Utc};
use uuid::Uuid;

use super::arg::args;
use super::db::{Db, Dialect};
use super::enqueue::wake;
use super::failure::Failure;
use super::row::{DependencyRow, IdRow, ScopeRow, TaskRow, priority_number, scope};
use super::store::SqlStore;
use crate::people::token;
use crate::{Dependency, Edited, NewPersonTask, PeopleStore, ScopeConflict, StoreError, TaskEdit};

#[async_trait]
impl<D: Dialect> PeopleStore for SqlStore<D> {
    async fn create_task(&self, new: &NewPersonTask) -> Result<Edited, StoreError> {
        let id = TaskId::new();
        self.run("create_task", || async {
            let mut tx = self.transaction().await?;
            // An earlier attempt may have been committed after all.
            if let Some(made) = locked(&mut tx, id).await? {
                return Ok(Edited::Done(Box::new(made)));
            }
            D::lock_numbers(&mut tx).await?;
            if let Some(retried) = new.retries
                && let Some(known) = attempt_at(&mut tx, retried).await?
            {
                return Ok(Edited::Retried(Box::new(known)));
            }
            let task = insert(&mut tx, id, new).await?;
            if let Some(refused) = depend(&mut tx, id, &new.depends_on).await? {
                return Ok(refused);
            }
            wake(&mut tx, id, Duration::ZERO).await?;
            tx.commit().await?;
            Ok(Edited::Done(Box::new(task)))
        })
        .await
    }

    async fn edit_task(&self, task: TaskId, edit: &TaskEdit) -> Result<Edited, StoreError> {
        let token = token();
        self.run("edit_task", || async {
            let mut tx = self.transaction().await?;
            let Some(before) = locked(&mut tx, task).await? else {
                return Ok(Edited::Missing);
            };
            if let Some(done) = edited_by(&mut tx, task, token).await? {
                return Ok(Edited::Done(Box::new(done)));
            }
            if let Some(refused) = refusal(&mut tx, &before, edit).await? {
                return Ok(refused);
            }
            if let Some(numbers) = &edit.depends_on
                && let Some(refused) = depend(&mut tx, task, numbers).await?
            {
                return Ok(refused);
            }
            let after = write(&mut tx, &before, edit, token).await?;
            follow(&mut tx, &before, &after).await?;
            tx.commit().await?;
            Ok(Edited::Done(Box::new(after)))
        })
        .await
    }

    async fn dependencies(&self, task: TaskId) -> Result<Vec<Dependency>, StoreError> {
        self.run("dependencies", || async {
            dependencies(&mut self.connection().await?, task).await
        })
        .await
    }

    async fn scope_conflict(&self, task: &Task) -> Result<Option<ScopeConflict>, StoreError> {
        self.run("scope_conflict", || async {
            conflict(&mut self.connection().await?, task).await
        })
        .await
    }

    async fn due_at(&self, task: TaskId) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.run("due_at", || async {
            let due = "SELECT {millis(}min(due_at) - {epoch}{)millis} FROM outbox
                       WHERE task = $1 AND sent_at IS NULL AND due_at > {now}";
            time(&mut self.connection().await?, due, task).await
        })
        .await
    }

    async fn lease_ran_out_at(&self, task: TaskId) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.run("lease_ran_out_at", || async {
            let ran_out = "SELECT {millis(}lease_until - {epoch}{)millis} FROM tasks
                           WHERE id = $1 AND {state} = 'leased' AND lease_until <= {now}";
            time(&mut self.connection().await?, ran_out, task).await
        })
        .await
    }
}

/// A time that a statement selects for a task, in milliseconds since the epoch.
async fn time<D: Dialect>(
    db: &mut Db<D>,
    statement: &'static str,
    task: TaskId,
) -> Result<Option<DateTime<Utc>>, Failure> {
    let millis: Option<Option<i64>> = db.scalar(statement, args![task]).await?;
    let at = |millis| Utc.timestamp_millis_opt(millis).single();
    Ok(millis.flatten().and_then(at))
}

/// The row, locked.
pub(super) async fn locked<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
) -> Result<Option<Task>, Failure> {
    let by_id = "SELECT {columns} FROM tasks WHERE id = $1{lock}";
    let row: Option<TaskRow> = tx.row(by_id, args![task]).await?;
    row.map(Task::try_from).transpose()
}

/// The number of the session that a worker of AgentMine runs.
pub(super) async fn working<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
) -> Result<Option<SessionId>, Failure> {
    let open = "SELECT id FROM sessions WHERE task = $1 AND ended_at IS NULL AND client IS NULL";
    Ok(tx.scalar(open, args![task]).await?.map(SessionId))
}

/// The number of the session of an external client that is running.
pub(super) async fn running<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
) -> Result<Option<SessionId>, Failure> {
    let open =
        "SELECT id FROM sessions WHERE task = $1 AND ended_at IS NULL AND client IS NOT NULL";
    Ok(tx.scalar(open, args![task]).await?.map(SessionId))
}

pub(super) async fn dependencies<D: Dialect>(
    db: &mut Db<D>,
    task: TaskId,
) -> Result<Vec<Dependency>, Failure> {
    let rows: Vec<DependencyRow> = db
        .rows(
            "SELECT {columns} FROM tasks
             WHERE id IN (SELECT depends_on FROM task_dependencies WHERE task = $1) ORDER BY number",
            args![task],
        )
        .await?;
    rows.into_iter().map(Dependency::try_from).collect()
}

/// A running task of the same repository that may change the same files.
pub(super) async fn conflict<D: Dialect>(
    db: &mut Db<D>,
    task: &Task,
) -> Result<Option<ScopeConflict>, Failure> {
    if task.card.write_scope.is_unknown() {
        return Ok(None);
    }
    let running: Vec<ScopeRow> = db
        .rows(
            "SELECT {columns} FROM tasks
             WHERE id <> $1 AND tracker = $2 AND host = $3 AND repo_id = $4 AND {holds files}
             ORDER BY number",
            args![
                task.id,
                task.item.tracker.as_str(),
                &task.item.host,
                &task.item.repo_id
            ],
        )
        .await?;
    for row in running {
        let theirs = scope(&row.write_scope)?;
        if let Some((own, their)) = task.card.write_scope.conflict(&theirs) {
            return Ok(Some(ScopeConflict {
                number: TaskNumber(row.number),
                own: own.to_owned(),
                their: their.to_owned(),
            }));
        }
    }
    Ok(None)
}

/// The ends of a task concern others: those that depend on it, and those whose files it held. Nearly always there are none:
/// that is found without a look at all that wait.
pub(super) async fn wake_waiting<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<(), Failure> {
    let concerned: Vec<IdRow> = tx
        .rows(
            "SELECT t.id FROM task_dependencies d JOIN tasks t ON t.id = d.task
             WHERE d.depends_on = $1 AND t.id <> $1
             UNION
             SELECT t.id FROM tasks ended
             JOIN tasks t ON t.tracker = ended.tracker AND t.host = ended.host AND t.repo_id = ended.repo_id
             WHERE ended.id = $1 AND ended.write_scope <> '' AND t.id <> $1 AND t.write_scope <> ''
               AND t.state IN ('queued', 'leased') AND t.waits_for IS NULL
             ORDER BY 1",
            args![task],
        )
        .await?;
    for IdRow { id } in concerned {
        tx.execute(
            "INSERT INTO outbox (task, due_at)
             SELECT id, {now} FROM tasks WHERE id = $1 AND {state} = 'queued' AND {of fleet}
               AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.task = tasks.id AND o.sent_at IS NULL)",
            args![TaskId::from(id)],
        )
        .await?;
    }
    Ok(())
}

/// The key of another attempt at a task, which is unique.
fn key_of_attempt_at(task: TaskId) -> String {
    format!("retry|{task}")
}

/// The other attempt at a task, if there is one.
async fn attempt_at<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<Option<Task>, Failure> {
    let by_key = "SELECT {columns} FROM tasks WHERE dedup_key = $1";
    let row: Option<TaskRow> = tx.row(by_key, args![&key_of_attempt_at(task)]).await?;
    row.map(Task::try_from).transpose()
}

async fn insert<D: Dialect>(
    tx: &mut Db<D>,
    id: TaskId,
    new: &NewPersonTask,
) -> Result<Task, Failure> {
    let NewPersonTask {
        title,
        description,
        priority,
        kind,
        assignee,
        assignee_type,
        agent,
        depends_on: _,
        write_scope,
        repository,
        retries,
    } = new;
    let nowhere = RepositoryRef {
        tracker: TrackerKind::Local,
        host: PEOPLE_HOST.to_owned(),
        repo_id: "people".to_owned(),
        repo_path: "people".to_owned(),
    };
    let place = repository.as_ref().unwrap_or(&nowhere);
    let key = format!("{}|{}|{}|task|", place.tracker, place.host, place.repo_id);
    let row: Option<TaskRow> = tx
        .row(
            "INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind,
                 item_number, item_key, trigger_event, dedup_key, title, url, priority, created_at,
                 updated_at, end_reported, origin, task_type, description, assignee, assignee_type,
                 write_scope, agent)
             SELECT $1, n, $10, $11, $12, $13, 'issue', CASE WHEN $15 = 1 THEN n ELSE 0 END,
                 $14 || n, 'created', COALESCE($16, $14 || n || '|created'), $2, 'task://' || n, $3, {now}, {now},
                 $15 = 1, 'person', $4, $5, $6, $7, $8, $9
             FROM (SELECT COALESCE(max(number), 0) + 1 AS n FROM tasks) AS next
             RETURNING {columns}",
            args![
                id,
                title,
                priority_number(*priority),
                kind.as_str(),
                description,
                assignee.as_deref(),
                assignee_type.as_str(),
                &write_scope.to_string(),
                agent.as_deref(),
                place.tracker.as_str(),
                &place.host,
                &place.repo_id,
                &place.repo_path,
                &key,
                i64::from(repository.is_none()),
                retries.map(key_of_attempt_at).as_deref(),
            ],
        )
        .await?;
    let row = row.ok_or_else(|| Failure::Fault("a new task vanished".into()))?;
    Task::try_from(row)
}

/// Replaces the dependencies of a task, or returns why that is not possible.
async fn depend<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
    numbers: &[TaskNumber],
) -> Result<Option<Edited>, Failure> {
    // Two changes at once could each close one half of a circle.
    D::lock_plans(tx).await?;
    tx.execute("DELETE FROM task_dependencies WHERE task = $1", args![task])
        .await?;
    for number in numbers {
        let by_number = "SELECT {columns} FROM tasks WHERE number = $1";
        let Some(found) = tx.row::<IdRow>(by_number, args![number.0]).await? else {
            return Ok(Some(Edited::NoDependency(*number)));
        };
        let on = TaskId::try_from(found)?;
        let reached: Option<i32> = tx
            .scalar(
                "WITH RECURSIVE reached(id) AS (
                     SELECT id FROM tasks WHERE id = $1
                     UNION SELECT d.depends_on FROM task_dependencies d JOIN reached ON d.task = reached.id)
                 SELECT 1 FROM reached WHERE id = $2",
                args![on, task],
            )
            .await?;
        if reached.is_some() {
            return Ok(Some(Edited::Cycle(*number)));
        }
        tx.execute(
            "INSERT INTO task_dependencies (task, depends_on) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            args![task, on],
        )
        .await?;
    }
    Ok(None)
}

/// The row, if this call has changed it already.
async fn edited_by<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
    token: Uuid,
) -> Result<Option<Task>, Failure> {
    let by_token = "SELECT {columns} FROM tasks WHERE id = $1 AND edit_token = $2";
    let row: Option<TaskRow> = tx.row(by_token, args![task, token]).await?;
    row.map(Task::try_from).transpose()
}

async fn refusal<D: Dialect>(
    tx: &mut Db<D>,
    before: &Task,
    edit: &TaskEdit,
) -> Result<Option<Edited>, Failure> {
    if edit.version.is_some_and(|seen| seen != before.card.version) {
        return Ok(Some(Edited::Outdated(before.card.version)));
    }
    let to_a_person = edit.assignee_type == Some(AssigneeType::Human);
    if to_a_person && matches!(before.state, TaskState::Leased(_)) {
        return Ok(Some(Edited::Leased));
    }
    // The state of a leased row is its worker's; a request to stop goes through `request_stop`.
    if edit.status.is_some()
        && matches!(before.state, TaskState::Leased(_))
        && let Some(session) = working(tx, before.id).await?
    {
        return Ok(Some(Edited::Running(session)));
    }
    let changes_status = edit
        .status
        .as_ref()
        .is_some_and(|(status, _)| *status != PublicStatus::Cancelled);
    if (changes_status || to_a_person)
        && let Some(session) = running(tx, before.id).await?
    {
        return Ok(Some(Edited::Running(session)));
    }
    Ok(None)
}

async fn write<D: Dialect>(
    tx: &mut Db<D>,
    before: &Task,
    edit: &TaskEdit,
    token: Uuid,
) -> Result<Task, Failure> {
    let TaskEdit {
        version: _,
        title,
        description,
        priority,
        kind,
        assignee,
        assignee_type,
        agent,
        depends_on: _,
        write_scope,
        status,
    } = edit;
    let card = &before.card;
    let assignee = assignee.as_ref().unwrap_or(&card.assignee);
    let agent = agent.as_ref().unwrap_or(&card.agent);
    let scope = write_scope.as_ref().unwrap_or(&card.write_scope);
    let (state, reason) = match (status, before.home()) {
        (Some((status, why)), TaskHome::People) => (row_state(*status), why.as_deref()),
        (Some(_), TaskHome::Item | TaskHome::Repository) | (None, _) => {
            (before.state.as_str(), before.reason.as_deref())
        }
    };
    // The end of a task of the fleet stays when it was: retention and capacity count from it.
    let is_over = matches!(before.state, TaskState::Ended(_)) && before.home() != TaskHome::People;
    let row: Option<TaskRow> = tx
        .row(
            "UPDATE tasks SET title = $2, description = $3, priority = $4, task_type = $5, assignee = $6,
                 assignee_type = $7, write_scope = $8, state = $9, reason = $10, edit_token = $11, agent = $12,
                 version = version + 1, updated_at = CASE $13 WHEN 0 THEN {now} ELSE updated_at END,
                 journal_removed = journal_removed AND $9 IN ('done', 'failed', 'stopped'),
                 effects_removed = effects_removed AND $9 IN ('done', 'failed', 'stopped')
             WHERE id = $1 RETURNING {columns}",
            args![
                before.id,
                title.as_ref().unwrap_or(&before.title),
                description.as_ref().unwrap_or(&card.description),
                priority_number(priority.unwrap_or(before.priority)),
                kind.unwrap_or(card.kind).as_str(),
                assignee.as_deref(),
                assignee_type.unwrap_or(card.assignee_type).as_str(),
                &scope.to_string(),
                state,
                reason,
                token,
                agent.as_deref(),
                i64::from(is_over),
            ],
        )
        .await?;
    let row = row.ok_or_else(|| Failure::Fault("a locked task vanished".into()))?;
    Task::try_from(row)
}

/// What follows from a change: a waiting task may be ready now, and so may those that waited for it.
async fn follow<D: Dialect>(tx: &mut Db<D>, before: &Task, after: &Task) -> Result<(), Failure> {
    match (after.home(), after.state) {
        (TaskHome::Item | TaskHome::Repository, TaskState::Queued) => {
            let unsent: Option<i32> = tx
                .scalar(
                    "SELECT 1 FROM outbox WHERE task = $1 AND sent_at IS NULL LIMIT 1",
                    args![after.id],
                )
                .await?;
            match unsent {
                Some(_) => Ok(()),
                None => wake(tx, after.id, Duration::ZERO).await,
            }
        }
        (TaskHome::People, TaskState::Ended(end)) if before.state != after.state => {
            if end == EndState::Stopped {
                tx.execute(
                    "UPDATE sessions SET ended_at = {now}, ending = 'stopped', reason = $2
                     WHERE task = $1 AND ended_at IS NULL",
                    args![
                        after.id,
                        after.reason.as_deref().unwrap_or("the task was cancelled")
                    ],
                )
                .await?;
            }
            wake_waiting(tx, after.id).await
        }
        (TaskHome::Item | TaskHome::Repository | TaskHome::People, _) => Ok(()),
    }
}

/// The state of a row of a person's task.
pub(super) fn row_state(status: PublicStatus) -> &'static str {
    match status {
        PublicStatus::Open => "queued",
        PublicStatus::InProgress => "paused",
        PublicStatus::Done => "done",
        PublicStatus::Failed => "failed",
        PublicStatus::Cancelled => "stopped",
    }
}
