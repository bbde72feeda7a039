//! A task and its states.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::card::{TaskCard, TaskHome, TaskOrigin};
use crate::ids::{Epoch, SessionId, TaskId, TaskNumber, WorkerId};
use crate::item::{ItemKind, ItemRef, PEOPLE_HOST};
use crate::names::{UnknownName, named};
use crate::round::Round;

named!(
    /// What the worker that holds a lease is doing.
    Phase, "phase" {
        /// Starting the sandbox and cloning into it.
        Preparing = "preparing",
        /// Running the model's tool loop.
        Running = "running",
        /// Gathering facts on the pushed commit.
        Verifying = "verifying",
        /// Opening the pull request, moving labels.
        Reporting = "reporting",
    }
);

named!(
    /// How a task ended. These states are final.
    EndState, "end state" {
        /// There is a measured result.
        Done = "done",
        /// The task failed; the reason is in the row.
        Failed = "failed",
        /// A person stopped the task.
        Stopped = "stopped",
    }
);

named!(
    /// The priority of a task. Each priority has its own queue of wake-ups.
    Priority, "priority" {
        /// After all others.
        Low = "low",
        /// The default.
        Medium = "medium",
        /// Before medium.
        High = "high",
        /// Before all others.
        Critical = "critical",
    }
);

named!(
    /// A task's status as shown to editors and people.
    PublicStatus, "status" {
        /// Waiting for a worker.
        Open = "open",
        /// Leased or paused.
        InProgress = "in_progress",
        /// Ended with a result.
        Done = "done",
        /// Failed.
        Failed = "failed",
        /// Stopped by a person.
        Cancelled = "cancelled",
    }
);

/// The state of a task, derived from its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", content = "detail", rename_all = "snake_case")]
pub enum TaskState {
    /// Waiting for a worker.
    Queued,
    /// A worker holds a lease on it.
    Leased(Phase),
    /// Paused by a person; its sandbox is removed, its checkpoints are kept.
    Paused,
    /// The task has ended.
    Ended(EndState),
}

impl TaskState {
    /// The status as shown to editors and people (spec 003, `task_list`).
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

    /// The name of the state without the phase: `queued`, `leased`, `paused`, `done`, `failed` or `stopped`.
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

/// A task that a producer asks the store to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// The item the task is about.
    pub item: ItemRef,
    /// The event that triggered the task: the id of a label event, or the digest of a file. The same
    /// trigger never creates a second task, even if it is reported by an outdated scan.
    pub trigger: String,
    /// The item's title when it was found.
    pub title: String,
    /// The item's web address.
    pub url: String,
    /// The priority.
    pub priority: Priority,
}

impl NewTask {
    /// The deduplication key: `tracker|host|repo id|kind|number|trigger`.
    #[must_use]
    pub fn dedup_key(&self) -> String {
        format!("{}|{}", self.item.key(), self.trigger)
    }
}

/// With this begins the reason of a task with a partial result.
const PARTIAL: &str = "partial: ";

/// The reason of a task that ended with a partial result.
#[must_use]
pub fn partial_reason(missing: &str) -> String {
    format!("{PARTIAL}{missing}")
}

/// With this begins the reason of a task that waits until its tracker or git host accepts the credentials.
const CREDENTIALS: &str = "credentials: ";

/// The reason of a task that is paused until its tracker or git host accepts the credentials.
#[must_use]
pub fn credentials_reason(refusal: &str) -> String {
    format!("{CREDENTIALS}{refusal}")
}

/// With this begins the reason of a task that waits until a label is removed from its item; the label's name follows.
const PAUSE_LABEL: &str = "pause label: ";

/// The reason of a task that is paused while its item carries a label.
#[must_use]
pub fn pause_label_reason(label: &str) -> String {
    format!("{PAUSE_LABEL}{label}")
}

/// The label in a reason of [`pause_label_reason`].
#[must_use]
pub fn label_of_pause(reason: &str) -> Option<&str> {
    reason.strip_prefix(PAUSE_LABEL)
}

