//! What goes into the operations on tasks of people and on sessions of external clients, and what comes out.

use agentmine_domain::{
    AssigneeType, DodResult, Priority, PublicStatus, RepositoryRef, Session, SessionId, Task,
    TaskCard, TaskId, TaskNumber, TaskState, TaskType, WriteScope,
};
use serde_json::Value;
use uuid::Uuid;

/// A task that a person makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPersonTask {
    /// The title.
    pub title: String,
    /// What is to be done.
    pub description: String,
    /// The priority.
    pub priority: Priority,
    /// What kind of work it is.
    pub kind: TaskType,
    /// The name of the person or client who works on it.
    pub assignee: Option<String>,
    /// Whether that is a person.
    pub assignee_type: AssigneeType,
    /// The agent that works on it; `None`: the default one.
    pub agent: Option<String>,
    /// The tasks that must be done first.
    pub depends_on: Vec<TaskNumber>,
    /// The files that it may change.
    pub write_scope: WriteScope,
    /// The repository in which the fleet works on it; `None`: it is worked on where a person says.
    pub repository: Option<RepositoryRef>,
    /// The task that this one is another attempt at. Each has one such attempt at most.
    pub retries: Option<TaskId>,
}

/// A change of a task by a person. `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskEdit {
    /// The version that the person saw; `None`: whatever it is.
    pub version: Option<i64>,
    /// The title.
    pub title: Option<String>,
    /// What is to be done.
    pub description: Option<String>,
    /// The priority.
    pub priority: Option<Priority>,
    /// What kind of work it is.
    pub kind: Option<TaskType>,
    /// Who is to work on it; `Some(None)`: nobody in particular.
    pub assignee: Option<Option<String>>,
    /// Whether that is a person.
    pub assignee_type: Option<AssigneeType>,
    /// The agent that works on it; `Some(None)`: the default one.
    pub agent: Option<Option<String>>,
    /// The tasks that have to be done before, all of them.
    pub depends_on: Option<Vec<TaskNumber>>,
    /// The files that it may change.
    pub write_scope: Option<WriteScope>,
    /// The status of a task of a person, and why it gets it.
    pub status: Option<(PublicStatus, Option<String>)>,
}

impl TaskEdit {
    /// What people had set of a task that is over, for the one that begins it again; `None` if that is nothing. It depended on
    /// these. Who was to work on it is not part of it.
    #[must_use]
    pub fn of_former(card: &TaskCard, depends_on: Vec<TaskNumber>) -> Option<Self> {
        let TaskCard {
            origin: _,
            kind,
            description: _,
            assignee: _,
            assignee_type: _,
            agent,
            write_scope,
            version: _,
            waits_for: _,
        } = card;
        let edit = Self {
            kind: (*kind != TaskType::Task).then_some(*kind),
            agent: agent.is_some().then(|| agent.clone()),
            depends_on: (!depends_on.is_empty()).then_some(depends_on),
            write_scope: (*write_scope != WriteScope::default()).then(|| write_scope.clone()),
            ..Self::default()
        };
        (edit != Self::default()).then_some(edit)
    }
}

/// What became of a change, or of a new task. Only [`Edited::Done`] changed anything.
#[derive(Debug, Clone, PartialEq)]
pub enum Edited {
    /// The task as it is now.
    Done(Box<Task>),
    /// There is no such task.
    Missing,
    /// Somebody else changed it: this is its version now.
    Outdated(i64),
    /// It would depend on a task that does not exist.
    NoDependency(TaskNumber),
    /// It would depend on itself, by way of this task.
    Cycle(TaskNumber),
    /// A worker of the fleet holds it, so it cannot be given to a person.
    Leased,
    /// This session of an external client is running.
    Running(SessionId),
    /// This task is another attempt at the same one already.
    Retried(Box<Task>),
}

/// A task that another one depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency {
    /// Its number.
    pub number: TaskNumber,
    /// Its state. The other task waits until it is done.
    pub state: TaskState,
}

