//! The reasons that are known of a task without a question to its tracker.

use agentmine_domain::{Task, TaskHome, TaskState, TrackerKind};
use agentmine_store::why::{TaskReason, known_reasons};
use agentmine_store::{Held, Store};
use schemars::JsonSchema;
use serde::Serialize;

use crate::fleet::{Environment, Fleet, Subject, environment};
use crate::worker::Place;
use crate::{ControlError, input};

/// Why a task is or is not being worked on.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The task's number; absent for an item that has no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// The item, if the request named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The task's status; for an item without a task, held if its request does not start work, else no_task.
    pub status: String,
    /// Whether somebody works on it now.
    pub is_worked_on: bool,
    /// The reasons, the most important first.
    pub reasons: Vec<Reason>,
    /// The agent, image, network and limits that it gets; null if it is over, or if no tracker could be queried about
    /// the item.
    pub environment: Option<Environment>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reason {
    /// Of a task: working, lost_worker, external_session, done, failed, cancelled, paused, human_task, capacity, waits, dependency, conflict, back_off, needs_client, needs_run, no_free_worker, pause_file, requested, round. Of a request that is held: not_allowed, unknown_requester, permission_unknown. Of an item without a task: not_scanned, closed, no_label, label_unknown, answered, refused, not_found, no_access, tracker_unavailable, no_tracker, next_scan.
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

impl From<TaskReason> for Reason {
    fn from(TaskReason { code, message }: TaskReason) -> Self {
        Self { code, message }
    }
}

/// The reasons of a task that was found already, and what it is worked on with.
pub(super) async fn of_task(
    store: &dyn Store,
    fleet: &Fleet,
    place: &Place,
    task: &Task,
    held: Option<&Held>,
) -> Result<Why, ControlError> {
    let (reasons, is_worked_on) = known_reasons(store, task, held).await?;
    let mut reasons: Vec<Reason> = reasons.into_iter().map(Reason::from).collect();
    let of_run = is_of_run(fleet, task);
    if of_run {
        continued_by_run(task, &mut reasons);
    } else if task.state == TaskState::Queued && task.home() != TaskHome::People {
        reasons.extend(pause_file(fleet));
    }
    let agent = task.card.agent.as_deref();
    let environment = match (task.state, task.home()) {
        (TaskState::Ended(_), _) => None,
        // By the options of the run, and files that no tracker here reads.
        (TaskState::Queued | TaskState::Leased(_) | TaskState::Paused, _) if of_run => None,
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

/// Whether only `agentmine run` works on it: its item is in a folder that no configured tracker has.
fn is_of_run(fleet: &Fleet, task: &Task) -> bool {
    task.item.tracker == TrackerKind::Local
        && task.home() == TaskHome::Item
        && fleet.tracker_of(task).is_none()
}

/// What the store says of workers, delays and producers does not apply to a task of `agentmine run`: only the next run
/// continues with it, and without a delay.
fn continued_by_run(task: &Task, reasons: &mut Vec<Reason>) {
    let is_of_fleet = |it: &Reason| {
        ["no_free_worker", "back_off", "paused", "lost_worker"].contains(&it.code.as_str())
    };
    let Some(at) = reasons.iter().position(is_of_fleet) else {
        return;
    };
    let run = format!("`agentmine run --repo {}`", task.item.repo_path);
    let why = task.reason.as_deref().map(|why| why.trim_end_matches('.'));
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let reason = match task.state {
        TaskState::Paused => Reason::new(
            "paused",
            format!(
                "It is paused{why}. `agentmine task resume {}`, and then the same {run} that began it, continues with \
                 the work so far.",
                task.number
            ),
        ),
        TaskState::Leased(_) => Reason::new(
            "lost_worker",
            format!(
                "The {run} that worked on it ended without giving it back. The same command continues from the last \
                 checkpoint."
            ),
        ),
        TaskState::Queued | TaskState::Ended(_) => Reason::new(
            "needs_run",
            format!(
                "It is not finished, and nobody works on it{why}. No worker of a fleet takes it: the same {run} that \
                 began it continues with the work so far."
            ),
        ),
    };
    reasons.retain(|it| !is_of_fleet(it));
    reasons.insert(at, reason);
}

/// That no worker of this machine takes tasks.
fn pause_file(fleet: &Fleet) -> Option<Reason> {
    let file = fleet.config().consumer.paused_by()?;
    let file = file.display();
    Some(Reason::new(
        "pause_file",
        format!(
            "{file} (consumer.pause_file) exists: workers on this machine take no tasks until it is removed."
        ),
    ))
}

/// The reasons of a task alone, the strongest first.
///
/// # Errors
/// [`ControlError::TaskNotFound`].
pub async fn reasons(store: &dyn Store, number: i64) -> Result<Vec<Reason>, ControlError> {
    let task = input::task(store, number).await?;
    let (reasons, _) = known_reasons(store, &task, None).await?;
    Ok(reasons.into_iter().map(Reason::from).collect())
}
