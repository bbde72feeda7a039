//! Why a task is or is not being worked on.

use agentmine_domain::{
    AssigneeType, EndState, PublicStatus, Session, Task, TaskHome, TaskState, WaitsFor,
};
use agentmine_store::{Held, HeldRequest, Store, Turn};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::untaken::why_of_item;
use crate::fleet::{Environment, Fleet, Subject, environment};
use crate::view::{detail, time};
use crate::worker::Place;
use crate::{ControlError, input};

/// Why a task is or is not being worked on.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The task's number; absent for an item that has no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// The item, if it was asked for by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The task's status; for an item without a task held if its request starts no work, else no_task.
    pub status: String,
    /// Whether somebody works on it now.
    pub is_worked_on: bool,
    /// The reasons, the strongest first.
    pub reasons: Vec<Reason>,
    /// The agent, image, network and limits that it gets; null if it is over, or if no tracker could be asked about the
    /// item.
    pub environment: Option<Environment>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reason {
    /// Of a task: working, lost_worker, external_session, done, failed, cancelled, paused, human_task, capacity, waits, dependency, conflict, back_off, needs_client, no_free_worker, requested, round. Of a request that is held: not_allowed, unknown_requester, permission_unknown. Of an item without a task: not_scanned, closed, no_label, label_unknown, answered, refused, no_access, tracker_unavailable, no_tracker, next_scan.
    pub code: String,
    /// The reason as a sentence.
    pub message: String,
}

impl Reason {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// Which task or item.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskWhy {
    /// The task's number
    #[serde(alias = "id")]
    pub task_id: Option<i64>,
    /// Instead of it an item of a tracker, also one that has no task: owner/name#7, group/project!7, or its web address
    pub item: Option<String>,
}

/// The reasons, and what the task is or would be worked on with. The trackers are asked about an item that has no task,
/// and about the files of the repository; about an item with a task that is not over, the store alone says why.
///
/// # Errors
/// [`ControlError::TaskNotFound`], [`ControlError::ItemNotFound`]; [`ControlError::Validation`] unless one of both is
/// named.
pub async fn why(
    store: &dyn Store,
    fleet: &Fleet,
    place: &Place,
    args: &TaskWhy,
) -> Result<Why, ControlError> {
    match (args.task_id, args.item.as_deref()) {
        (Some(number), None) => {
            let task = input::task(store, number).await?;
            let held = store.held_requests().await?;
            let held = held.iter().find(|held| held.request.item == task.item);
            of_task(store, fleet, place, &task, held).await
        }
        (None, Some(name)) => why_of_item(store, fleet, place, name.trim()).await,
        (None, None) | (Some(_), Some(_)) => Err(ControlError::Validation(
            "expected either taskId or item".into(),
        )),
    }
}

/// Why a request starts no work.
pub(super) fn held_back(held: &Held) -> Reason {
    let HeldRequest { code, message, .. } = &held.request;
    Reason::new(code, format!("{message} (held since {})", time(held.since)))
}

/// The same of a task that was found already.
pub(super) async fn of_task(
    store: &dyn Store,
    fleet: &Fleet,
    place: &Place,
    task: &Task,
    held: Option<&Held>,
) -> Result<Why, ControlError> {
    let (reasons, is_worked_on) = known_reasons(store, task, held).await?;
    let agent = task.card.agent.as_deref();
    let environment = match (task.state, task.home()) {
        (TaskState::Ended(_), _) => None,
        (TaskState::Queued | TaskState::Leased(_) | TaskState::Paused, home) => {
            let tracker = fleet.tracker_of(task);
            let subject = match (home, &tracker) {
                (TaskHome::People, _) => Subject::Here,
                (TaskHome::Item | TaskHome::Repository, Some(tracker)) => {
                    Subject::Item(tracker.as_ref(), &task.item)
                }
                (TaskHome::Item | TaskHome::Repository, None) => Subject::Unserved(&task.item),
            };
            Some(environment(fleet, place, subject, agent).await)
        }
    };
    Ok(Why {
        id: Some(task.number.0),
        item: None,
        status: task.state.public().to_string(),
        is_worked_on,
        reasons,
        environment,
    })
}

/// The reasons of a task alone, the strongest first.
///
/// # Errors
/// [`ControlError::TaskNotFound`].
pub async fn reasons(store: &dyn Store, number: i64) -> Result<Vec<Reason>, ControlError> {
    let task = input::task(store, number).await?;
    let (reasons, _) = known_reasons(store, &task, None).await?;
    Ok(reasons)
}

