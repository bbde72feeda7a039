//! What people know and say of a task, beside what its tracker item says.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{UnknownName, named};
use crate::scope::WriteScope;

named!(
    /// Who made a task.
    TaskOrigin, "task origin" {
        /// A producer, from an item of a tracker. The fleet's workers work on it.
        Tracker = "tracker",
        /// A person or an orchestrator.
        Person = "person",
    }
);

named!(
    /// What kind of work a task is.
    TaskType, "type" {
        /// Anything else.
        Task = "task",
        /// Something new.
        Feature = "feature",
        /// A defect.
        Bug = "bug",
        /// A change of structure alone.
        Refactor = "refactor",
    }
);

named!(
    /// Who is to work on a task.
    AssigneeType, "assignee type" {
        /// A worker of the fleet, or an external client.
        Ai = "ai",
        /// A person. The task is tracked, and no worker claims it.
        Human = "human",
    }
);

/// Who works on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskHome {
    /// The fleet, on an item of a tracker.
    Item,
    /// The fleet, on a task that a person made for a repository of a tracker.
    Repository,
    /// A person, an external client, or this program where a person says so. No worker of the fleet claims it.
    People,
}

/// What people know and say of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskCard {
    /// Who made the task.
    pub origin: TaskOrigin,
    /// What kind of work it is.
    #[serde(rename = "type")]
    pub kind: TaskType,
    /// What is to be done. Empty for a task of a tracker, whose item says it.
    pub description: String,
    /// The name of the person or client who works on it.
    pub assignee: Option<String>,
    /// Whether that is a person.
    pub assignee_type: AssigneeType,
    /// The agent that works on it; `None`: the default one.
    pub agent: Option<String>,
    /// The files that it may change. Empty: not known.
    pub write_scope: WriteScope,
    /// Counts the changes that people made; from 1.
    pub version: i64,
    /// What a queued task of a tracker waits for before a worker may claim it; `None`: nothing.
    #[serde(skip)]
    pub waits_for: Option<WaitsFor>,
}

/// What a queued task of a tracker waits for before a worker may claim it. Its item keeps the label of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// Its turn: its repository has as many tasks as it may have, or others go first.
    Turn,
    /// Something of its own item, as a sentence without a full stop.
    Item(String),
}

impl Default for TaskCard {
    /// That of a task which a producer records.
    fn default() -> Self {
        Self {
            origin: TaskOrigin::Tracker,
            kind: TaskType::Task,
            description: String::new(),
            assignee: None,
            assignee_type: AssigneeType::Ai,
            agent: None,
            write_scope: WriteScope::default(),
            version: 1,
            waits_for: None,
        }
    }
}
