//! Starting a worker on a task.

use agentmine_domain::{Session, Task, TaskHome, TaskState};
use agentmine_git::View;
use agentmine_store::{NewExternal, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::blocking::blocking;
use super::client::{Approval, ClientProgram, command_line, quoted};
use super::place::Place;
use super::trees::{git_error, path_of, tree_name};
use crate::sessions::{self, DEFAULT_AGENT};
use crate::{ControlError, agents, input};

/// Which task to start work on, and with what.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerStart {
    /// The task's number
    pub task_id: i64,
    /// The agent's name
    #[schemars(extend("default" = "default"))]
    pub agent: Option<String>,
    /// The client. agentmine, the default of a task of the fleet, queues it for the fleet's workers; for any other task, whose default is claude-code, it returns the command that works on it in this project
    #[schemars(extend("enum" = ["agentmine", "claude-code", "codex", "gemini-cli"]))]
    pub client: Option<String>,
    /// Whether to add the client's flag that approves all actions, so that it runs without a terminal
    #[schemars(extend("default" = false))]
    pub auto: Option<bool>,
}

/// How to start the work, or how to follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerCommand {
    /// A line for a POSIX shell that starts the client in its work tree; with the client agentmine, one that works on the task in this project, or that shows the fleet's progress.
    pub command: String,
    /// The client.
    pub client: String,
    /// The folder of the task's git work tree; null with the client agentmine.
    pub worktree: Option<String>,
    /// The session's number, for session_end; null with the client agentmine, whose worker begins one.
    pub session_id: Option<i64>,
    /// The agent's name.
    pub agent: String,
    /// The task.
    pub task: TaskRef,
    /// Who works on it.
    #[serde(skip)]
    pub by: WorkBy,
}

/// Who works on a task that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkBy {
    /// The client, once the command runs.
    Client,
    /// A worker of the fleet.
    Fleet,
    /// The fleet's loop in this project, once the command runs.
    Here,
}

/// A task in the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TaskRef {
    /// The task's number.
    pub id: i64,
    /// The title.
    pub title: String,
    /// The branch for its result.
    pub branch: String,
}

/// Starts work on a task. For an external client it makes a git work tree on the task's branch and begins a session;
/// the caller runs the command and ends the session. For the fleet it makes the task due now.
///
/// # Errors
/// [`ControlError::Git`] if there is no repository or no commit in it; then no session is begun. Else as
/// [`sessions::start`].
pub async fn start(
    store: &dyn Store,
    place: &Place,
    args: &WorkerStart,
) -> Result<WorkerCommand, ControlError> {
    let expected = "agentmine, claude-code, codex or gemini-cli";
    let client = input::named::<ClientProgram>("client", args.client.as_deref(), expected)?;
    let task = input::task(store, args.task_id).await?;
    let agent = args.agent.as_deref().or(task.card.agent.as_deref());
    let agent = agent.unwrap_or_default();
    let agent = input::name("agent", agent)?.unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    let client = match (client, task.home()) {
        (Some(client), _) => client,
        (None, TaskHome::Item | TaskHome::Repository) => ClientProgram::AgentMine,
        (None, TaskHome::People) => preferred(place, &agent).await?,
    };
    let approval = match args.auto.unwrap_or(false) {
        true => Approval::Automatic,
        false => Approval::Asked,
    };
    match client {
        ClientProgram::AgentMine if task.home() == TaskHome::People => here(place, &task, agent),
        ClientProgram::AgentMine => queue(store, &task, agent).await,
        ClientProgram::ClaudeCode | ClientProgram::Codex | ClientProgram::GeminiCli => {
            external(store, place, &task, client, approval, agent).await
        }
    }
}

/// The external client that an agent names, else Claude Code.
async fn preferred(place: &Place, agent: &str) -> Result<ClientProgram, ControlError> {
    let agent = agent.to_owned();
    let found = place
        .with_agents(move |all| agents::get(all, &agent))
        .await?;
    let named = found.agent.client.as_str().parse();
    Ok(named
        .ok()
        .filter(|it| *it != ClientProgram::AgentMine)
        .unwrap_or(ClientProgram::ClaudeCode))
}

