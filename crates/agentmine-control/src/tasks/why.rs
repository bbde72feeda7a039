//! Why a task is or is not being worked on.

use agentmine_domain::{
    AssigneeType, EndState, PublicStatus, Session, Task, TaskOrigin, TaskState, WaitsFor,
};
use agentmine_store::{Held, HeldRequest, Store, Turn};
use schemars::JsonSchema;
use serde::Serialize;

use crate::view::{detail, time};
use crate::{ControlError, input};

/// Why a task is or is not being worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The task's number; absent for an item that has no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// The item, if it was asked for by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The task's status; held for an item whose request starts no work.
    pub status: String,
    /// Whether somebody works on it now.
    pub is_worked_on: bool,
    /// The reasons, the strongest first.
    pub reasons: Vec<Reason>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reason {
    /// working, external_session, done, failed, cancelled, paused, human_task, capacity, waits, dependency, conflict, back_off, needs_client, no_free_worker, requested, or why a request is held: not_allowed, unknown_requester or permission_unknown.
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

/// The reasons, as far as the store knows them. A request that starts no work is among them.
///
/// # Errors
/// [`ControlError::TaskNotFound`].
pub async fn why(store: &dyn Store, number: i64) -> Result<Why, ControlError> {
    let task = input::task(store, number).await?;
    let held = store.held_requests().await?;
    let held = held.iter().find(|held| held.request.item == task.item);
    of_task(store, &task, held).await
}

/// The reasons for an item whose request starts no work, by its name (`owner/name#7`, `group/project!7`) or its
/// address.
///
/// # Errors
/// [`ControlError::TaskNotFound`] if no request of such an item is held.
pub async fn why_of_item(store: &dyn Store, name: &str) -> Result<Why, ControlError> {
    let held = store.held_requests().await?;
    let held = held.iter().find(|held| {
        let HeldRequest { item, url, .. } = &held.request;
        item.to_string().eq_ignore_ascii_case(name) || url == name
    });
    let held = held.ok_or_else(|| ControlError::TaskNotFound(input::shown(name)))?;
    let why = match store.latest_task(&held.request.item).await? {
        Some(task) => of_task(store, &task, Some(held)).await?,
        None => Why {
            id: None,
            item: None,
            status: "held".to_owned(),
            is_worked_on: false,
            reasons: vec![held_back(held)],
        },
    };
    Ok(Why {
        item: Some(name.to_owned()),
        ..why
    })
}

/// Why a request starts no work.
fn held_back(held: &Held) -> Reason {
    let HeldRequest { code, message, .. } = &held.request;
    Reason::new(code, format!("{message} (held since {})", time(held.since)))
}

async fn of_task(store: &dyn Store, task: &Task, held: Option<&Held>) -> Result<Why, ControlError> {
    let last = store.sessions(Some(task.id), 1).await?.pop();
    let running = last.filter(|session| session.end.is_none());
    let mut reasons = Vec::new();
    match task.state {
        TaskState::Leased(_) => reasons.push(working(task, running.as_ref())),
        TaskState::Ended(end) => reasons.push(over(task, end)),
        TaskState::Queued | TaskState::Paused => {
            if let Some(session) = &running {
                reasons.push(external(session));
            } else {
                waiting(store, task, &mut reasons).await?;
            }
        }
    }
    reasons.extend(held.map(held_back));
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
        id: Some(task.number.0),
        item: None,
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
    if let Some(waits_for) = &task.card.waits_for {
        reasons.push(in_turn(store, task, waits_for).await?);
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
                "It waits for a client: worker_command {0} (`agentmine worker run {0}`) starts one, and with --local \
                 AgentMine itself works on it in this project.",
                task.number
            ),
        ),
        true => no_free_worker(store).await?,
    });
    Ok(())
}

/// Why a task is not admitted yet.
async fn in_turn(
    store: &dyn Store,
    task: &Task,
    waits_for: &WaitsFor,
) -> Result<Reason, ControlError> {
    if let WaitsFor::Item(reason) = waits_for {
        return Ok(Reason::new("waits", format!("It waits: {reason}.")));
    }
    let Turn { reason, before } = store.turn(task).await?;
    let reason = reason.unwrap_or_else(|| "its repository was not looked at yet".to_owned());
    let before = match before {
        0 => "it is the next one of its repository".to_owned(),
        1 => "1 task of its repository goes before it".to_owned(),
        _ => format!("{before} tasks of its repository go before it"),
    };
    Ok(Reason::new(
        "capacity",
        format!("It waits for its turn: {reason}; {before}."),
    ))
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
