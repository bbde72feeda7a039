//! The arguments of a statement.

use std::borrow::Cow;
use std::time::Duration;

use agentmine_domain::{Epoch, Seq, SessionId, TaskId};
use uuid::Uuid;

/// One argument. Each dialect binds them in its own types.
#[derive(Debug, Clone)]
pub(crate) enum Arg<'a> {
    Uuid(Option<Uuid>),
    Int(Option<i64>),
    Text(Option<Cow<'a, str>>),
    Bytes(&'a [u8]),
}

/// The arguments of a statement, in the order of their numbers.
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::sql::arg::Arg::from($value)),*] };
}
pub(super) use args;

/// The arguments in the types of one database; `$uuid` makes its form of a UUID.
macro_rules! bind {
    ($args:expr, $uuid:expr) => {{
        let mut bound = <Self as sqlx::Database>::Arguments::default();
        for arg in $args {
            match arg {
                Arg::Uuid(id) => bound.add(id.map($uuid)),
                Arg::Int(n) => bound.add(*n),
                Arg::Text(text) => bound.add(text.as_deref()),
                Arg::Bytes(bytes) => bound.add(*bytes),
            }
            .map_err(sqlx::Error::Encode)?;
        }
        bound
    }};
}
pub(super) use bind;

/// Text from outside. Postgres refuses NUL in text, so it becomes U+FFFD in both databases. JSON has no raw
/// NUL, so a payload comes back as it went in.
impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(if text.contains('\0') {
            Cow::Owned(text.replace('\0', "\u{fffd}"))
        } else {
            Cow::Borrowed(text)
        }))
    }
}

impl<'a> From<&'a String> for Arg<'a> {
    fn from(text: &'a String) -> Self {
        Self::from(text.as_str())
    }
}

impl<'a> From<Option<&'a str>> for Arg<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Text(None), Self::from)
    }
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Uuid> for Arg<'_> {
    fn from(id: Uuid) -> Self {
        Self::Uuid(Some(id))
    }
}

impl From<Option<Uuid>> for Arg<'_> {
    fn from(id: Option<Uuid>) -> Self {
        Self::Uuid(id)
    }
}

impl From<TaskId> for Arg<'_> {
    fn from(id: TaskId) -> Self {
        Self::Uuid(Some(id.0))
    }
}

impl From<Option<TaskId>> for Arg<'_> {
    fn from(id: Option<TaskId>) -> Self {
        Self::Uuid(id.map(|id| id.0))
    }
}

impl From<Option<i64>> for Arg<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<Option<Epoch>> for Arg<'_> {
    fn from(epoch: Option<Epoch>) -> Self {
        Self::Int(epoch.map(|epoch| epoch.0))
    }
}

macro_rules! integers {
    ($($type:ty: $n:ident => $value:expr,)+) => {$(
        impl From<$type> for Arg<'_> {
            fn from($n: $type) -> Self {
                Self::Int(Some($value))
            }
        }
    )+};
}

integers! {
    i64: n => n,
    u32: n => i64::from(n),
    u64: n => i64::try_from(n).unwrap_or(i64::MAX),
    Epoch: epoch => epoch.0,
    Seq: seq => seq.0,
    SessionId: id => id.0,
    Duration: duration => millis(duration),
}

/// Whole milliseconds; at most a century, which no sane limit reaches and no database overflows on.
fn millis(duration: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 24 * 3600 * 1000;
    i64::try_from(duration.as_millis()).map_or(CENTURY, |ms| ms.min(CENTURY))
}
