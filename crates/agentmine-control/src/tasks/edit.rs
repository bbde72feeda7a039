//! Making and changing tasks.

use agentmine_domain::{
    AssigneeType, Priority, PublicStatus, RepositoryRef, Task, TaskHome, TaskType,
};
use agentmine_store::{Edited, NewPersonTask, Store, TaskEdit};
use schemars::JsonSchema;
use serde::Deserialize;

use super::list::details;
use crate::fleet::{Fleet, has_agent};
use crate::view::TaskDetails;
use crate::worker::Place;
use crate::{ControlError, agents, input};

const PRIORITIES: &str = "low, medium, high or critical";
const TYPES: &str = "task, feature, bug or refactor";
const ASSIGNEES: &str = "ai or human";
const STATUSES: &str = "open, in_progress, done, failed or cancelled";

/// A new task.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskCreate {
    /// The title, on one line
    pub title: String,
    /// What to do, in Markdown
    pub description: Option<String>,
    /// How urgent it is
    #[schemars(extend("enum" = ["low", "medium", "high", "critical"], "default" = "medium"))]
    pub priority: Option<String>,
    /// What kind of work it is
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["task", "feature", "bug", "refactor"], "default" = "task"))]
    pub kind: Option<String>,
    /// The name of the person or client who works on it
    pub assignee: Option<String>,
    /// Whether a client (ai) or a person (human) works on it; no worker takes a task of a person
    #[schemars(extend("enum" = ["ai", "human"], "default" = "ai"))]
    pub assignee_type: Option<String>,
    /// The agent that works on it: one of agent_list
    #[schemars(extend("default" = "default"))]
    pub agent: Option<String>,
    /// Numbers of the tasks that must be done first
    pub depends_on: Option<Vec<i64>>,
    /// Patterns of the files that it may change, from the top of the repository: `*` within a folder, `**` for any folders. A task waits while one with a common file is running
    pub write_scope: Option<Vec<String>>,
    /// A repository that the fleet scans, as owner/name or by its address: the fleet works on the task as on an issue of it, and opens a pull request. Default: none; then a client works on the task (worker_command)
    pub repository: Option<String>,
}

/// Makes a task.
///
/// # Errors
/// [`ControlError::Validation`]; those of [`agents::get`] for the agent that it names; [`ControlError::ItemNotFound`] and
/// [`ControlError::Config`] for a repository that the fleet cannot work on.
pub async fn create(
    store: &dyn Store,
    fleet: &Fleet,
    place: &Place,
    args: TaskCreate,
) -> Result<TaskDetails, ControlError> {
    let assignee = args.assignee.as_deref().unwrap_or_default();
    let agent = input::agent(args.agent.as_deref().unwrap_or_default())?;
    let repository = match args.repository.as_deref().map(str::trim) {
        Some(name) => Some(repository_for(fleet, place, name, agent.as_deref()).await?),
        None => {
            defined(place, agent.as_deref()).await?;
            None
        }
    };
    let new = NewPersonTask {
        title: input::title(&args.title)?,
        description: input::description(args.description.as_deref().unwrap_or_default())?,
        priority: input::named("priority", args.priority.as_deref(), PRIORITIES)?
            .unwrap_or(Priority::Medium),
        kind: input::named("type", args.kind.as_deref(), TYPES)?.unwrap_or(TaskType::Task),
        assignee: input::name("assignee", assignee)?,
        assignee_type: input::named("assigneeType", args.assignee_type.as_deref(), ASSIGNEES)?
            .unwrap_or(AssigneeType::Ai),
        agent,
        depends_on: input::dependencies(&args.depends_on.unwrap_or_default())?,
        write_scope: input::scope(args.write_scope.unwrap_or_default())?,
        repository,
        retries: None,
    };
    let made = edited(store.create_task(&new).await?, "the new task", None)?;
    details(store, &made).await
}

