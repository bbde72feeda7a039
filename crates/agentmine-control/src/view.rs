//! What the operations return: the same JSON on the command line and in the MCP server.

use agentmine_domain::{EndState, Session, Task, TaskHome, TaskState};
use agentmine_store::Dependency;
use chrono::{DateTime, SecondsFormat, Utc};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskView {
    /// The task's number.
    pub id: i64,
    /// The task's UUID, which also names its container.
    pub uuid: String,
    /// The title.
    pub title: String,
    /// What is to be done. Empty for a task of a tracker, whose item says it.
    pub description: String,
    /// open, in_progress, done, failed or cancelled.
    pub status: String,
    /// Details of the status: the worker's phase, `paused`, or `partial` for a partial result.
    pub detail: Option<String>,
    /// low, medium, high or critical.
    pub priority: String,
    /// task, feature, bug or refactor.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the person or client who works on it.
    pub assignee: Option<String>,
    /// ai or human.
    pub assignee_type: String,
    /// The agent that works on it; null: the default one.
    pub agent: Option<String>,
    /// Patterns of the files that it may change. Empty: not known.
    pub write_scope: Vec<String>,
    /// The branch with its result.
    pub branch: String,
    /// The repository in which the fleet works on it; null for a task without a repository.
    pub repository: Option<String>,
    /// The item of the tracker, e.g. `owner/name#7`; null for a task of a person.
    pub item: Option<String>,
    /// The item's web address; null for a task of a person.
    pub url: Option<String>,
    /// Why it failed, was cancelled, or is paused; what is missing of a partial result.
    pub reason: Option<String>,
    /// The web address of its pull request.
    pub pull_request_url: Option<String>,
    /// How often it was started.
    pub attempt: u32,
    /// Counts the changes by people. Pass it to task_update so that nobody else's change is overwritten.
    pub version: i64,
    /// When it was recorded.
    pub created_at: String,
    /// When it last changed.
    pub updated_at: String,
}

impl TaskView {
    /// Of a row.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        let (of_fleet, of_item) = match task.home() {
            TaskHome::Item => (true, true),
            TaskHome::Repository => (true, false),
            TaskHome::People => (false, false),
        };
        Self {
            id: task.number.0,
            uuid: task.id.to_string(),
            title: task.title.clone(),
            description: task.card.description.clone(),
            status: task.state.public().to_string(),
            detail: detail(task).map(ToOwned::to_owned),
            priority: task.priority.to_string(),
            kind: task.card.kind.to_string(),
            assignee: task.card.assignee.clone(),
            assignee_type: task.card.assignee_type.to_string(),
            agent: task.card.agent.clone(),
            write_scope: task.card.write_scope.patterns().to_vec(),
            branch: task.branch(),
            repository: of_fleet.then(|| task.item.repo_path.clone()),
            item: of_item.then(|| task.item.to_string()),
            url: of_item.then(|| task.url.clone()),
            reason: task.reason.clone(),
            pull_request_url: task.pull_request_url.clone(),
            attempt: task.attempt,
            version: task.card.version,
            created_at: time(task.created_at),
            updated_at: time(task.updated_at),
        }
    }
}

/// What the status of a task leaves open.
#[must_use]
pub fn detail(task: &Task) -> Option<&'static str> {
    match (task.state, task.home()) {
        (TaskState::Leased(phase), _) => Some(phase.as_str()),
        (TaskState::Paused, TaskHome::Item | TaskHome::Repository) => Some("paused"),
        (TaskState::Ended(EndState::Done), _) if task.missing().is_some() => Some("partial"),
        (
            TaskState::Queued
            | TaskState::Paused
            | TaskState::Ended(EndState::Done | EndState::Failed | EndState::Stopped),
            _,
        ) => None,
    }
}

/// A task with what belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskDetails {
    /// The task.
    #[serde(flatten)]
    pub task: TaskView,
    /// The tasks that must be done first.
    pub depends_on: Vec<DependencyView>,
    /// Its sessions, newest first.
    pub sessions: Vec<SessionView>,
}

/// A task that another one depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DependencyView {
    /// Its number.
    pub id: i64,
    /// Its status.
    pub status: String,
}

impl From<&Dependency> for DependencyView {
    fn from(on: &Dependency) -> Self {
        Self {
            id: on.number.0,
            status: on.state.public().to_string(),
        }
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// The session's number.
    pub id: i64,
    /// The number of its task.
    pub task_id: i64,
    /// running or ended.
    pub status: String,
    /// How it ended: done, failed, stopped, paused, released or expired.
    pub end: Option<String>,
    /// Why it ended.
    pub reason: Option<String>,
    /// agentmine, claude-code, codex, gemini-cli, or another name.
    pub client: String,
    /// The agent's name; null if it is not recorded.
    pub agent: Option<String>,
    /// The worker that ran it.
    pub worker: String,
    /// The model's name.
    pub model: Option<String>,
    /// The folder of its git work tree.
    pub worktree: Option<String>,
    /// The client's exit code.
    pub exit_code: Option<i64>,
    /// The signal that ended the client.
    pub signal: Option<String>,
    /// pending, merged, timeout or error.
    pub dod_result: Option<String>,
    /// What the client named as its results.
    #[schemars(extend("items" = artifact_schema()))]
    pub artifacts: Vec<Value>,
    /// What the client reported as its error.
    pub error: Option<Value>,
    /// When it began.
    pub started_at: String,
    /// When it ended.
    pub ended_at: Option<String>,
    /// What it used.
    pub usage: UsageView,
}

/// What a session used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageView {
    /// Calls of the model.
    pub model_calls: u64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Tokens sent, cached ones included.
    pub input_tokens: u64,
    /// Tokens that were read from the provider's cache.
    pub cached_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Cost in millionths of the price list's currency.
    pub cost_micros: u64,
}

impl SessionView {
    /// Of a row.
    #[must_use]
    pub fn of(session: &Session) -> Self {
        let external = session.external.as_ref();
        let usage = &session.usage;
        Self {
            id: session.id.0,
            task_id: session.task_number.0,
            status: if session.end.is_some() {
                "ended"
            } else {
                "running"
            }
            .to_owned(),
            end: session.end.map(|end| end.to_string()),
            reason: session.reason.clone(),
            client: external.map_or_else(|| "agentmine".to_owned(), |it| it.client.clone()),
            agent: external.map(|it| it.agent.clone()),
            worker: session.worker.to_string(),
            model: session.model.clone(),
            worktree: external.and_then(|it| it.worktree.clone()),
            exit_code: external.and_then(|it| it.exit_code),
            signal: external.and_then(|it| it.signal.clone()),
            dod_result: external
                .and_then(|it| it.dod_result)
                .map(|it| it.to_string()),
            artifacts: external.map(|it| it.artifacts.clone()).unwrap_or_default(),
            error: external.and_then(|it| it.error.clone()),
            started_at: time(session.started_at),
            ended_at: session.ended_at.map(time),
            usage: UsageView {
                model_calls: usage.model_calls.into(),
                tool_calls: usage.tool_calls.into(),
                input_tokens: usage.input_tokens,
                cached_tokens: usage.cached_tokens,
                output_tokens: usage.output_tokens,
                cost_micros: usage.cost_micros,
            },
        }
    }
}

/// A path, an address, or an object that describes a result. Clients refuse schemas that allow anything.
pub(crate) fn artifact_schema() -> Value {
    json!({ "anyOf": [{ "type": "string" }, { "type": "object", "additionalProperties": true }] })
}

/// A time as in all answers: RFC 3339, UTC, with milliseconds.
pub(crate) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
