//! Sessions of clients outside of the fleet. They hold no lease: they are begun and ended by the person who runs the client.

use agentmine_domain::{
    AssigneeType, EndState, Session, SessionId, Task, TaskHome, TaskId, TaskState,
};
use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

use super::arg::args;
use super::db::{Db, Dialect};
use super::failure::Failure;
use super::people::{conflict, dependencies, locked, row_state, running, wake_waiting, working};
use super::row::{IdRow, SessionRow};
use super::store::SqlStore;
use crate::people::token;
use crate::{Begun, ExternalEnd, ExternalFinish, ExternalStore, NewExternal, StoreError};

const BY_START: &str = "SELECT id FROM sessions WHERE task = $1 AND start_token = $2";
const BY_END: &str = "SELECT id FROM sessions WHERE task = $1 AND end_token = $2";

#[async_trait]
impl<D: Dialect> ExternalStore for SqlStore<D> {
    async fn begin_external(&self, task: TaskId, new: &NewExternal) -> Result<Begun, StoreError> {
        let token = token();
        self.run("begin_external", || async {
            let mut tx = self.transaction().await?;
            let Some(row) = locked(&mut tx, task).await? else {
                return Ok(Begun::Missing);
            };
            if let Some(begun) = session_by(&mut tx, BY_START, task, token).await? {
                return Ok(Begun::Done(Box::new(begun)));
            }
            // Two starts at once: each must see whether the other one's task has the same files. After the row, as
            // everywhere.
            D::lock_plans(&mut tx).await?;
            if let Some(refused) = refusal(&mut tx, &row).await? {
                return Ok(refused);
            }
            let session = begin(&mut tx, task, new, token).await?;
            tx.commit().await?;
            Ok(Begun::Done(Box::new(session)))
        })
        .await
    }

    async fn end_external(
        &self,
        session: SessionId,
        end: &ExternalEnd,
    ) -> Result<ExternalFinish, StoreError> {
        let token = token();
        self.run("end_external", || async {
            let mut tx = self.transaction().await?;
            let of_session = "SELECT task AS id FROM sessions WHERE id = $1";
            let Some(task) = tx.row::<IdRow>(of_session, args![session]).await? else {
                return Ok(ExternalFinish::Missing);
            };
            let task = TaskId::try_from(task)?;
            let row = locked(&mut tx, task).await?;
            let row = row.ok_or_else(|| Failure::Fault("a session has no task".into()))?;
            if let Some(ended) = session_by(&mut tx, BY_END, task, token).await? {
                return Ok(ExternalFinish::Done(Box::new(ended), Box::new(row)));
            }
            let before = session_of(&mut tx, session).await?;
            if before.external.is_none() {
                return Ok(ExternalFinish::OfTheFleet);
            }
            if before.end.is_some() {
                return Ok(ExternalFinish::Over(Box::new(before)));
            }
            let row = finish(&mut tx, session, row, end, token).await?;
            let ended = session_of(&mut tx, session).await?;
            tx.commit().await?;
            Ok(ExternalFinish::Done(Box::new(ended), Box::new(row)))
        })
        .await
    }

    async fn set_worktree(&self, session: SessionId, worktree: &str) -> Result<(), StoreError> {
        self.execute(
            "set_worktree",
            "UPDATE sessions SET worktree = $2 WHERE id = $1 AND client IS NOT NULL",
            args![session, worktree],
        )
        .await?;
        Ok(())
    }

    async fn discard_external(&self, session: SessionId) -> Result<(), StoreError> {
        self.run("discard_external", || async {
            let mut tx = self.transaction().await?;
            let ended = tx
                .execute(
                    "UPDATE sessions SET ended_at = {now}, ending = 'released',
                         reason = 'its work tree could not be made'
                     WHERE id = $1 AND client IS NOT NULL AND ended_at IS NULL",
                    args![session],
                )
                .await?;
            if ended > 0 {
                tx.execute(
                    "UPDATE tasks SET state = 'queued', updated_at = {now}
                     WHERE {state} = 'paused' AND origin = 'person'
                       AND id = (SELECT task FROM sessions WHERE id = $1)",
                    args![session],
                )
                .await?;
            }
            tx.commit().await
        })
        .await
    }
}