async fn external(
    store: &dyn Store,
    place: &Place,
    task: &Task,
    client: ClientProgram,
    approval: Approval,
    agent: String,
) -> Result<WorkerCommand, ControlError> {
    let project = place.project.clone();
    let view = blocking(move || View::open_to_write(&project).map_err(git_error)).await?;
    let new = NewExternal {
        client: client.to_string(),
        agent,
        worktree: None,
    };
    let session = sessions::begin(store, place, task.number.0, &new).await?;
    match in_tree(store, place, view, task, &session).await {
        Ok(path) => {
            let command = command_line(client, approval, &path, &prompt(task));
            Ok(WorkerCommand {
                command: command.unwrap_or_default(),
                client: new.client,
                worktree: Some(path.display().to_string()),
                session_id: Some(session.id.0),
                agent: new.agent,
                task: reference(task),
                by: WorkBy::Client,
            })
        }
        Err(error) => {
            store.discard_external(session.id).await?;
            Err(error)
        }
    }
}

async fn in_tree(
    store: &dyn Store,
    place: &Place,
    view: View,
    task: &Task,
    session: &Session,
) -> Result<std::path::PathBuf, ControlError> {
    let path = path_of(place, &view, task)?;
    let (name, branch, target) = (tree_name(task), task.branch(), path.clone());
    blocking(move || {
        view.add_worktree(&name, &target, &branch)
            .map_err(git_error)
    })
    .await?;
    store
        .set_worktree(session.id, &path.display().to_string())
        .await?;
    Ok(path)
}

/// Makes a task of the fleet due.
async fn queue(
    store: &dyn Store,
    task: &Task,
    agent: String,
) -> Result<WorkerCommand, ControlError> {
    let number = task.number;
    match task.state {
        TaskState::Queued => drop(store.skip_delay(task.id).await?),
        TaskState::Paused => drop(store.resume(task.id).await?),
        TaskState::Leased(_) => {
            let running = store.sessions(Some(task.id), 1).await?.pop();
            let session = running.map_or_else(String::new, |session| session.id.to_string());
            return Err(ControlError::SessionAlreadyRunning {
                task: number.to_string(),
                session: session.clone(),
            }
            .next(
                format!("session_logs with sessionId {session}"),
                format!("session logs {session} --follow"),
                "follows it",
            ));
        }
        TaskState::Ended(_) => return Err(over(task)),
    }
    Ok(WorkerCommand {
        command: format!("agentmine task why {number}"),
        client: ClientProgram::AgentMine.to_string(),
        worktree: None,
        session_id: None,
        agent,
        task: reference(task),
        by: WorkBy::Fleet,
    })
}

/// The command that works on a task of a person in this project.
fn here(place: &Place, task: &Task, agent: String) -> Result<WorkerCommand, ControlError> {
    let number = task.number;
    if let TaskState::Ended(_) = task.state {
        return Err(over(task));
    }
    let config = place.config.as_deref().map(|file| {
        let file = file.to_string_lossy();
        format!(" --config {}", quoted(&file))
    });
    let named = match agent == DEFAULT_AGENT {
        true => String::new(),
        false => format!(" --agent {}", quoted(&agent)),
    };
    Ok(WorkerCommand {
        command: format!(
            "cd {} && agentmine{} worker run {number} --local{named}",
            quoted(&place.project.to_string_lossy()),
            config.unwrap_or_default()
        ),
        client: ClientProgram::AgentMine.to_string(),
        worktree: None,
        session_id: None,
        agent,
        task: reference(task),
        by: WorkBy::Here,
    })
}

fn over(task: &Task) -> ControlError {
    let number = task.number;
    ControlError::InvalidStatus(format!(
        "task {number} is {}, expected one that is not over",
        task.state.public()
    ))
    .next(
        format!("task_retry with taskId {number}"),
        format!("task retry {number}"),
        "starts it again",
    )
}

fn reference(task: &Task) -> TaskRef {
    TaskRef {
        id: task.number.0,
        title: task.title.clone(),
        branch: task.branch(),
    }
}

/// What the client is asked to do.
fn prompt(task: &Task) -> String {
    let description = task.card.description.trim();
    let gap = if description.is_empty() { "" } else { "\n\n" };
    format!(
        "Task {}: {}\n\n{description}{gap}Work in the current folder, a git work tree on the branch {}, and commit the \
         result there.",
        task.number,
        task.title,
        task.branch()
    )
}
