//! Finding tasks.

use agentmine_domain::{PublicStatus, Task, TaskNumber};
use agentmine_store::{Store, TaskFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ControlError;
use crate::input;
use crate::view::{DependencyView, SessionView, TaskDetails, TaskView};

/// Tasks in one answer, unless the caller names another number.
pub(crate) const LIMIT: u32 = 20;
/// At most so many in one answer.
pub(crate) const MAX_LIMIT: u32 = 500;

/// Which tasks to list.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskList {
    /// Only tasks with this status
    #[schemars(extend("enum" = ["open", "in_progress", "done", "failed", "cancelled"]))]
    pub status: Option<String>,
    /// Only tasks that are assigned to this name
    pub assignee: Option<String>,
    /// How many tasks at most, newest first
    #[schemars(extend("default" = 20, "minimum" = 1, "maximum" = 500))]
    pub limit: Option<u32>,
    /// Only tasks with a number below this one: the nextCursor of the previous answer
    pub cursor: Option<i64>,
}

/// A part of the list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskPage {
    /// The tasks, newest first.
    pub tasks: Vec<TaskView>,
    /// The cursor of the next part; null: there are no more.
    pub next_cursor: Option<i64>,
}

/// Lists tasks, newest first.
///
/// # Errors
/// [`ControlError::Validation`] for an unknown status or a limit out of range.
pub async fn list(store: &dyn Store, args: &TaskList) -> Result<TaskPage, ControlError> {
    let limit = limit_of(args.limit)?;
    let expected = "open, in_progress, done, failed or cancelled";
    let filter = TaskFilter {
        status: input::named::<PublicStatus>("status", args.status.as_deref(), expected)?,
        assignee: args.assignee.clone(),
        before: args.cursor.map(TaskNumber),
        // One more shows whether there are more.
        limit: limit + 1,
    };
    let mut found = store.tasks(&filter).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    Ok(TaskPage {
        next_cursor: found.last().filter(|_| more).map(|task| task.number.0),
        tasks: found.iter().map(TaskView::of).collect(),
    })
}

pub(crate) fn limit_of(limit: Option<u32>) -> Result<u32, ControlError> {
    match limit.unwrap_or(LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        limit => Err(ControlError::Validation(format!(
            "limit is {limit}, expected 1 to {MAX_LIMIT}"
        ))),
    }
}

/// Which task.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskGet {
    /// The task's number
    #[serde(alias = "id")]
    pub task_id: i64,
}

/// One task, with its dependencies and its sessions.
///
/// # Errors
/// [`ControlError::TaskNotFound`].
pub async fn get(store: &dyn Store, number: i64) -> Result<TaskDetails, ControlError> {
    let task = input::task(store, number).await?;
    details(store, &task).await
}

/// The same of a task that was found already.
pub(crate) async fn details(store: &dyn Store, task: &Task) -> Result<TaskDetails, ControlError> {
    let on = store.dependencies(task.id).await?;
    let sessions = store.sessions(Some(task.id), MAX_LIMIT).await?;
    Ok(TaskDetails {
        task: TaskView::of(task),
        depends_on: on.iter().map(DependencyView::from).collect(),
        sessions: sessions.iter().map(SessionView::of).collect(),
    })
}