/// The repository that a person names, if the fleet works on it and has the agent.
async fn repository_for(
    fleet: &Fleet,
    place: &Place,
    name: &str,
    agent: Option<&str>,
) -> Result<RepositoryRef, ControlError> {
    let (tracker, repository) = fleet.repository(name).await?;
    if let Some(agent) = agent {
        has_agent(fleet, place, tracker.as_ref(), &repository, agent).await?;
    }
    Ok(repository)
}

/// Refuses an agent that neither the operator nor the project defines, or whose definition has faults.
async fn defined(place: &Place, agent: Option<&str>) -> Result<(), ControlError> {
    let Some(agent) = agent.map(ToOwned::to_owned) else {
        return Ok(());
    };
    let found = place.with_agents(move |all| agents::get(all, &agent));
    found.await.map(drop).map_err(|error| match error {
        ControlError::AgentNotFound(_) => error.next(
            "agent_list",
            "agent list",
            "lists the agents of the operator and of the project in this folder",
        ),
        error => error,
    })
}

/// A change of a task. What is not named stays as it is.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskUpdate {
    /// The task's number
    #[serde(alias = "id")]
    pub task_id: i64,
    /// The version that you saw. The change is refused if somebody else has changed the task since
    pub version: Option<i64>,
    /// The title; only of a task that a person created
    pub title: Option<String>,
    /// What to do, in Markdown; only of a task that a person created
    pub description: Option<String>,
    /// The status; only of a task that a person created
    #[schemars(extend("enum" = ["open", "in_progress", "done", "failed", "cancelled"]))]
    pub status: Option<String>,
    /// How urgent it is
    #[schemars(extend("enum" = ["low", "medium", "high", "critical"]))]
    pub priority: Option<String>,
    /// What kind of work it is
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["task", "feature", "bug", "refactor"]))]
    pub kind: Option<String>,
    /// The name of the person or client who works on it; empty: nobody in particular
    pub assignee: Option<String>,
    /// Whether a client (ai) or a person (human) works on it; no worker takes a task of a person
    #[schemars(extend("enum" = ["ai", "human"]))]
    pub assignee_type: Option<String>,
    /// The agent that works on it: one of agent_list; empty: the default one
    pub agent: Option<String>,
    /// Numbers of all tasks that must be done first
    pub depends_on: Option<Vec<i64>>,
    /// Patterns of all the files that it may change
    pub write_scope: Option<Vec<String>>,
}

impl TaskUpdate {
    fn edit(&self) -> Result<TaskEdit, ControlError> {
        let status = input::named::<PublicStatus>("status", self.status.as_deref(), STATUSES)?;
        let why = |status| match status {
            PublicStatus::Failed | PublicStatus::Cancelled => Some(BY_A_PERSON.to_owned()),
            PublicStatus::Open | PublicStatus::InProgress | PublicStatus::Done => None,
        };
        let edit = TaskEdit {
            version: self.version,
            title: self.title.as_deref().map(input::title).transpose()?,
            description: self
                .description
                .as_deref()
                .map(input::description)
                .transpose()?,
            priority: input::named("priority", self.priority.as_deref(), PRIORITIES)?,
            kind: input::named("type", self.kind.as_deref(), TYPES)?,
            assignee: self
                .assignee
                .as_deref()
                .map(|name| input::name("assignee", name))
                .transpose()?,
            agent: self.agent.as_deref().map(input::agent).transpose()?,
            assignee_type: input::named("assigneeType", self.assignee_type.as_deref(), ASSIGNEES)?,
            depends_on: self
                .depends_on
                .as_deref()
                .map(input::dependencies)
                .transpose()?,
            write_scope: self.write_scope.clone().map(input::scope).transpose()?,
            status: status.map(|status| (status, why(status))),
        };
        let nothing = TaskEdit {
            version: self.version,
            ..TaskEdit::default()
        };
        match edit == nothing {
            true => Err(
                ControlError::Validation("nothing to change is named".into())
                    .hint("name a field and its new value"),
            ),
            false => Ok(edit),
        }
    }
}

