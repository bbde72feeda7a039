//! The types of columns, and what their texts and numbers mean.

use agentmine_domain::{EndState, Phase, Priority, ScopeError, TaskId, TaskState, WriteScope};
use chrono::{DateTime, SubsecRound as _, TimeZone as _, Utc};
use sqlx::error::BoxDynError;
use sqlx::{Database, Decode, Postgres, Sqlite, Type};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::LeaseRequest;
use crate::sql::failure::Failure;

/// A UUID. SQLite holds it as text.
pub(in crate::sql) struct Id(pub(super) Uuid);

impl From<Id> for TaskId {
    fn from(id: Id) -> Self {
        Self(id.0)
    }
}

/// A time in whole milliseconds. SQLite holds it as milliseconds since 1970, UTC.
pub(in crate::sql) struct Timestamp(pub(super) DateTime<Utc>);

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
pub(in crate::sql) fn priority_number(priority: Priority) -> i64 {
    match priority {
        Priority::Low => 0,
        Priority::Medium => 1,
        Priority::High => 2,
        Priority::Critical => 3,
    }
}

pub(in crate::sql) fn priority(number: i16) -> Result<Priority, Failure> {
    let of_number = |p: &&Priority| priority_number(**p) == i64::from(number);
    let found = Priority::ALL.iter().find(of_number).copied();
    found.ok_or_else(|| Failure::Fault(format!("a row has the priority {number}")))
}

pub(in crate::sql) fn scope(lines: &str) -> Result<WriteScope, Failure> {
    lines
        .parse()
        .map_err(|error: ScopeError| Failure::Fault(format!("a row has a {error}")))
}

pub(super) fn state(state: &str, phase: Option<&str>) -> Result<TaskState, Failure> {
    Ok(match (state, phase) {
        ("queued", _) => TaskState::Queued,
        ("paused", _) => TaskState::Paused,
        ("leased", Some(phase)) => TaskState::Leased(phase.parse::<Phase>()?),
        ("leased", None) => return Err(Failure::Fault("a leased row has no phase".into())),
        (ended, _) => TaskState::Ended(ended.parse::<EndState>()?),
    })
}

/// The request in a leased row.
pub(in crate::sql) fn lease_request(request: Option<&str>) -> Result<LeaseRequest, Failure> {
    match request {
        None => Ok(LeaseRequest::Continue),
        Some("stop") => Ok(LeaseRequest::Stop),
        Some("pause") => Ok(LeaseRequest::Pause),
        Some(other) => Err(Failure::Fault(format!("a row has the request {other:?}"))),
    }
}

pub(super) fn unsigned<F: Copy + std::fmt::Display, T: TryFrom<F>>(n: F) -> Result<T, Failure> {
    T::try_from(n).map_err(|_| Failure::Fault(format!("a row has {n}, which is out of range")))
}