/// A running task that may change the same files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeConflict {
    /// Its number.
    pub number: TaskNumber,
    /// A pattern of the task that waits.
    pub own: String,
    /// The pattern of the running one that it meets.
    pub their: String,
}

/// A session of a client outside of the fleet that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExternal {
    /// The client.
    pub client: String,
    /// The agent's name.
    pub agent: String,
    /// The folder of its git work tree.
    pub worktree: Option<String>,
}

/// What became of the start of an external session. Only [`Begun::Done`] changed anything.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// The session.
    Done(Box<Session>),
    /// There is no such task.
    Missing,
    /// A session of it is running.
    Running(SessionId),
    /// The task is over.
    Over(TaskState),
    /// The task is the fleet's.
    OfTheFleet,
    /// The task is for a person.
    Human,
    /// These have to be done before.
    Waits(Vec<Dependency>),
    /// A running task may change the same files.
    Conflict(ScopeConflict),
}

/// How an external session ends.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalEnd {
    /// The client's exit code.
    pub exit_code: i64,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// What became of the definition of done.
    pub dod_result: DodResult,
    /// What the client names as its results.
    pub artifacts: Vec<Value>,
    /// What the client reports as its error.
    pub error: Option<Value>,
}

impl ExternalEnd {
    /// Whether the client did its work.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit_code == 0
            && self.signal.is_none()
            && match self.dod_result {
                DodResult::Pending | DodResult::Merged => true,
                DodResult::Timeout | DodResult::Error => false,
            }
    }

    /// The status that the task gets: done once the work is merged, failed if the client or its checks failed, and
    /// else still in progress.
    #[must_use]
    pub fn task_status(&self) -> PublicStatus {
        match (self.dod_result, self.succeeded()) {
            (DodResult::Merged, _) => PublicStatus::Done,
            (_, true) => PublicStatus::InProgress,
            (_, false) => PublicStatus::Failed,
        }
    }

    /// Why it failed, in words; `None` if it did not.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        if self.task_status() != PublicStatus::Failed {
            return None;
        }
        let ended = match (&self.signal, self.exit_code) {
            (Some(signal), _) => format!("the client was ended by {signal}"),
            (None, code) => format!("the client ended with exit code {code}"),
        };
        Some(match self.dod_result {
            DodResult::Pending | DodResult::Merged => ended,
            DodResult::Timeout => format!("a check took too long; {ended}"),
            DodResult::Error => format!("a check failed; {ended}"),
        })
    }
}

/// What became of the end of an external session. Only [`ExternalFinish::Done`] changed anything.
#[derive(Debug, Clone, PartialEq)]
pub enum ExternalFinish {
    /// The session and its task, as they are now.
    Done(Box<Session>, Box<Task>),
    /// There is no such session.
    Missing,
    /// It has ended before.
    Over(Box<Session>),
    /// A worker of the fleet runs it.
    OfTheFleet,
}

/// The identity of one call, so that the store can repeat it after a commit whose outcome is unknown.
pub(crate) fn token() -> Uuid {
    Uuid::new_v4()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_attempt_has_what_people_had_set() {
        let card = TaskCard::default();
        assert_eq!(TaskEdit::of_former(&card, Vec::new()), None);
        let scope = WriteScope::new(vec!["docs/**".into()]).unwrap();
        let card = TaskCard {
            kind: TaskType::Bug,
            agent: Some("careful".into()),
            write_scope: scope.clone(),
            ..card
        };
        let expected = TaskEdit {
            kind: Some(TaskType::Bug),
            agent: Some(Some("careful".into())),
            depends_on: Some(vec![TaskNumber(2)]),
            write_scope: Some(scope),
            ..TaskEdit::default()
        };
        let edit = TaskEdit::of_former(&card, vec![TaskNumber(2)]);
        assert_eq!(edit, Some(expected));
    }
}