/// One piece of work from a tracker item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// The id, which also names the container.
    pub id: TaskId,
    /// The number for people.
    pub number: TaskNumber,
    /// The item that it is about.
    pub item: ItemRef,
    /// The event that triggered it.
    pub trigger: String,
    /// A later request for work on the item that this task has taken account of.
    pub answered_trigger: Option<String>,
    /// The item's title when it was found.
    pub title: String,
    /// The item's web address.
    pub url: String,
    /// The priority.
    pub priority: Priority,
    /// The state.
    pub state: TaskState,
    /// The epoch of the newest lease; 0 before the first.
    pub epoch: Epoch,
    /// The number of attempts. A lease that a worker gave back on shutdown does not count.
    pub attempt: u32,
    /// The worker that holds or held the newest lease.
    pub owner: Option<WorkerId>,
    /// When the lease expires, by the store's clock.
    pub lease_until: Option<DateTime<Utc>>,
    /// Why it failed, was stopped, or is paused.
    pub reason: Option<String>,
    /// The pull request's web address, once there is one.
    pub pull_request_url: Option<String>,
    /// When it was recorded.
    pub created_at: DateTime<Utc>,
    /// When its row last changed.
    pub updated_at: DateTime<Utc>,
    /// The name of its branch, if a session recorded one before the first push.
    pub named_branch: Option<String>,
    /// What people know and say of it.
    pub card: TaskCard,
}

impl Task {
    /// Whether it is paused until its tracker or git host accepts the credentials, and not by a person.
    #[must_use]
    pub fn waits_for_credentials(&self) -> bool {
        self.refusal().is_some()
    }

    /// What a service answered that refused the account or its credentials, if the task is paused for that.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        let paused = self
            .reason
            .as_deref()
            .filter(|_| self.state == TaskState::Paused);
        paused?.strip_prefix(CREDENTIALS)
    }

    /// The label on its item for which it is paused, if it is paused for that.
    #[must_use]
    pub fn pause_label(&self) -> Option<&str> {
        label_of_pause(self.reason.as_deref()?).filter(|_| self.state == TaskState::Paused)
    }

    /// Who works on it.
    #[must_use]
    pub fn home(&self) -> TaskHome {
        match self.card.origin {
            TaskOrigin::Tracker => TaskHome::Item,
            TaskOrigin::Person if self.item.host == PEOPLE_HOST => TaskHome::People,
            TaskOrigin::Person => TaskHome::Repository,
        }
    }

    /// The only branch that this task may push to: the recorded one, else [`Self::branch_of_id`]. It is the same for every
    /// attempt.
    #[must_use]
    pub fn branch(&self) -> String {
        let named = self.named_branch.clone();
        named.unwrap_or_else(|| self.branch_of_id())
    }

    /// The branch of a task whose session recorded no other name. No other task has it.
    #[must_use]
    pub fn branch_of_id(&self) -> String {
        let kind = match self.item.kind {
            ItemKind::Issue => "issue",
            ItemKind::PullRequest => "pr",
            ItemKind::Task => "task",
        };
        format!("agentmine/{kind}-{}-{}", self.item.number, self.id.short())
    }

    /// Whether this task is the answer to a request for work. A request that a person made later is not
    /// answered by it, unless the task waited at that time.
    #[must_use]
    pub fn answers(&self, trigger: &str) -> bool {
        self.trigger == trigger || self.answered_trigger.as_deref() == Some(trigger)
    }

    /// What is missing, if the task ended with a partial result.
    #[must_use]
    pub fn missing(&self) -> Option<&str> {
        match self.state {
            TaskState::Ended(EndState::Done) => self.reason.as_deref()?.strip_prefix(PARTIAL),
            TaskState::Queued
            | TaskState::Leased(_)
            | TaskState::Paused
            | TaskState::Ended(EndState::Failed | EndState::Stopped) => None,
        }
    }

    /// The number of the round that this task is; `None` if it is none.
    #[must_use]
    pub fn round(&self) -> Option<u32> {
        match self.item.kind {
            ItemKind::PullRequest => Round::number_of(&self.trigger),
            ItemKind::Issue | ItemKind::Task => None,
        }
    }
}

/// Proof that a worker held the task when the store last answered. Every write of a session to the
/// store requires one, and is refused if its epoch or its nonce is no longer the row's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// The session that this lease began.
    pub session: SessionId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Names the claim. A failover of the database that loses commits may give two claims one epoch.
    pub nonce: Uuid,
    /// The worker that holds it.
    pub worker: WorkerId,
}

/// A message in the queue. It carries no state, which is in the task's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeUp {
    /// The task to claim.
    pub task: TaskId,
    /// The task's priority, which selects the queue of a new task.
    pub priority: Priority,
    /// Whether the task is new or was begun.
    pub urgency: Urgency,
}

