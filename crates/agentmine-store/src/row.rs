//! Row shapes that both backends select, and how they become domain types.
//!
//! Both select ids as text and times as milliseconds since 1970, so that one shape serves both.

use std::borrow::Cow;
use std::time::Duration;

use agentmine_domain::{
    EndState, Epoch, ItemRef, Phase, Priority, PublicStatus, Seq, Session, SessionId, Step, Task,
    TaskId, TaskNumber, TaskState, Usage, WorkerId,
};
use chrono::{DateTime, TimeZone, Utc};

use crate::Checkpoint;
use crate::failure::Failure;

/// Declares a type that both backends read from a row, each field from the column of its name. sqlx has
/// a derive for this, but its macro crate compiles SQLite and most of sqlx a second time.
macro_rules! row {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($fvis:vis $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        $vis struct $name { $($fvis $field: $type,)+ }

        impl<'r, R> sqlx::FromRow<'r, R> for $name
        where
            R: sqlx::Row,
            &'static str: sqlx::ColumnIndex<R>,
            $($type: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,)+
        {
            fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
                Ok(Self { $($field: row.try_get(stringify!($field))?,)+ })
            }
        }
    };
}
pub(crate) use row;

row! {
    pub(crate) struct TaskRow {
        id: String,
        number: i64,
        tracker: String,
        host: String,
        repo_id: String,
        repo_path: String,
        item_kind: String,
        item_number: i64,
        trigger_event: String,
        title: String,
        url: String,
        priority: i16,
        state: String,
        phase: Option<String>,
        epoch: i64,
        attempt: i32,
        owner: Option<String>,
        lease_until: Option<i64>,
        reason: Option<String>,
        pull_request_url: Option<String>,
        created_at: i64,
        updated_at: i64,
    }
}

impl TryFrom<TaskRow> for Task {
    type Error = Failure;

    fn try_from(row: TaskRow) -> Result<Self, Failure> {
        let TaskRow {
            id,
            number,
            tracker,
            host,
            repo_id,
            repo_path,
            item_kind,
            item_number,
            trigger_event,
            title,
            url,
            priority,
            state,
            phase,
            epoch,
            attempt,
            owner,
            lease_until,
            reason,
            pull_request_url,
            created_at,
            updated_at,
        } = row;
        Ok(Self {
            id: task_id(&id)?,
            number: TaskNumber(number),
            item: ItemRef {
                tracker: tracker.parse()?,
                host,
                repo_id,
                repo_path,
                kind: item_kind.parse()?,
                number: unsigned(item_number)?,
            },
            trigger: trigger_event,
            title,
            url,
            priority: priority_from(priority)?,
            state: state_from(&state, phase.as_deref())?,
            epoch: Epoch(epoch),
            attempt: u32::try_from(attempt).map_err(|_| out_of_range(i64::from(attempt)))?,
            owner: owner.map(WorkerId),
            lease_until: lease_until.map(time).transpose()?,
            reason,
            pull_request_url,
            created_at: time(created_at)?,
            updated_at: time(updated_at)?,
        })
    }
}

row! {
    pub(crate) struct SessionRow {
        id: i64,
        task: String,
        task_number: i64,
        epoch: i64,
        worker: String,
        model: Option<String>,
        started_at: i64,
        ended_at: Option<i64>,
        ending: Option<String>,
        reason: Option<String>,
        model_calls: i32,
        tool_calls: i32,
        input_tokens: i64,
        cached_tokens: i64,
        output_tokens: i64,
        cost_micros: i64,
    }
}

impl TryFrom<SessionRow> for Session {
    type Error = Failure;

    fn try_from(row: SessionRow) -> Result<Self, Failure> {
        Ok(Self {
            id: SessionId(row.id),
            task: task_id(&row.task)?,
            task_number: TaskNumber(row.task_number),
            epoch: Epoch(row.epoch),
            worker: WorkerId(row.worker),
            model: row.model,
            started_at: time(row.started_at)?,
            ended_at: row.ended_at.map(time).transpose()?,
            end: row.ending.map(|end| end.parse()).transpose()?,
            reason: row.reason,
            usage: Usage {
                model_calls: row.model_calls.unsigned_abs(),
                tool_calls: row.tool_calls.unsigned_abs(),
                input_tokens: row.input_tokens.unsigned_abs(),
                cached_tokens: row.cached_tokens.unsigned_abs(),
                output_tokens: row.output_tokens.unsigned_abs(),
                cost_micros: row.cost_micros.unsigned_abs(),
            },
        })
    }
}

