//! Why a task is or is not being worked on, as far as the store knows: the codes and sentences of `task why`.

use agentmine_domain::{
    AssigneeType, EndState, PublicStatus, Session, Task, TaskHome, TaskState, WaitsFor,
};
use chrono::{DateTime, SecondsFormat, Utc};

use crate::{Held, HeldRequest, Store, StoreError, Turn};

/// Characters of a trigger that are shown.
const MAX_TRIGGER: usize = 100;

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskReason {
    /// Its stable name.
    pub code: String,
    /// The reason as a sentence.
    pub message: String,
}

impl TaskReason {
    fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// The reasons that the store knows, and whether somebody works on it now.
///
/// # Errors
/// Returns errors of the store.
pub async fn known_reasons(
    store: &dyn Store,
    task: &Task,
    held: Option<&Held>,
) -> Result<(Vec<TaskReason>, bool), StoreError> {
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
        TaskHome::Item => reasons.push(TaskReason::new(
            "requested",
            format!(
                "{} requested work with the event {}, at {}.",
                task.item,
                shown(&task.trigger),
                time(task.created_at)
            ),
        )),
        TaskHome::Repository => reasons.push(TaskReason::new(
            "requested",
            format!(
                "A person created it for {}, at {}.",
                task.item.repo_path,
                time(task.created_at)
            ),
        )),
        TaskHome::People => {}
    }
    Ok((reasons, is_worked_on))
}

/// The worker ended without giving the task back, or lost the database.
fn lost(task: &Task, since: DateTime<Utc>) -> TaskReason {
    let worker = task.owner.as_ref().map_or("Its worker", |owner| &owner.0);
    TaskReason::new(
        "lost_worker",
        format!(
            "{worker} has not renewed its lease, which expired at {}. The next free worker continues from the last \
             checkpoint; if no worker is running, start one.",
            time(since)
        ),
    )
}

/// What a round is for.
async fn round(store: &dyn Store, task: &Task, number: u32) -> Result<TaskReason, StoreError> {
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
    Ok(TaskReason::new(
        "round",
        format!(
            "It is round {number} on {}, for {}, since {}.",
            task.item,
            parts.join(" and "),
            time(task.created_at)
        ),
    ))
}

fn working(task: &Task, running: Option<&Session>) -> TaskReason {
    let worker = task.owner.as_ref().map_or("a worker", |owner| &owner.0);
    let phase = match task.state {
        TaskState::Leased(phase) => phase.as_str(),
        TaskState::Queued | TaskState::Paused | TaskState::Ended(_) => "",
    };
    let session = running.map_or_else(String::new, |session| {
        format!(
            " in session {}, since {}",
            session.id,
            time(session.started_at)
        )
    });
    TaskReason::new("working", format!("{worker} is {phase}{session}."))
}

fn external(session: &Session) -> TaskReason {
    let client = session
        .external
        .as_ref()
        .map_or("a client", |it| &it.client);
    TaskReason::new(
        "external_session",
        format!(
            "{client} works on it in session {}, since {}.",
            session.id,
            time(session.started_at)
        ),
    )
}

/// How it ended; `None`: it has not.
#[must_use]
pub fn over(task: &Task) -> Option<TaskReason> {
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
    Some(TaskReason::new(code.as_str(), format!("{what}{why}.")))
}

async fn waiting(
    store: &dyn Store,
    task: &Task,
    reasons: &mut Vec<TaskReason>,
) -> Result<(), StoreError> {
    let of_fleet = task.home() != TaskHome::People;
    if of_fleet && task.state == TaskState::Paused {
        reasons.push(TaskReason::new("paused", paused(task)));
    }
    if task.card.assignee_type == AssigneeType::Human {
        let who = task.card.assignee.as_deref().unwrap_or("a person");
        reasons.push(TaskReason::new(
            "human_task",
            format!("It is assigned to {who}; no worker takes it."),
        ));
    }
    if let Some(waits_for) = &task.card.waits_for {
        reasons.push(in_turn(store, task, waits_for).await?);
    }
    for on in store.dependencies(task.id).await? {
        let status = on.state.public();
        if status != PublicStatus::Done {
            let message = format!("It depends on task {}, which is {status}.", on.number);
            reasons.push(TaskReason::new("dependency", message));
        }
    }
    if let Some(other) = store.scope_conflict(task).await? {
        let message = format!(
            "It may change {}, and task {}, which is running, may change {}.",
            other.own, other.number, other.their
        );
        reasons.push(TaskReason::new("conflict", message));
    }
    if of_fleet && let Some(due) = store.due_at(task.id).await? {
        let message = format!(
            "Its last attempt returned it to the queue; it waits until {}.",
            time(due)
        );
        reasons.push(TaskReason::new("back_off", message));
    }
    if !reasons.is_empty() {
        return Ok(());
    }
    reasons.push(match of_fleet {
        false => TaskReason::new(
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

/// What ends the pause of a paused task of the fleet.
fn paused(task: &Task) -> String {
    let why = task.reason.as_deref().unwrap_or("no reason is recorded");
    if let Some(label) = task.pause_label() {
        return format!("It is paused until the label `{label}` is removed from its item.");
    }
    match task.refusal() {
        Some(refusal) => format!(
            "It is paused because a service refused the account or its credentials, and a producer retries it \
             automatically, with a longer delay each time. `agentmine task resume {}` tries it at once. {}",
            task.number,
            sentence(refusal)
        ),
        None => format!("It is paused until somebody resumes it: {}", sentence(why)),
    }
}

/// With one full stop at the end.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end().trim_end_matches('.'))
}

/// Why a task is not admitted yet.
async fn in_turn(
    store: &dyn Store,
    task: &Task,
    waits_for: &WaitsFor,
) -> Result<TaskReason, StoreError> {
    if let WaitsFor::Item(reason) = waits_for {
        return Ok(TaskReason::new("waits", format!("It waits: {reason}.")));
    }
    let Turn { reason, before } = store.turn(task).await?;
    let reason = reason.unwrap_or_else(|| "its repository has not been checked yet".to_owned());
    let before = match before {
        0 => "it is the next task of its repository".to_owned(),
        1 => "1 task of its repository is ahead of it".to_owned(),
        _ => format!("{before} tasks of its repository are ahead of it"),
    };
    Ok(TaskReason::new(
        "capacity",
        format!("It waits for its turn: {reason}; {before}."),
    ))
}

async fn no_free_worker(store: &dyn Store) -> Result<TaskReason, StoreError> {
    let (open, leased) = store.queued_and_leased().await?;
    Ok(TaskReason::new(
        "no_free_worker",
        format!("It waits for a free worker. Queued tasks: {open}, running tasks: {leased}."),
    ))
}

/// Why a request starts no work.
#[must_use]
pub fn held_back(held: &Held) -> TaskReason {
    let HeldRequest { code, message, .. } = &held.request;
    TaskReason::new(code, format!("{message} (held since {})", time(held.since)))
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_TRIGGER).collect()
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
