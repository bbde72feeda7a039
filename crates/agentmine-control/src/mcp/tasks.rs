//! The tools and the resource of tasks.

use agentmine_domain::TaskNumber;
use rmcp::model::Resource;

use super::resources::{Part, ResourceKind, unknown_cursor};
use super::tool::{Effect, ToolDef};
use crate::ControlError;
use crate::tasks::{self, TaskCreate, TaskGet, TaskList, TaskRequest, TaskUpdate, TaskWhy};
use crate::view::TaskDetails;

pub(super) fn tools() -> Vec<ToolDef> {
    vec![
        ToolDef::new(
            "task_list",
            "List tasks",
            "Lists tasks, newest first. status open are those that wait, in_progress those that a worker, a client or a \
             person works on, or that are paused.",
            Effect::Reads,
            |it, args: TaskList| {
                Box::pin(async move { tasks::list(it.store.as_ref(), &args).await })
            },
        ),
        ToolDef::new(
            "task_get",
            "Show a task",
            "Shows one task with its dependencies and its sessions.",
            Effect::Reads,
            |it, args: TaskGet| {
                Box::pin(async move { tasks::get(it.store.as_ref(), args.task_id).await })
            },
        ),
        ToolDef::new(
            "task_create",
            "Make a task",
            "Creates a task that a client (worker_command) or a person works on; with repository, one that the fleet \
             works on as on an issue. Returns it with its number.",
            Effect::Adds,
            |it, args: TaskCreate| {
                Box::pin(async move {
                    tasks::create(it.store.as_ref(), &it.fleet, &it.place, args).await
                })
            },
        ),
        ToolDef::new(
            "task_update",
            "Change a task",
            "Changes the named fields of a task. Give the version that you saw, so that nobody else's change is lost.",
            Effect::Sets,
            |it, args: TaskUpdate| {
                Box::pin(async move { tasks::update(it.store.as_ref(), &it.place, &args).await })
            },
        ),
        ToolDef::new(
            "task_why",
            "Explain a task's state",
            "Explains why a task is or is not being worked on, or why an item of a tracker has no task: reasons as codes and \
             sentences, and the agent, image, network and limits that it gets.",
            Effect::Reads,
            |it, args: TaskWhy| {
                Box::pin(
                    async move { tasks::why(it.store.as_ref(), &it.fleet, &it.place, &args).await },
                )
            },
        ),
        ToolDef::new(
            "task_cancel",
            "Cancel a task",
            "Ends a task for good. A worker that runs it stops as soon as it notices; a client's session is ended.",
            Effect::Ends,
            |it, args: TaskRequest| {
                Box::pin(async move { tasks::cancel(it.store.as_ref(), &args).await })
            },
        ),
        ToolDef::new(
            "task_pause",
            "Pause a task",
            "Pauses a task of the fleet until task_resume.",
            Effect::Sets,
            |it, args: TaskRequest| {
                Box::pin(async move { tasks::pause(it.store.as_ref(), &args).await })
            },
        ),
        ToolDef::new(
            "task_resume",
            "Resume a task",
            "Queues a paused task again.",
            Effect::Sets,
            |it, args: TaskRequest| {
                Box::pin(async move { tasks::resume(it.store.as_ref(), &args).await })
            },
        ),
        ToolDef::new(
            "task_retry",
            "Retry a task",
            "Starts a task that is over again. A task of a tracker gets a new number, which is returned; one that a \
             person created is reopened; one that waits for a time is made due now.",
            Effect::Adds,
            |it, args: TaskRequest| {
                Box::pin(async move { tasks::retry(it.store.as_ref(), &args).await })
            },
        ),
    ]
}

/// Tasks in one part of the list of resources.
const LISTED: u32 = 100;

/// `task://{id}`.
pub(super) fn resource() -> ResourceKind {
    ResourceKind {
        prefix: "task://",
        template: Some((
            "task://{id}",
            "Task #{id}",
            "A task by its number, with its dependencies and its sessions",
        )),
        mime: "application/json",
        list: |it, cursor| {
            Box::pin(async move {
                let cursor = cursor.as_deref();
                let before = cursor.map(|it| it.parse().map_err(|_| unknown_cursor(it)));
                let args = TaskList {
                    cursor: before.transpose()?,
                    limit: Some(LISTED),
                    ..TaskList::default()
                };
                let page = tasks::list(it.store.as_ref(), &args).await?;
                let resource = |id: i64, title: &str| {
                    Resource::new(format!("task://{id}"), format!("Task #{id}"))
                        .with_title(title)
                        .with_description("A task")
                        .with_mime_type("application/json")
                };
                let all = page.tasks.iter();
                Ok(Part {
                    resources: all.map(|it| resource(it.id, &it.title)).collect(),
                    next: page.next_cursor.map(|number| number.to_string()),
                })
            })
        },
        read: |it, id| {
            Box::pin(async move {
                let not_found = || ControlError::TaskNotFound(crate::input::shown(&id));
                let number: TaskNumber = id.parse().map_err(|_| not_found())?;
                let task: TaskDetails = tasks::get(it.store.as_ref(), number.0).await?;
                serde_json::to_string_pretty(&task).map_err(|_| not_found())
            })
        },
    }
}
