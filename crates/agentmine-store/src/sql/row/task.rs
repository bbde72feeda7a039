//! Tasks, what they wait for and what is asked of them.

use agentmine_domain::{
    Epoch, ItemKind, ItemRef, PullRequestRecord, RepositoryKey, Task, TaskCard, TaskId, TaskNumber,
    TaskOrigin, Urgency, WaitsFor, WakeUp, WorkerId,
};

use super::column::{Id, Timestamp, priority, priority_number, scope, state, unsigned};
use crate::sql::db::WakeUpQueue;
use crate::sql::effect_state::state_of;
use crate::sql::failure::Failure;
use crate::{Dependency, EffectState, OpenedPullRequest, RepositoryLoad, WaitingRequest};

row!(TaskRow {
    id: Id,
    number: i64,
    tracker: String,
    host: String,
    repo_id: String,
    repo_path: String,
    item_kind: String,
    item_number: i64,
    trigger_event: String,
    answered_trigger: Option<String>,
    title: String,
    url: String,
    priority: i16,
    state: String,
    phase: Option<String>,
    epoch: i64,
    attempt: i32,
    owner: Option<String>,
    lease_until: Option<Timestamp>,
    reason: Option<String>,
    pull_request_url: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    origin: String,
    task_type: String,
    description: String,
    assignee: Option<String>,
    assignee_type: String,
    agent: Option<String>,
    write_scope: String,
    version: i64,
    waits_for: Option<String>,
    branch: Option<String>,
});

impl TryFrom<TaskRow> for Task {
    type Error = Failure;

    fn try_from(row: TaskRow) -> Result<Self, Failure> {
        let origin = row.origin.parse()?;
        // Programs of earlier versions read the kind of each row, and know no other.
        let (kind, item_number) = match origin {
            TaskOrigin::Tracker => (row.item_kind.parse()?, row.item_number),
            TaskOrigin::Person => (ItemKind::Task, row.number),
        };
        Ok(Self {
            id: row.id.into(),
            number: TaskNumber(row.number),
            item: ItemRef {
                tracker: row.tracker.parse()?,
                host: row.host,
                repo_id: row.repo_id,
                repo_path: row.repo_path,
                kind,
                number: unsigned(item_number)?,
            },
            trigger: row.trigger_event,
            answered_trigger: row.answered_trigger,
            title: row.title,
            url: row.url,
            priority: priority(row.priority)?,
            state: state(&row.state, row.phase.as_deref())?,
            epoch: Epoch(row.epoch),
            attempt: unsigned(row.attempt)?,
            owner: row.owner.map(WorkerId),
            lease_until: row.lease_until.map(|time| time.0),
            reason: row.reason,
            pull_request_url: row.pull_request_url,
            created_at: row.created_at.0,
            updated_at: row.updated_at.0,
            named_branch: row.branch,
            card: TaskCard {
                origin,
                kind: row.task_type.parse()?,
                description: row.description,
                assignee: row.assignee,
                assignee_type: row.assignee_type.parse()?,
                agent: row.agent,
                write_scope: scope(&row.write_scope)?,
                version: row.version,
                waits_for: row.waits_for.map(waits_for),
            },
        })
    }
}

/// Nothing of its own: the turn of its repository.
fn waits_for(text: String) -> WaitsFor {
    match text.is_empty() {
        true => WaitsFor::Turn,
        false => WaitsFor::Item(text),
    }
}

row!(WaitingRow {
    id: Id,
    tracker: String,
    host: String,
    repo_id: String,
    repo_path: String,
    item_kind: String,
    item_number: i64,
    dedup_key: String,
    priority: i16,
});

impl TryFrom<WaitingRow> for WaitingRequest {
    type Error = Failure;

    fn try_from(row: WaitingRow) -> Result<Self, Failure> {
        Ok(Self {
            task: row.id.into(),
            item: ItemRef {
                tracker: row.tracker.parse()?,
                host: row.host,
                repo_id: row.repo_id,
                repo_path: row.repo_path,
                kind: row.item_kind.parse()?,
                number: unsigned(row.item_number)?,
            },
            dedup_key: row.dedup_key,
            priority: priority(row.priority)?,
        })
    }
}

