//! Rows, and how they become domain types. A column is named once, here.

use agentmine_domain::{
    EndState, Epoch, External, ItemKind, ItemRef, MemoryEntry, MemoryFault, MemoryRecord, Phase,
    Priority, RepositoryKey, Round, ScopeError, Seq, Session, SessionId, Step, Task, TaskCard,
    TaskId, TaskNumber, TaskOrigin, TaskState, Urgency, Usage, WaitsFor, WakeUp, WorkerId,
    WriteScope,
};
use chrono::{DateTime, SubsecRound as _, TimeZone as _, Utc};
use sqlx::error::BoxDynError;
use sqlx::{Database, Decode, Postgres, Sqlite, Type};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::db::AnyRow;
use super::failure::Failure;
use crate::{
    Checkpoint, Dependency, Held, HeldRequest, LeaseRequest, OpenedPullRequest, RepositoryLoad,
    WaitingRequest,
};

/// Declares a row, and the columns that fill it. sqlx has a derive for this, but its macro crate compiles
/// SQLite and most of sqlx a second time.
macro_rules! row {
    ($(#[$doc:meta])* $name:ident { $first:ident: $first_type:ty $(, $field:ident: $type:ty)* $(,)? }) => {
        $(#[$doc])*
        pub(super) struct $name { pub(super) $first: $first_type, $(pub(super) $field: $type,)* }

        impl<'r, R> sqlx::FromRow<'r, R> for $name
        where
            R: sqlx::Row,
            &'static str: sqlx::ColumnIndex<R>,
            $first_type: Decode<'r, R::Database> + Type<R::Database>,
            $($type: Decode<'r, R::Database> + Type<R::Database>,)*
        {
            fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
                Ok(Self {
                    $first: row.try_get(stringify!($first))?,
                    $($field: row.try_get(stringify!($field))?,)*
                })
            }
        }

        impl AnyRow for $name {
            const COLUMNS: &'static str =
                concat!(stringify!($first) $(, ", ", stringify!($field))*);
        }
    };
}

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

row!(WaitRow {
    waited: i64,
    unattended: Option<i64>,
});

row!(AtWorkRow {
    state: String,
    item_kind: String,
    count: i64,
});

row!(SessionRow {
    id: i64,
    task: Id,
    task_number: i64,
    epoch: i64,
    worker: String,
    model: Option<String>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    ending: Option<String>,
    reason: Option<String>,
    model_calls: i32,
    tool_calls: i32,
    input_tokens: i64,
    cached_tokens: i64,
    output_tokens: i64,
    cost_micros: i64,
    client: Option<String>,
    agent: Option<String>,
    worktree: Option<String>,
    exit_code: Option<i64>,
    signal: Option<String>,
    dod_result: Option<String>,
    artifacts: Option<String>,
    error: Option<String>,
});

impl SessionRow {
    fn external(&self) -> Result<Option<External>, Failure> {
        let Some(client) = &self.client else {
            return Ok(None);
        };
        let artifacts = self.artifacts.as_deref().map(serde_json::from_str);
        Ok(Some(External {
            client: client.clone(),
            agent: self.agent.clone().unwrap_or_default(),
            worktree: self.worktree.clone(),
            exit_code: self.exit_code,
            signal: self.signal.clone(),
            dod_result: self.dod_result.as_deref().map(str::parse).transpose()?,
            artifacts: artifacts.transpose()?.unwrap_or_default(),
            error: self
                .error
                .as_deref()
                .map(serde_json::from_str)
                .transpose()?,
        }))
    }
}

impl TryFrom<SessionRow> for Session {
    type Error = Failure;

    fn try_from(row: SessionRow) -> Result<Self, Failure> {
        let external = row.external()?;
        Ok(Self {
            external,
            id: SessionId(row.id),
            task: row.task.into(),
            task_number: TaskNumber(row.task_number),
            epoch: Epoch(row.epoch),
            worker: WorkerId(row.worker),
            model: row.model,
            started_at: row.started_at.0,
            ended_at: row.ended_at.map(|time| time.0),
            end: row.ending.map(|end| end.parse()).transpose()?,
            reason: row.reason,
            usage: Usage {
                model_calls: unsigned(row.model_calls)?,
                tool_calls: unsigned(row.tool_calls)?,
                input_tokens: unsigned(row.input_tokens)?,
                cached_tokens: unsigned(row.cached_tokens)?,
                output_tokens: unsigned(row.output_tokens)?,
                cost_micros: unsigned(row.cost_micros)?,
            },
        })
    }
}

row!(StepRow {
    seq: i64,
    epoch: i64,
    kind: String,
    payload: String,
    duration_ms: i64,
    recorded_at: Timestamp,
});

impl TryFrom<StepRow> for Step {
    type Error = Failure;

    fn try_from(row: StepRow) -> Result<Self, Failure> {
        Ok(Self {
            seq: Seq(row.seq),
            epoch: Epoch(row.epoch),
            kind: row.kind.parse()?,
            payload: row.payload.parse()?,
            duration_ms: unsigned(row.duration_ms)?,
            at: row.recorded_at.0,
        })
    }
}

row!(CheckpointRow {
    seq: i64,
    commit_hash: String,
    bundle: Vec<u8>,
});

impl TryFrom<CheckpointRow> for Checkpoint {
    type Error = Failure;

    fn try_from(row: CheckpointRow) -> Result<Self, Failure> {
        Ok(Self {
            seq: Seq(row.seq),
            commit: row.commit_hash,
            bundle: row.bundle,
        })
    }
}

row!(MemoryRow {
    id: String,
    category: String,
    title: String,
    summary: String,
    content: String,
    status: String,
    tags: String,
    source: String,
    confidence: String,
    expires_at: Option<i64>,
    version: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
});

impl TryFrom<MemoryRow> for MemoryRecord {
    type Error = Failure;

    fn try_from(row: MemoryRow) -> Result<Self, Failure> {
        let id = row.id.parse().map_err(|fault: MemoryFault| {
            Failure::Fault(format!("a record of the memory has a wrong {fault}"))
        })?;
        let expires_at = row.expires_at.map(|millis| {
            let time = Utc.timestamp_millis_opt(millis).single();
            time.ok_or_else(|| Failure::Fault(format!("{millis} is no time")))
        });
        Ok(Self {
            entry: MemoryEntry {
                id,
                category: row.category,
                title: row.title,
                summary: row.summary,
                content: row.content,
                status: row.status.parse()?,
                tags: serde_json::from_str(&row.tags)?,
                source: row.source.parse()?,
                confidence: row.confidence.parse()?,
                expires_at: expires_at.transpose()?,
            },
            version: row.version,
            created_at: row.created_at.0,
            updated_at: row.updated_at.0,
        })
    }
}

row!(HeldRow {
    tracker: String,
    host: String,
    repo_id: String,
    repo_path: String,
    item_kind: String,
    item_number: i64,
    trigger_event: String,
    title: String,
    url: String,
    code: String,
    message: String,
    held_since: Timestamp,
});

impl TryFrom<HeldRow> for Held {
    type Error = Failure;

    fn try_from(row: HeldRow) -> Result<Self, Failure> {
        Ok(Self {
            request: HeldRequest {
                item: ItemRef {
                    tracker: row.tracker.parse()?,
                    host: row.host,
                    repo_id: row.repo_id,
                    repo_path: row.repo_path,
                    kind: row.item_kind.parse()?,
                    number: unsigned(row.item_number)?,
                },
                trigger: row.trigger_event,
                title: row.title,
                url: row.url,
                code: row.code,
                message: row.message,
            },
            since: row.held_since.0,
        })
    }
}

row!(
    /// A round; whoever asks for it knows its pull request.
    RoundRow {
        number: i64,
        origin: Id,
        head: String,
        cause: String,
        result: Option<String>,
    }
);

impl RoundRow {
    pub(super) fn of(self, pull: &ItemRef) -> Result<Round, Failure> {
        let result = self.result.as_deref().map(serde_json::from_str);
        Ok(Round {
            pull: pull.clone(),
            number: u32::try_from(self.number)
                .map_err(|_| Failure::Fault("the number of a round".into()))?,
            origin: self.origin.into(),
            head: self.head,
            cause: serde_json::from_str(&self.cause)?,
            result: result.transpose()?,
        })
    }
}

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

row!(StandingRow {
    priority: i16,
    standing: String,
    count: i64,
    oldest: i64,
});

row!(
    /// A part of a sum, or the sum of some rows.
    TotalRow {
        what: String,
        amount: i64,
        rows: i64,
    }
);

row!(
    /// A task with its number of steps.
    EndedRow {
        id: Id,
        steps: i64,
    }
);

row!(
    /// What would be removed.
    PrunableRow {
        tasks: i64,
        rows: i64,
        bytes: i64,
    }
);

row!(
    /// The size of a table.
    SizeRow {
        name: String,
        rows: i64,
        bytes: i64,
    }
);

row!(
    /// A task whose lease was lifted.
    NumberedRow {
        id: Id,
        number: i64,
    }
);

row!(AgeRow {
    count: i64,
    oldest: i64,
});

impl EntryRow {
    pub(super) fn wake_up(&self) -> Result<WakeUp, Failure> {
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

/// A UUID. SQLite holds it as text.
pub(super) struct Id(Uuid);

impl From<Id> for TaskId {
    fn from(id: Id) -> Self {
        Self(id.0)
    }
}

/// A time in whole milliseconds. SQLite holds it as milliseconds since 1970, UTC.
pub(super) struct Timestamp(DateTime<Utc>);

/// Reads a column type in one database by way of a type that sqlx knows.
macro_rules! column {
    ($name:ident, $database:ty, $as:ty, $convert:expr) => {
        impl Type<$database> for $name {
            fn type_info() -> <$database as Database>::TypeInfo {
                <$as as Type<$database>>::type_info()
            }
        }

        impl<'r> Decode<'r, $database> for $name {
            fn decode(value: <$database as Database>::ValueRef<'r>) -> Result<Self, BoxDynError> {
                let convert: fn($as) -> Result<Self, BoxDynError> = $convert;
                convert(<$as as Decode<'r, $database>>::decode(value)?)
            }
        }
    };
}

column!(Id, Postgres, Uuid, |id| Ok(Self(id)));
column!(Id, Sqlite, Hyphenated, |id| Ok(Self(id.into_uuid())));
column!(Timestamp, Postgres, DateTime<Utc>, |time| Ok(Self(
    time.trunc_subsecs(3)
)));
column!(Timestamp, Sqlite, i64, |millis| {
    let time = Utc.timestamp_millis_opt(millis).single();
    time.map(Self)
        .ok_or_else(|| format!("{millis} is no time").into())
});

/// The number of a priority: its order.
pub(super) fn priority_number(priority: Priority) -> i64 {
    match priority {
        Priority::Low => 0,
        Priority::Medium => 1,
        Priority::High => 2,
        Priority::Critical => 3,
    }
}

pub(super) fn priority(number: i16) -> Result<Priority, Failure> {
    let of_number = |p: &&Priority| priority_number(**p) == i64::from(number);
    let found = Priority::ALL.iter().find(of_number).copied();
    found.ok_or_else(|| Failure::Fault(format!("a row has the priority {number}")))
}

pub(super) fn scope(lines: &str) -> Result<WriteScope, Failure> {
    lines
        .parse()
        .map_err(|error: ScopeError| Failure::Fault(format!("a row has a {error}")))
}

fn state(state: &str, phase: Option<&str>) -> Result<TaskState, Failure> {
    Ok(match (state, phase) {
        ("queued", _) => TaskState::Queued,
        ("paused", _) => TaskState::Paused,
        ("leased", Some(phase)) => TaskState::Leased(phase.parse::<Phase>()?),
        ("leased", None) => return Err(Failure::Fault("a leased row has no phase".into())),
        (ended, _) => TaskState::Ended(ended.parse::<EndState>()?),
    })
}

/// The request in a leased row.
pub(super) fn lease_request(request: Option<&str>) -> Result<LeaseRequest, Failure> {
    match request {
        None => Ok(LeaseRequest::Continue),
        Some("stop") => Ok(LeaseRequest::Stop),
        Some("pause") => Ok(LeaseRequest::Pause),
        Some(other) => Err(Failure::Fault(format!("a row has the request {other:?}"))),
    }
}

fn unsigned<F: Copy + std::fmt::Display, T: TryFrom<F>>(n: F) -> Result<T, Failure> {
    T::try_from(n).map_err(|_| Failure::Fault(format!("a row has {n}, which is out of range")))
}