row! {
    pub(crate) struct StepRow {
        seq: i64,
        epoch: i64,
        kind: String,
        payload: String,
        duration_ms: i64,
        recorded_at: i64,
    }
}

impl TryFrom<StepRow> for Step {
    type Error = Failure;

    fn try_from(row: StepRow) -> Result<Self, Failure> {
        Ok(Self {
            seq: Seq(row.seq),
            epoch: Epoch(row.epoch),
            kind: row.kind.parse()?,
            payload: row.payload.parse()?,
            duration_ms: unsigned(row.duration_ms)?,
            at: time(row.recorded_at)?,
        })
    }
}

row! {
    pub(crate) struct CheckpointRow {
        seq: i64,
        commit_hash: String,
        bundle: Vec<u8>,
    }
}

impl From<CheckpointRow> for Checkpoint {
    fn from(row: CheckpointRow) -> Self {
        Self {
            seq: Seq(row.seq),
            commit: row.commit_hash,
            bundle: row.bundle,
        }
    }
}

/// Turns each row of a result into its domain type.
pub(crate) fn all<R, T>(rows: Vec<R>) -> Result<Vec<T>, Failure>
where
    T: TryFrom<R, Error = Failure>,
{
    rows.into_iter().map(T::try_from).collect()
}

/// Reads a task id out of a row.
pub(crate) fn task_id(text: &str) -> Result<TaskId, Failure> {
    text.parse()
        .map_err(|error: agentmine_domain::ParseIdError| Failure::Fault(error.to_string()))
}

/// Text from outside, fit for both databases: Postgres refuses NUL in text, so it becomes U+FFFD.
/// Not for payloads: those are JSON, where NUL is an escape and survives.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Whole milliseconds, for both databases' interval arithmetic; at most a century, which no sane
/// limit reaches and no database overflows on.
pub(crate) fn millis(duration: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 24 * 3600 * 1000;
    i64::try_from(duration.as_millis()).map_or(CENTURY, |ms| ms.min(CENTURY))
}

/// A count as the databases hold it.
pub(crate) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A small count as the databases hold it.
pub(crate) fn signed32(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

pub(crate) fn priority_number(priority: Priority) -> i16 {
    match priority {
        Priority::Low => 0,
        Priority::Medium => 1,
        Priority::High => 2,
        Priority::Critical => 3,
    }
}

pub(crate) fn priority_from(number: i16) -> Result<Priority, Failure> {
    Priority::ALL
        .iter()
        .copied()
        .find(|p| priority_number(*p) == number)
        .ok_or_else(|| out_of_range(i64::from(number)))
}

/// The row states that a public status covers.
pub(crate) fn row_states(
    status: Option<PublicStatus>,
) -> (Option<&'static str>, Option<&'static str>) {
    match status {
        None => (None, None),
        Some(PublicStatus::Open) => (Some("queued"), None),
        Some(PublicStatus::InProgress) => (Some("leased"), Some("paused")),
        Some(PublicStatus::Done) => (Some("done"), None),
        Some(PublicStatus::Failed) => (Some("failed"), None),
        Some(PublicStatus::Cancelled) => (Some("stopped"), None),
    }
}

/// Every state name with its count, also where there is none: a gauge must come back to zero.
pub(crate) fn all_counts(found: &[(String, i64)]) -> Vec<(String, u64)> {
    ["queued", "leased", "paused", "done", "failed", "stopped"]
        .into_iter()
        .map(|state| {
            let count = found.iter().find(|(name, _)| name == state);
            (state.to_owned(), count.map_or(0, |(_, n)| n.unsigned_abs()))
        })
        .collect()
}

fn state_from(state: &str, phase: Option<&str>) -> Result<TaskState, Failure> {
    Ok(match (state, phase) {
        ("queued", _) => TaskState::Queued,
        ("paused", _) => TaskState::Paused,
        ("leased", Some(phase)) => TaskState::Leased(phase.parse::<Phase>()?),
        ("leased", None) => return Err(Failure::Fault("a leased row without a phase".into())),
        (ended, _) => TaskState::Ended(ended.parse::<EndState>()?),
    })
}

fn time(millis: i64) -> Result<DateTime<Utc>, Failure> {
    Utc.timestamp_millis_opt(millis)
        .single()
        .ok_or_else(|| out_of_range(millis))
}

fn unsigned(n: i64) -> Result<u64, Failure> {
    u64::try_from(n).map_err(|_| out_of_range(n))
}

fn out_of_range(n: i64) -> Failure {
    Failure::Fault(format!("a row holds {n}, which is out of range"))
}