row!(LoadRow {
    tracker: String,
    host: String,
    repo_id: String,
    repo_path: String,
    waiting: i64,
    queued: i64,
    delayed: i64,
    leased: i64,
    on_issues: i64,
});

impl TryFrom<LoadRow> for RepositoryLoad {
    type Error = Failure;

    fn try_from(row: LoadRow) -> Result<Self, Failure> {
        Ok(Self {
            repository: RepositoryKey {
                tracker: row.tracker.parse()?,
                host: row.host,
                repo_id: row.repo_id,
            },
            repo_path: row.repo_path,
            waiting: unsigned(row.waiting)?,
            queued: unsigned(row.queued)?,
            delayed: unsigned(row.delayed)?,
            leased: unsigned(row.leased)?,
            on_issues: unsigned(row.on_issues)?,
        })
    }
}

row!(OpenedRow {
    item_number: i64,
    pull_request_url: String,
});

impl TryFrom<OpenedRow> for OpenedPullRequest {
    type Error = Failure;

    fn try_from(row: OpenedRow) -> Result<Self, Failure> {
        Ok(Self {
            issue: unsigned(row.item_number)?,
            url: row.pull_request_url,
        })
    }
}

row!(
    /// A pull request of a task that did not become done.
    LeftRow {
        item_number: i64,
        result: String,
    }
);

impl TryFrom<LeftRow> for OpenedPullRequest {
    type Error = Failure;

    fn try_from(row: LeftRow) -> Result<Self, Failure> {
        let record: Option<PullRequestRecord> = match state_of(Some(row.result))? {
            EffectState::Done(record) => Some(serde_json::from_value(record)?),
            // Nobody knows whether it was opened.
            EffectState::Fresh | EffectState::Unsure => None,
        };
        Ok(Self {
            issue: unsigned(row.item_number)?,
            url: record.map(|it| it.url).unwrap_or_default(),
        })
    }
}

row!(WaitRow {
    clock: i64,
    waited: Option<i64>,
    unattended: Option<i64>,
});

row!(AtWorkRow {
    state: String,
    item_kind: String,
    count: i64,
    delayed: i64,
});

row!(
    /// What a person asked of a leased row.
    RequestRow {
        request: Option<String>,
        request_reason: Option<String>,
    }
);

row!(
    /// A due outbox entry.
    EntryRow {
        id: i64,
        task: Id,
        priority: i16,
        takeover: bool,
    }
);

row!(IdRow { id: Id });

impl TryFrom<IdRow> for TaskId {
    type Error = Failure;

    fn try_from(row: IdRow) -> Result<Self, Failure> {
        Ok(row.id.into())
    }
}

row!(
    /// A task that another one depends on.
    DependencyRow {
        number: i64,
        state: String,
        phase: Option<String>,
    }
);

impl TryFrom<DependencyRow> for Dependency {
    type Error = Failure;

    fn try_from(row: DependencyRow) -> Result<Self, Failure> {
        Ok(Self {
            number: TaskNumber(row.number),
            state: state(&row.state, row.phase.as_deref())?,
        })
    }
}

row!(
    /// A running task and what it may change.
    ScopeRow {
        number: i64,
        write_scope: String,
    }
);

row!(
    /// A task whose lease was lifted.
    NumberedRow {
        id: Id,
        number: i64,
    }
);

/// Which entries a statement omits: those of takeovers, if it is not 0, and the others of a priority, -1 for none.
pub(in crate::sql) fn omitted(queue: Option<WakeUpQueue>) -> [i64; 2] {
    match queue {
        None => [0, -1],
        Some(WakeUpQueue::Takeovers) => [1, -1],
        Some(WakeUpQueue::Of(class)) => [0, priority_number(class)],
    }
}

impl EntryRow {
    pub(in crate::sql) fn wake_up(&self) -> Result<WakeUp, Failure> {
        Ok(WakeUp {
            task: TaskId(self.task.0),
            priority: priority(self.priority)?,
            urgency: match self.takeover {
                true => Urgency::Takeover,
                false => Urgency::Normal,
            },
        })
    }
}