const BY_A_PERSON: &str = "set by hand";

/// Changes a task.
///
/// # Errors
/// [`ControlError::Validation`]; [`ControlError::InvalidStatus`] if somebody else has changed it since, or if the
/// field is the tracker's; [`ControlError::SessionAlreadyRunning`] for a status while a client works on it; those of
/// [`agents::get`] for the agent that it names.
pub async fn update(
    store: &dyn Store,
    place: &Place,
    args: &TaskUpdate,
) -> Result<TaskDetails, ControlError> {
    let edit = args.edit()?;
    let task = input::task(store, args.task_id).await?;
    if let Some(field) = foreign_field(&task, &edit) {
        let what = match task.home() {
            TaskHome::Item => format!("that of {} on its tracker", task.item),
            TaskHome::Repository | TaskHome::People => "what the fleet makes of it".to_owned(),
        };
        return Err(ControlError::InvalidStatus(format!(
            "the {field} of task {} is {what}",
            task.number
        ))
        .next(
            "task_cancel, task_pause, task_resume or task_retry",
            format!("task cancel|pause|resume|retry {}", task.number),
            match task.home() {
                TaskHome::Item => "changes what the fleet does; change this field there",
                TaskHome::Repository | TaskHome::People => "changes what the fleet does",
            },
        ));
    }
    let agent = edit.agent.as_ref().and_then(Option::as_deref);
    defined(place, agent).await?;
    let name = format!("task {}", task.number);
    let outcome = store.edit_task(task.id, &edit).await?;
    let after = edited(outcome, &name, args.version)?;
    details(store, &after).await
}

/// A field of the edit that the tracker or the fleet decides.
fn foreign_field(task: &Task, edit: &TaskEdit) -> Option<&'static str> {
    match task.home() {
        TaskHome::People => None,
        TaskHome::Item if edit.title.is_some() => Some("title"),
        TaskHome::Item if edit.description.is_some() => Some("description"),
        TaskHome::Item | TaskHome::Repository if edit.status.is_some() => Some("status"),
        TaskHome::Item | TaskHome::Repository => None,
    }
}

pub(super) fn edited(outcome: Edited, name: &str, seen: Option<i64>) -> Result<Task, ControlError> {
    let number = || name.trim_start_matches("task ").to_owned();
    Err(match outcome {
        Edited::Done(task) => return Ok(*task),
        Edited::Missing => ControlError::TaskNotFound(number()),
        Edited::Outdated(version) => ControlError::InvalidStatus(format!(
            "{name} was changed by somebody else: it has version {version}, expected {}",
            seen.unwrap_or(version)
        ))
        .next(
            format!("task_get with taskId {}", number()),
            format!("task show {}", number()),
            "shows it; then repeat the change with its new version",
        ),
        Edited::NoDependency(on) => {
            ControlError::Validation(format!("dependsOn names task {on}, which does not exist"))
        }
        Edited::Cycle(on) => ControlError::Validation(format!(
            "dependsOn names task {on}, which itself waits for {name}"
        ))
        .hint("remove one of the dependencies of that circle"),
        Edited::Leased => ControlError::InvalidStatus(format!("a worker is at work on {name}"))
            .next(
                format!("task_pause with taskId {}", number()),
                format!("task pause {}", number()),
                "pauses it; then give it to a person",
            ),
        Edited::Running(session) => ControlError::SessionAlreadyRunning {
            task: number(),
            session: session.to_string(),
        },
        Edited::Retried(next) => ControlError::InvalidStatus(format!(
            "{name} was retried as task {}, which is {}",
            next.number,
            next.state.public()
        ))
        .next(
            format!("task_get with taskId {}", next.number),
            format!("task show {}", next.number),
            "shows it",
        ),
    })
}