/// Whether a wake-up waits for its turn. A task that lost its worker goes before all others of any priority: its
/// people have waited for it already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// It waits behind the tasks of its priority.
    #[default]
    Normal,
    /// A worker began the task and is gone.
    Takeover,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_parsed_to_its_variant() {
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
    fn a_paused_task_is_shown_as_in_progress() {
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
            answered_trigger: None,
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
            named_branch: None,
            card: TaskCard::default(),
        }
    }

    #[test]
    fn the_branch_is_named_after_the_task() {
        let issue = task(ItemKind::Issue);
        assert_eq!(issue.branch(), "agentmine/issue-7-deadbeef");
        assert_eq!(
            task(ItemKind::PullRequest).branch(),
            "agentmine/pr-7-deadbeef"
        );
        let of_a_person = task(ItemKind::Task);
        assert_eq!(of_a_person.branch(), "agentmine/task-7-deadbeef");
        let named = Task {
            named_branch: Some("fix/bot-7-greet".into()),
            ..of_a_person
        };
        assert_eq!(named.branch(), "fix/bot-7-greet");
        assert_eq!(named.branch_of_id(), "agentmine/task-7-deadbeef");
    }

    #[test]
    fn the_dedup_key_consists_of_item_and_trigger() {
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

    fn ended(state: TaskState, reason: &str) -> Task {
        Task {
            state,
            reason: Some(reason.into()),
            ..task(ItemKind::Issue)
        }
    }

    #[test]
    fn a_pause_for_credentials_is_none_of_a_person() {
        let reason = credentials_reason("401");
        assert_eq!(reason, "credentials: 401");
        assert!(ended(TaskState::Paused, &reason).waits_for_credentials());
        assert!(!ended(TaskState::Queued, &reason).waits_for_credentials());
        assert!(!ended(TaskState::Paused, "by mona").waits_for_credentials());
        assert!(!task(ItemKind::Issue).waits_for_credentials());
    }

    #[test]
    fn a_pause_for_a_label_names_it() {
        let reason = pause_label_reason("hold");
        assert_eq!(reason, "pause label: hold");
        assert_eq!(label_of_pause(&reason), Some("hold"));
        assert_eq!(label_of_pause("by mona"), None);
        assert_eq!(
            ended(TaskState::Paused, &reason).pause_label(),
            Some("hold")
        );
        assert_eq!(ended(TaskState::Queued, &reason).pause_label(), None);
        assert_eq!(ended(TaskState::Paused, "by mona").pause_label(), None);
    }

    #[test]
    fn what_is_missing_is_told_of_a_partial_result_alone() {
        let reason = partial_reason("the tests");
        assert_eq!(reason, "partial: the tests");
        let done = TaskState::Ended(EndState::Done);
        assert_eq!(ended(done, &reason).missing(), Some("the tests"));
        assert_eq!(ended(done, "it was merged").missing(), None);
        let failed = TaskState::Ended(EndState::Failed);
        assert_eq!(ended(failed, &reason).missing(), None);
    }

    #[test]
    fn a_task_is_at_home_where_it_was_made() {
        let of_a_person = |host: &str| {
            let mut task = task(ItemKind::Task);
            task.card.origin = TaskOrigin::Person;
            task.item.host = host.into();
            task.home()
        };
        assert_eq!(task(ItemKind::Issue).home(), TaskHome::Item);
        assert_eq!(of_a_person(PEOPLE_HOST), TaskHome::People);
        assert_eq!(of_a_person("github.com"), TaskHome::Repository);
    }

    #[test]
    fn a_task_answers_its_own_request_and_one_made_while_it_waited() {
        let task = Task {
            answered_trigger: Some("later".into()),
            ..task(ItemKind::Issue)
        };
        assert!(task.answers("event") && task.answers("later"));
        assert!(!task.answers("another"));
    }

    #[test]
    fn a_round_is_a_task_on_a_pull_request() {
        let round = |kind| Task {
            trigger: "round-2".into(),
            ..task(kind)
        };
        assert_eq!(round(ItemKind::PullRequest).round(), Some(2));
        assert_eq!(round(ItemKind::Issue).round(), None);
        assert_eq!(task(ItemKind::PullRequest).round(), None);
    }
}
