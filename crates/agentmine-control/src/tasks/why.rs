//! Why a task is or is not being worked on.

use agentmine_domain::{
    AssigneeType, EndState, PublicStatus, Session, Task, TaskOrigin, TaskState,
};
use agentmine_store::Store;
use schemars::JsonSchema;
use serde::Serialize;

use crate::view::{detail, time};
use crate::{ControlError, input};

/// Why a task is or is not being worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The task's number.
    pub id: i64,
    /// Its status.
    pub status: String,
    /// Whether somebody works on it now.
    pub is_worked_on: bool,
    /// The reasons, the strongest first.
    pub reasons: Vec<Reason>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reason {
    /// working, external_session, done, failed, cancelled, paused, human_task, dependency, conflict, back_off, needs_client, no_free_worker or requested.
    pub code: String,
    /// The reason as a sentence.
    pub message: String,
}

impl Reason {
    fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// The reasons, as far as the store knows them: labels and permissions are looked at by the producer, which makes no
/// task where they are missing.
///
/// # Errors
/// [`ControlError::TaskNotFound`].
pub async fn why(store: &dyn Store, number: i64) -> Result<Why, ControlError> {
    let task = input::task(store, number).await?;
    let last = store.sessions(Some(task.id), 1).await?.pop();
    let running = last.filter(|session| session.end.is_none());
    let mut reasons = Vec::new();
    match task.state {
        TaskState::Leased(_) => reasons.push(working(&task, running.as_ref())),
        TaskState::Ended(end) => reasons.push(over(&task, end)),
        TaskState::Queued | TaskState::Paused => {
            if let Some(session) = &running {
                reasons.push(external(session));
            } else {
                waiting(store, &task, &mut reasons).await?;
            }
        }
    }
    if task.card.origin == TaskOrigin::Tracker {
        reasons.push(Reason::new(
            "requested",
            format!(
                "{} asked for work by the event {}, at {}.",
                task.item,
                input::shown(&task.trigger),
                time(task.created_at)
            ),
        ));
    }
    Ok(Why {
        id: task.number.0,
        status: task.state.public().to_string(),
        is_worked_on: running.is_some(),
        reasons,
    })
}

fn working(task: &Task, running: Option<&Session>) -> Reason {
    let worker = task.owner.as_ref().map_or("a worker", |owner| &owner.0);
    let phase = detail(task).unwrap_or_default();
    let session = running.map_or_else(String::new, |session| {
        format!(
            " in session {}, since {}",
            session.id,
            time(session.started_at)
        )
    });
    Reason::new("working", format!("{worker} is {phase}{session}."))
}

fn external(session: &Session) -> Reason {
    let client = session
        .external
        .as_ref()
        .map_or("a client", |it| &it.client);
    Reason::new(
        "external_session",
        format!(
            "{client} works on it in session {}, since {}.",
            session.id,
            time(session.started_at)
        ),
    )
}

fn over(task: &Task, end: EndState) -> Reason {
    let code = task.state.public();
    let why = task
        .reason
        .as_deref()
        .map_or_else(String::new, |why| format!(": {why}"));
    let what = match end {
        EndState::Done if task.missing().is_some() => "It ended with a partial result",
        EndState::Done => "It is done",
        EndState::Failed => "It failed",
        EndState::Stopped => "It was cancelled",
    };
    Reason::new(code.as_str(), format!("{what}{why}."))
}

async fn waiting(
    store: &dyn Store,
    task: &Task,
    reasons: &mut Vec<Reason>,
) -> Result<(), ControlError> {
    let of_tracker = task.card.origin == TaskOrigin::Tracker;
    if of_tracker && task.state == TaskState::Paused {
        let why = task.reason.as_deref().unwrap_or("no reason is recorded");
        reasons.push(Reason::new(
            "paused",
            format!("It is paused until somebody resumes it: {why}."),
        ));
    }
    if task.card.assignee_type == AssigneeType::Human {
        let who = task.card.assignee.as_deref().unwrap_or("a person");
        reasons.push(Reason::new(
            "human_task",
            format!("It is for {who}; no worker takes it."),
        ));
    }
    for on in store.dependencies(task.id).await? {
        let status = on.state.public();
        if status != PublicStatus::Done {
            let message = format!("It depends on task {}, which is {status}.", on.number);
            reasons.push(Reason::new("dependency", message));
        }
    }
    if let Some(other) = store.scope_conflict(task).await? {
        let message = format!(
            "It may change {}, and task {}, which is running, may change {}.",
            other.own, other.number, other.their
        );
        reasons.push(Reason::new("conflict", message));
    }
    if of_tracker && let Some(due) = store.due_at(task.id).await? {
        let message = format!(
            "Its last attempt gave it back; it waits until {}.",
            time(due)
        );
        reasons.push(Reason::new("back_off", message));
    }
    if !reasons.is_empty() {
        return Ok(());
    }
    reasons.push(match of_tracker {
        false => Reason::new(
            "needs_client",
            format!(
                "It waits for a client: worker_command {0} (`agentmine worker run {0}`) starts one.",
                task.number
            ),
        ),
        true => no_free_worker(store).await?,
    });
    Ok(())
}

async fn no_free_worker(store: &dyn Store) -> Result<Reason, ControlError> {
    let (open, leased) = store.queued_and_leased().await?;
    Ok(Reason::new(
        "no_free_worker",
        format!(
            "It waits for a free worker: {open} tasks are queued, {leased} are being worked on."
        ),
    ))
}
