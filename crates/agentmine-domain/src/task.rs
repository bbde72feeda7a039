//! A task and the states it passes through.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, SessionId, TaskId, TaskNumber, WorkerId};
use crate::item::{ItemKind, ItemRef};
use crate::names::{UnknownName, named};

named!(
    /// What the worker that holds a lease is doing.
    Phase, "phase" {
        /// Making the sandbox and cloning into it.
        Preparing = "preparing",
        /// The model's tool loop.
        Running = "running",
        /// Gathering facts on the pushed commit.
        Verifying = "verifying",
        /// Opening the pull request, moving labels.
        Reporting = "reporting",
    }
);

named!(
    /// How a task ended. No state follows one of these.
    EndState, "end state" {
        /// The result stands, as measured.
        Done = "done",
        /// It could not be done; the reason is in the row.
        Failed = "failed",
        /// Somebody stopped it.
        Stopped = "stopped",
    }
);

named!(
    /// Which of the queues, one per class, carries a task's wake-ups.
    Priority, "priority" {
        /// When nothing else waits.
        Low = "low",
        /// The default.
        Medium = "medium",
        /// Before medium.
        High = "high",
        /// Before all else.
        Critical = "critical",
    }
);

named!(
    /// A task's state in the words that editors and people see.
    PublicStatus, "status" {
        /// Waiting for a worker.
        Open = "open",
        /// Leased or paused.
        InProgress = "in_progress",
        /// Ended well.
        Done = "done",
        /// Ended badly.
        Failed = "failed",
        /// Stopped by somebody.
        Cancelled = "cancelled",
    }
);

/// Where a task stands. Derived from the row's few facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", content = "detail", rename_all = "snake_case")]
pub enum TaskState {
    /// Waiting for a worker.
    Queued,
    /// A worker has it.
    Leased(Phase),
    /// Set aside by a person; its sandbox is gone, its checkpoints are not.
    Paused,
    /// Over.
    Ended(EndState),
}

impl TaskState {
    /// The state in the words that editors and people see (spec 003, `task_list`).
    #[must_use]
    pub fn public(self) -> PublicStatus {
        match self {
            Self::Queued => PublicStatus::Open,
            Self::Leased(_) | Self::Paused => PublicStatus::InProgress,
            Self::Ended(EndState::Done) => PublicStatus::Done,
            Self::Ended(EndState::Failed) => PublicStatus::Failed,
            Self::Ended(EndState::Stopped) => PublicStatus::Cancelled,
        }
    }

    /// The name of the state alone: `queued`, `leased`, `paused`, `done`, `failed` or `stopped`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Leased(_) => "leased",
            Self::Paused => "paused",
            Self::Ended(end) => end.as_str(),
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leased(phase) => f.pad(phase.as_str()),
            Self::Queued | Self::Paused | Self::Ended(_) => f.pad(self.as_str()),
        }
    }
}

/// What a producer asks the store to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// The item the task is about.
    pub item: ItemRef,
    /// What set it off, as the tracker identifies it: a label event's id, a file's digest. The same
    /// trigger never makes a second task, however old the scan that reports it.
    pub trigger: String,
    /// The item's title when it was found.
    pub title: String,
    /// Where a person reads the item.
    pub url: String,
    /// Which queue.
    pub priority: Priority,
}

impl NewTask {
    /// `tracker|host|repo id|kind|number|trigger`.
    #[must_use]
    pub fn dedup_key(&self) -> String {
        format!("{}|{}", self.item.key(), self.trigger)
    }
}

/// One piece of work from a tracker item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Identity; names the container.
    pub id: TaskId,
    /// The number for people.
    pub number: TaskNumber,
    /// What it is about.
    pub item: ItemRef,
    /// What set it off.
    pub trigger: String,
    /// The item's title when it was found.
    pub title: String,
    /// Where a person reads the item.
    pub url: String,
    /// Which queue.
    pub priority: Priority,
    /// Where it stands.
    pub state: TaskState,
    /// The epoch of the newest lease; 0 before the first.
    pub epoch: Epoch,
    /// How many leases began. A lease that was given back in good order does not count.
    pub attempt: u32,
    /// Who holds or held the newest lease.
    pub owner: Option<WorkerId>,
    /// Until when the lease holds, by the store's clock.
    pub lease_until: Option<DateTime<Utc>>,
    /// Why it failed, stopped or is paused, in words.
    pub reason: Option<String>,
    /// Where the pull request is, once there is one.
    pub pull_request_url: Option<String>,
    /// When it was recorded.
    pub created_at: DateTime<Utc>,
    /// When its row last changed.
    pub updated_at: DateTime<Utc>,
}

