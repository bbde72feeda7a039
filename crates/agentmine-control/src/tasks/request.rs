//! Requests to the fleet, and the same for tasks of people.

use agentmine_domain::{ItemRef, NewTask, PublicStatus, RepositoryRef, Task, TaskHome, TaskState};
use agentmine_store::{Enqueued, NewPersonTask, Store, TaskEdit};
use schemars::JsonSchema;
use serde::Deserialize;

use super::edit::edited;
use super::list::details;
use crate::view::TaskDetails;
use crate::{ControlError, input};

/// A request about a task.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRequest {
    /// The task's number
    #[serde(alias = "id")]
    pub task_id: i64,
    /// The reason, shown to people
    pub reason: Option<String>,
}

impl TaskRequest {
    fn reason(&self, otherwise: &str) -> Result<String, ControlError> {
        let named = self.reason.as_deref().map(input::title).transpose()?;
        Ok(named.unwrap_or_else(|| otherwise.to_owned()))
    }
}

/// Ends a task for good: at once if nobody works on it, else as soon as its worker notices. A running session of a
/// client is ended.
///
/// # Errors
/// [`ControlError::InvalidStatus`] if it is over already.
pub async fn cancel(store: &dyn Store, args: &TaskRequest) -> Result<TaskDetails, ControlError> {
    let task = input::task(store, args.task_id).await?;
    let reason = args.reason("cancelled by hand")?;
    if let TaskState::Ended(_) = task.state {
        return Err(wrong(&task, "expected one that is not over"));
    }
    match task.home() {
        TaskHome::People if !matches!(task.state, TaskState::Leased(_)) => {
            set_status(store, &task, PublicStatus::Cancelled, Some(reason)).await?;
        }
        TaskHome::People | TaskHome::Item | TaskHome::Repository => {
            if !store.request_stop(task.id, &reason).await? {
                return Err(wrong(&task, "and has ended meanwhile"));
            }
        }
    }
    now(store, &task).await
}

/// Pauses a task of the fleet until it is resumed.
///
/// # Errors
/// [`ControlError::InvalidStatus`] if it is over, or a task of a person.
pub async fn pause(store: &dyn Store, args: &TaskRequest) -> Result<TaskDetails, ControlError> {
    let task = input::task(store, args.task_id).await?;
    let reason = args.reason("paused by hand")?;
    of_the_fleet(&task)?;
    match store.request_pause(task.id, &reason).await? {
        true => now(store, &task).await,
        false => Err(wrong(&task, "expected one that is not over")),
    }
}

/// Queues a paused task again.
///
/// # Errors
/// [`ControlError::InvalidStatus`] if it is not paused, or a task of a person.
pub async fn resume(store: &dyn Store, args: &TaskRequest) -> Result<TaskDetails, ControlError> {
    let task = input::task(store, args.task_id).await?;
    of_the_fleet(&task)?;
    match store.resume(task.id).await? {
        true => now(store, &task).await,
        false => Err(wrong(&task, "expected a paused one")),
    }
}

/// Begins a task that is over once more. The end of a task of the fleet is final, so its item, or the repository, gets a new
/// task, which is returned; another task of a person is opened again. A task that waits for the end of a delay is made due.
///
/// # Errors
/// [`ControlError::InvalidStatus`] if it is not over and does not wait for a time, if its item has another task that is
/// not over, or if it was retried before.
pub async fn retry(store: &dyn Store, args: &TaskRequest) -> Result<TaskDetails, ControlError> {
    let task = input::task(store, args.task_id).await?;
    match (task.state, task.home()) {
        (TaskState::Ended(_), TaskHome::People) => {
            set_status(store, &task, PublicStatus::Open, None).await?;
            now(store, &task).await
        }
        (TaskState::Ended(_), TaskHome::Item) => again(store, &task).await,
        (TaskState::Ended(_), TaskHome::Repository) => once_more(store, &task).await,
        (TaskState::Queued, TaskHome::Item | TaskHome::Repository)
            if store.skip_delay(task.id).await? =>
        {
            now(store, &task).await
        }
        (TaskState::Queued | TaskState::Leased(_) | TaskState::Paused, _) => Err(wrong(
            &task,
            "expected one that is over, or waits for a time",
        )),
    }
}