/// The reasons that the store knows, and whether somebody works on it now.
async fn known_reasons(
    store: &dyn Store,
    task: &Task,
    held: Option<&Held>,
) -> Result<(Vec<Reason>, bool), ControlError> {
    let last = store.sessions(Some(task.id), 1).await?.pop();
    let running = last.filter(|session| session.end.is_none());
    let mut is_worked_on = running.is_some();
    let mut reasons = Vec::new();
    match task.state {
        TaskState::Leased(_) => match store.lease_ran_out_at(task.id).await? {
            Some(since) => {
                is_worked_on = false;
                reasons.push(lost(task, since));
            }
            None => reasons.push(working(task, running.as_ref())),
        },
        TaskState::Ended(_) => reasons.extend(over(task)),
        TaskState::Queued | TaskState::Paused => {
            if let Some(session) = &running {
                reasons.push(external(session));
            } else {
                waiting(store, task, &mut reasons).await?;
            }
        }
    }
    reasons.extend(held.map(held_back));
    match task.home() {
        TaskHome::Item if task.round().is_some() => {
            let number = task.round().unwrap_or_default();
            reasons.push(round(store, task, number).await?);
        }
        TaskHome::Item => reasons.push(Reason::new(
            "requested",
            format!(
                "{} asked for work by the event {}, at {}.",
                task.item,
                input::shown(&task.trigger),
                time(task.created_at)
            ),
        )),
        TaskHome::Repository => reasons.push(Reason::new(
            "requested",
            format!(
                "A person made it for {}, at {}.",
                task.item.repo_path,
                time(task.created_at)
            ),
        )),
        TaskHome::People => {}
    }
    Ok((reasons, is_worked_on))
}

/// The worker ended without giving the task back, or lost the database.
fn lost(task: &Task, since: DateTime<Utc>) -> Reason {
    let worker = task.owner.as_ref().map_or("Its worker", |owner| &owner.0);
    Reason::new(
        "lost_worker",
        format!(
            "{worker} has not renewed its lease, which ran out at {}. The next worker that is free goes on from the last \
             checkpoint; where no worker runs, start one.",
            time(since)
        ),
    )
}

/// What a round is for.
async fn round(store: &dyn Store, task: &Task, number: u32) -> Result<Reason, ControlError> {
    let rounds = store.rounds(&task.item).await?;
    let cause = rounds.into_iter().find(|round| round.number == number);
    let cause = cause.map(|round| round.cause).unwrap_or_default();
    let mut parts = Vec::new();
    match cause.requests.len() {
        0 => {}
        1 => parts.push("a review or comment".to_owned()),
        many => parts.push(format!("{many} reviews and comments")),
    }
    match cause.checks.len() {
        0 => {}
        1 => parts.push("a failed check".to_owned()),
        many => parts.push(format!("{many} failed checks")),
    }
    if cause.conflict {
        parts.push("a conflict with the target branch".to_owned());
    }
    Ok(Reason::new(
        "round",
        format!(
            "It is round {number} on {}, for {}, since {}.",
            task.item,
            parts.join(" and "),
            time(task.created_at)
        ),
    ))
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

/// How it ended; `None`: it has not.
pub(super) fn over(task: &Task) -> Option<Reason> {
    let TaskState::Ended(end) = task.state else {
        return None;
    };
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
    Some(Reason::new(code.as_str(), format!("{what}{why}.")))
}

async fn waiting(
    store: &dyn Store,
    task: &Task,
    reasons: &mut Vec<Reason>,
) -> Result<(), ControlError> {
    let of_fleet = task.home() != TaskHome::People;
    if of_fleet && task.state == TaskState::Paused {
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
    if of_fleet && let Some(due) = store.due_at(task.id).await? {
        let message = format!(
            "Its last attempt gave it back; it waits until {}.",
            time(due)
        );
        reasons.push(Reason::new("back_off", message));
    }
    if !reasons.is_empty() {
        return Ok(());
    }
    reasons.push(match of_fleet {
        false => Reason::new(
            "needs_client",
            format!(
                "It waits until somebody starts work on it: `agentmine worker run {0}` (worker_command) prepares a client, \
                 and with --local AgentMine itself works on it in this project.",
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
            "It waits for a free worker: tasks that are queued: {open}, that are worked on: {leased}."
        ),
    ))
}