impl Task {
    /// The one branch this task may push to. Deterministic, so that every attempt finds it again.
    #[must_use]
    pub fn branch(&self) -> String {
        let kind = match self.item.kind {
            ItemKind::Issue => "issue",
            ItemKind::PullRequest => "pr",
        };
        format!("agentmine/{kind}-{}-{}", self.item.number, self.id.short())
    }

    /// The container's name (spec 001 §3.2).
    #[must_use]
    pub fn container_name(&self) -> String {
        format!("coding-agent-exec-{}", self.id)
    }
}

/// Proof that a worker held the task when the store last answered. Every write to the store and
/// every effect takes one, and is refused when its epoch is no longer the row's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// The session that this lease began.
    pub session: SessionId,
    /// The epoch it was given.
    pub epoch: Epoch,
    /// Who holds it.
    pub worker: WorkerId,
}

/// The message on the queue. It carries no state: the row is the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    /// Which row to look at.
    pub task: TaskId,
    /// Which queue it travels on.
    pub priority: Priority,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for p in Phase::ALL {
            assert_eq!(p.as_str().parse(), Ok(*p));
        }
        for p in Priority::ALL {
            assert_eq!(p.as_str().parse(), Ok(*p));
        }
        for e in EndState::ALL {
            assert_eq!(e.as_str().parse(), Ok(*e));
        }
        assert_eq!(
            "urgent".parse::<Priority>().unwrap_err().to_string(),
            r#"unknown priority "urgent""#
        );
    }

    #[test]
    fn a_paused_task_is_in_progress_to_people() {
        assert_eq!(TaskState::Paused.public(), PublicStatus::InProgress);
        assert_eq!(
            TaskState::Ended(EndState::Stopped).public(),
            PublicStatus::Cancelled
        );
    }

    fn task(kind: ItemKind) -> Task {
        let now = Utc::now();
        Task {
            id: "0190a1b2-0000-7000-8000-0000deadbeef".parse().unwrap(),
            number: TaskNumber(1),
            item: ItemRef {
                tracker: crate::TrackerKind::GitHub,
                host: "github.com".into(),
                repo_id: "42".into(),
                repo_path: "octo/demo".into(),
                kind,
                number: 7,
            },
            trigger: "event".into(),
            title: "T".into(),
            url: "u".into(),
            priority: Priority::Medium,
            state: TaskState::Queued,
            epoch: Epoch(0),
            attempt: 0,
            owner: None,
            lease_until: None,
            reason: None,
            pull_request_url: None,
            created_at: now,
            updated_at: now,
        }
    }

    #[test]
    fn a_task_names_its_branch_and_its_container() {
        let issue = task(ItemKind::Issue);
        assert_eq!(issue.branch(), "agentmine/issue-7-deadbeef");
        assert_eq!(
            issue.container_name(),
            "coding-agent-exec-0190a1b2-0000-7000-8000-0000deadbeef"
        );
        assert_eq!(
            task(ItemKind::PullRequest).branch(),
            "agentmine/pr-7-deadbeef"
        );
    }

    #[test]
    fn the_dedup_key_is_of_item_and_trigger() {
        let Task {
            item,
            trigger,
            title,
            url,
            priority,
            ..
        } = task(ItemKind::Issue);
        let new = NewTask {
            item,
            trigger,
            title,
            url,
            priority,
        };
        assert_eq!(new.dedup_key(), "github|github.com|42|issue|7|event");
    }

    #[test]
    fn every_state_has_its_name_and_its_public_status() {
        let states = [
            (TaskState::Queued, "queued", "queued", "open"),
            (
                TaskState::Leased(Phase::Running),
                "leased",
                "running",
                "in_progress",
            ),
            (TaskState::Paused, "paused", "paused", "in_progress"),
            (TaskState::Ended(EndState::Done), "done", "done", "done"),
            (
                TaskState::Ended(EndState::Failed),
                "failed",
                "failed",
                "failed",
            ),
            (
                TaskState::Ended(EndState::Stopped),
                "stopped",
                "stopped",
                "cancelled",
            ),
        ];
        for (state, name, shown, public) in states {
            assert_eq!(state.as_str(), name);
            assert_eq!(state.to_string(), shown);
            assert_eq!(state.public().as_str(), public);
        }
        assert_eq!(format!("{:<8}|", TaskState::Queued), "queued  |");
    }
}
