//! One type for each kind of id, so that they cannot be confused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A string that is not a valid id of the expected kind.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{input:?} is not a {what}; expected {expected}")]
pub struct ParseIdError {
    input: String,
    what: &'static str,
    expected: &'static str,
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(s: &str) -> Result<Self, ParseIdError> {
                match s.trim_start_matches('#').parse::<i64>() {
                    Ok(n) if n >= 0 => Ok(Self(n)),
                    _ => Err(ParseIdError {
                        input: s.to_owned(),
                        what: $what,
                        expected: "a whole number",
                    }),
                }
            }
        }
    };
}

number_id!(
    /// A task's number, for people: small and assigned by the store.
    TaskNumber,
    "task number"
);
number_id!(
    /// A session's number, assigned by the store.
    SessionId,
    "session id"
);
number_id!(
    /// How often a task has been leased. A write under an older epoch is refused.
    Epoch,
    "epoch"
);
number_id!(
    /// The position of a step in a task's journal, from 1.
    Seq,
    "step number"
);

/// A task's identity. It also names the task's container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub Uuid);

impl TaskId {
    /// A new id; ids sort by time of creation (UUID version 7).
    #[must_use]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Eight hex digits that distinguish the tasks of one item in branch names.
    ///
    /// They are the last digits, since the first digits of a version 7 UUID are a timestamp.
    #[must_use]
    pub fn short(&self) -> String {
        let hex = self.0.simple().to_string();
        hex[hex.len() - 8..].to_owned()
    }
}

impl Default for TaskId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = ParseIdError;

    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        s.parse().map(Self).map_err(|_| ParseIdError {
            input: s.to_owned(),
            what: "task id",
            expected: "a UUID",
        })
    }
}

/// One running consumer slot: `host/pid/slot`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub String);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_may_be_prefixed_as_on_the_tracker() {
        assert_eq!("#12".parse(), Ok(TaskNumber(12)));
        assert_eq!("12".parse(), Ok(TaskNumber(12)));
    }

    #[test]
    fn the_error_for_an_invalid_number_names_input_and_expectation() {
        let err = "twelve".parse::<SessionId>().unwrap_err();
        assert_eq!(
            err.to_string(),
            r#""twelve" is not a session id; expected a whole number"#
        );
        assert!("-1".parse::<SessionId>().is_err());
    }

    #[test]
    fn tasks_created_in_one_millisecond_have_different_short_ids() {
        assert_ne!(TaskId::new().short(), TaskId::new().short());
    }

    #[test]
    fn a_worker_is_displayed_by_its_name() {
        assert_eq!(WorkerId("host/1/0".into()).to_string(), "host/1/0");
    }

    #[test]
    fn a_task_is_displayed_as_it_is_parsed() {
        let text = "0190a1b2-0000-7000-8000-0000deadbeef";
        assert_eq!(text.parse::<TaskId>().unwrap().to_string(), text);
    }
}
