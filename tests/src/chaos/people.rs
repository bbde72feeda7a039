//! What people do to issues and tasks while the fleet works.

use std::time::Duration;

use agentmine_domain::{Task, TaskState};
use agentmine_store::TaskFilter;
use tokio::process::Command;

use super::fault::Act;
use super::fleet::Fleet;
use crate::forge::DEMO;

pub(super) const REQUEST: &str = "coding agent";

/// What is still to be done for a person's act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Later {
    Resume(u64),
    Relabel(u64),
}

impl Later {
    pub(super) fn waits_for(&self, fleet: &Fleet) -> String {
        let (Self::Resume(issue) | Self::Relabel(issue)) = *self;
        let labels = fleet.forge.labels(DEMO, issue);
        format!("; {self:?} waits, labels {labels:?}")
    }
}

/// The newest task of an issue.
pub(super) async fn task_of(fleet: &Fleet, issue: u64) -> Option<Task> {
    let tasks = fleet.store.tasks(&TaskFilter::default()).await.ok()?;
    tasks.into_iter().find(|task| fleet.number(task) == issue)
}

/// Acts on an issue. `false`: there is nothing yet to act on.
pub(super) async fn act(fleet: &Fleet, issue: u64, act: Act) -> (bool, Option<Later>) {
    let task = task_of(fleet, issue).await;
    let is_over = |task: &Task| matches!(task.state, TaskState::Ended(_));
    match act {
        Act::CloseIssue => {
            fleet.forge.close(DEMO, issue);
            (true, None)
        }
        Act::Relabel => {
            let labels = fleet.forge.labels(DEMO, issue);
            if task.is_none() || labels.iter().any(|it| it == REQUEST) {
                return (false, None);
            }
            fleet.forge.add_label(DEMO, issue, REQUEST);
            (true, None)
        }
        Act::Stop | Act::PauseAndResume | Act::PauseAndRelabel => {
            let Some(task) = task.filter(|task| !is_over(task)) else {
                return (false, None);
            };
            let (verb, later) = match act {
                Act::PauseAndResume => ("pause", Some(Later::Resume(issue))),
                Act::PauseAndRelabel => ("pause", Some(Later::Relabel(issue))),
                _ => ("stop", None),
            };
            command_line(fleet, &[verb, &task.id.to_string()], "").await;
            (true, later)
        }
        Act::ClosePullRequest => {
            let Some(task) = task else {
                return (false, None);
            };
            let branch = task.branch();
            let pulls = fleet.forge.pulls(DEMO);
            let Some(pull) = pulls.iter().find(|pull| pull.head == branch) else {
                return (false, None);
            };
            fleet.forge.close(DEMO, pull.number);
            (true, None)
        }
        Act::PushToBranch => {
            let Some(branch) = task.map(|task| task.branch()) else {
                return (false, None);
            };
            if fleet.forge.branch_sha(DEMO, &branch).is_none() {
                return (false, None);
            }
            fleet.forge.commit(DEMO, &branch, &branch, |folder| {
                let _ = std::fs::write(folder.join("PERSON.md"), "A person was here.\n");
            });
            (true, None)
        }
    }
}

/// Does the rest of an act, if the task is paused by now. `true`: there is nothing more to do.
pub(super) async fn later(fleet: &Fleet, later: Later) -> bool {
    let (Later::Resume(issue) | Later::Relabel(issue)) = later;
    let Some(task) = task_of(fleet, issue).await else {
        // The store is away: it was there when the act began.
        return false;
    };
    match task.state {
        TaskState::Ended(_) => true,
        TaskState::Queued | TaskState::Leased(_) => false,
        TaskState::Paused => {
            match later {
                // Again if it did not come through: the database may be away.
                Later::Resume(_) => {
                    return command_line(fleet, &["resume", &task.id.to_string()], "").await;
                }
                Later::Relabel(_) => {
                    // A label that is still there cannot be put on.
                    let labels = fleet.forge.labels(DEMO, issue);
                    if labels != ["coding agent paused"] {
                        return false;
                    }
                    fleet.forge.add_label(DEMO, issue, REQUEST);
                }
            }
            true
        }
    }
}

/// `agentmine task ARGS`, on the suite's own connection to the store, with failpoints.
pub(super) async fn command_line(fleet: &Fleet, args: &[&str], points: &str) -> bool {
    let config = fleet.folder.join("people.json");
    let text = serde_json::json!({
        "store": { "url": fleet.store_url, "max_connections": 2 },
        "trackers": fleet.trackers(),
    });
    if std::fs::write(&config, text.to_string()).is_err() {
        return false;
    }
    let mut command = Command::new(fleet.setup.binaries.join("agentmine"));
    command
        .arg("--config")
        .arg(&config)
        .arg("task")
        .args(args)
        .env(
            fleet.setup.forge.token_variable(),
            fleet.forge.human_token(),
        )
        .env("AGENTMINE_FAILPOINTS", points)
        .env("AGENTMINE_FAILPOINTS_DIR", fleet.points())
        .env("HOME", &fleet.state)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    let limit = Duration::from_secs(20);
    let done = tokio::time::timeout(limit, command.status()).await;
    matches!(done, Ok(Ok(status)) if status.success())
}