async fn again(store: &dyn Store, task: &Task) -> Result<TaskDetails, ControlError> {
    let new = NewTask {
        item: task.item.clone(),
        trigger: format!("retry|{}", task.id),
        title: task.title.clone(),
        url: task.url.clone(),
        priority: task.priority,
    };
    let on = store.dependencies(task.id).await?;
    let on = on.iter().map(|on| on.number).collect();
    match store.enqueue(&new).await? {
        Enqueued::Created(next) => match TaskEdit::of_former(&task.card, on) {
            Some(edit) => {
                let outcome = store.edit_task(next.id, &edit).await?;
                let next = edited(outcome, &format!("task {}", next.number), None)?;
                details(store, &next).await
            }
            None => details(store, &next).await,
        },
        Enqueued::Known(other) => Err(ControlError::InvalidStatus(format!(
            "{} has task {} already, which is {}",
            other.item,
            other.number,
            other.state.public()
        ))
        .next(
            format!("task_get with taskId {}", other.number),
            format!("task show {}", other.number),
            "shows it",
        )),
    }
}

/// A new task of a person with what this one says, once.
async fn once_more(store: &dyn Store, task: &Task) -> Result<TaskDetails, ControlError> {
    let ItemRef {
        tracker,
        host,
        repo_id,
        repo_path,
        ..
    } = task.item.clone();
    let on = store.dependencies(task.id).await?;
    let new = NewPersonTask {
        title: task.title.clone(),
        description: task.card.description.clone(),
        priority: task.priority,
        kind: task.card.kind,
        assignee: task.card.assignee.clone(),
        assignee_type: task.card.assignee_type,
        agent: task.card.agent.clone(),
        depends_on: on.iter().map(|on| on.number).collect(),
        write_scope: task.card.write_scope.clone(),
        repository: Some(RepositoryRef {
            tracker,
            host,
            repo_id,
            repo_path,
        }),
        retries: Some(task.id),
    };
    let outcome = store.create_task(&new).await?;
    let made = edited(outcome, &format!("task {}", task.number), None)?;
    details(store, &made).await
}

async fn set_status(
    store: &dyn Store,
    task: &Task,
    status: PublicStatus,
    reason: Option<String>,
) -> Result<(), ControlError> {
    let edit = TaskEdit {
        status: Some((status, reason)),
        ..TaskEdit::default()
    };
    let outcome = store.edit_task(task.id, &edit).await?;
    edited(outcome, &format!("task {}", task.number), None).map(drop)
}

async fn now(store: &dyn Store, task: &Task) -> Result<TaskDetails, ControlError> {
    let task = input::task(store, task.number.0).await?;
    details(store, &task).await
}

fn of_the_fleet(task: &Task) -> Result<(), ControlError> {
    match task.home() {
        TaskHome::Item | TaskHome::Repository => Ok(()),
        TaskHome::People => Err(ControlError::InvalidStatus(format!(
            "task {} is in no repository of the fleet, and no worker of the fleet works on it",
            task.number
        ))
        .next(
            "task_update with status",
            format!("task update {} --status STATUS", task.number),
            "changes its status",
        )),
    }
}

fn wrong(task: &Task, expected: &str) -> ControlError {
    let status = task.state.public();
    let detail = match task.state {
        TaskState::Leased(phase) => format!(" ({phase})"),
        TaskState::Paused if task.home() != TaskHome::People => " (paused)".to_owned(),
        TaskState::Queued | TaskState::Paused | TaskState::Ended(_) => String::new(),
    };
    ControlError::InvalidStatus(format!(
        "task {} is {status}{detail}, {expected}",
        task.number
    ))
    .next(
        format!("task_why with taskId {}", task.number),
        format!("task why {}", task.number),
        "shows why",
    )
}