async fn refusal<D: Dialect>(tx: &mut Db<D>, row: &Task) -> Result<Option<Begun>, Failure> {
    match row.home() {
        TaskHome::Item | TaskHome::Repository => return Ok(Some(Begun::OfTheFleet)),
        TaskHome::People => {}
    }
    if let Some(session) = running(tx, row.id).await? {
        return Ok(Some(Begun::Running(session)));
    }
    if let Some(session) = working(tx, row.id).await? {
        return Ok(Some(Begun::Running(session)));
    }
    match row.state {
        TaskState::Queued | TaskState::Paused | TaskState::Leased(_) => {}
        TaskState::Ended(_) => return Ok(Some(Begun::Over(row.state))),
    }
    match row.card.assignee_type {
        AssigneeType::Human => return Ok(Some(Begun::Human)),
        AssigneeType::Ai => {}
    }
    let mut open = dependencies(tx, row.id).await?;
    open.retain(|on| on.state != TaskState::Ended(EndState::Done));
    if !open.is_empty() {
        return Ok(Some(Begun::Waits(open)));
    }
    Ok(conflict(tx, row).await?.map(Begun::Conflict))
}

async fn begin<D: Dialect>(
    tx: &mut Db<D>,
    task: TaskId,
    new: &NewExternal,
    token: Uuid,
) -> Result<Session, Failure> {
    let epoch: Option<i64> = tx
        .scalar(
            "UPDATE tasks SET state = 'paused', reason = NULL, epoch = epoch + 1, attempt = attempt + 1,
                 updated_at = {now}
             WHERE id = $1 RETURNING epoch",
            args![task],
        )
        .await?;
    let worker = format!("external/{}", new.client);
    let id: Option<i64> = tx
        .scalar(
            "INSERT INTO sessions (task, epoch, worker, started_at, client, agent, worktree, start_token)
             VALUES ($1, $2, $3, {now}, $4, $5, $6, $7) RETURNING id",
            args![
                task,
                epoch.unwrap_or(0),
                &worker,
                &new.client,
                &new.agent,
                new.worktree.as_deref(),
                token,
            ],
        )
        .await?;
    session_of(tx, SessionId(id.unwrap_or(0))).await
}

async fn finish<D: Dialect>(
    tx: &mut Db<D>,
    session: SessionId,
    row: Task,
    end: &ExternalEnd,
    token: Uuid,
) -> Result<Task, Failure> {
    let ending = if end.succeeded() { "done" } else { "failed" };
    let artifacts = Value::Array(end.artifacts.clone()).to_string();
    let error = end.error.as_ref().map(Value::to_string);
    let reason = end.reason();
    tx.execute(
        "UPDATE sessions SET ended_at = {now}, ending = $2, reason = $3, exit_code = $4, signal = $5,
             dod_result = $6, artifacts = $7, error = $8, end_token = $9
         WHERE id = $1",
        args![
            session,
            ending,
            reason.as_deref(),
            end.exit_code,
            end.signal.as_deref(),
            end.dod_result.as_str(),
            &artifacts,
            error.as_deref(),
            token,
        ],
    )
    .await?;
    tx.execute(
        "UPDATE tasks SET state = $2, reason = $3, updated_at = {now}
         WHERE id = $1 AND {state} = 'paused' AND origin = 'person'",
        args![row.id, row_state(end.task_status()), reason.as_deref()],
    )
    .await?;
    wake_waiting(tx, row.id).await?;
    let after = locked(tx, row.id).await?;
    Ok(after.unwrap_or(row))
}

async fn session_of<D: Dialect>(tx: &mut Db<D>, session: SessionId) -> Result<Session, Failure> {
    let row: Option<SessionRow> = tx
        .row(
            "SELECT {columns} FROM (
                 SELECT s.*, t.number AS task_number FROM sessions s JOIN tasks t ON t.id = s.task
             ) AS s WHERE id = $1",
            args![session],
        )
        .await?;
    let row = row.ok_or_else(|| Failure::Fault("a session vanished".into()))?;
    Session::try_from(row)
}

/// The session that this call has begun or ended already.
async fn session_by<D: Dialect>(
    tx: &mut Db<D>,
    by_token: &'static str,
    task: TaskId,
    token: Uuid,
) -> Result<Option<Session>, Failure> {
    match tx.scalar::<i64>(by_token, args![task, token]).await? {
        Some(id) => session_of(tx, SessionId(id)).await.map(Some),
        None => Ok(None),
    }
}
