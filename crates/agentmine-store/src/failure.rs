//! What can go wrong inside a backend, and what is tried again.
//!
//! Every operation may be repeated safely: a claim carries a nonce, a step a token, an enqueue its key,
//! and the rest set what they set. So a statement that failed for a passing reason (a deadlock, a
//! serialization failure, a busy file, a connection that broke, even around a commit whose outcome is
//! unknown) is tried again a few times before the caller hears of it.

use std::time::Duration;

use agentmine_domain::{TaskId, UnknownName};

use crate::StoreError;

/// Tries of one operation, the first included.
pub(crate) const TRIES: u32 = 3;

/// Why one try did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    Fenced(TaskId),
    Database(sqlx::Error),
    /// The time limit passed.
    Late,
    /// The relay's publisher failed; what was sent before is committed.
    Publish(String),
    Fault(String),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<UnknownName> for Failure {
    fn from(error: UnknownName) -> Self {
        Self::Fault(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Fault(format!("a stored value is not JSON: {error}"))
    }
}

impl Failure {
    /// Whether the same statement may succeed if tried again at once.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Io(_)) => true,
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| is_passing(&code))
            }
            Self::Database(_)
            | Self::Fenced(_)
            | Self::Late
            | Self::Publish(_)
            | Self::Fault(_) => false,
        }
    }

    /// What the caller is told.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Fenced(task) => {
                metrics::counter!("agentmine_fenced_writes_total").increment(1);
                StoreError::Fenced(task)
            }
            Self::Late => StoreError::Unavailable("no answer within the time limit".into()),
            Self::Publish(why) => StoreError::Unavailable(format!("publishing a wake-up: {why}")),
            Self::Fault(why) => StoreError::Fault(why),
            Self::Database(error) => database_error(&error),
        }
    }
}

fn database_error(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreError::Unavailable(error.to_string()),
        sqlx::Error::Database(inner)
            if inner
                .code()
                .is_some_and(|code| is_passing(&code) || is_away(&code)) =>
        {
            StoreError::Unavailable(inner.message().to_owned())
        }
        other => StoreError::Fault(other.to_string()),
    }
}

/// Postgres: serialization failure, deadlock, lock not available. SQLite: busy, locked and their
/// extended codes.
fn is_passing(code: &str) -> bool {
    match code {
        "40001" | "40P01" | "55P03" => true,
        _ => code.len() < 5 && matches!(code.parse::<u32>().map(|c| c & 0xff), Ok(5 | 6)),
    }
}

/// Postgres: connection exceptions, shutting down or starting up, out of connections, a statement
/// cancelled by its time limit.
fn is_away(code: &str) -> bool {
    code.len() == 5 && (code.starts_with("08") || code.starts_with("57") || code.starts_with("53"))
}

/// Pause before try `n + 1`.
pub(crate) fn pause(n: u32) -> Duration {
    Duration::from_millis(30 * u64::from(n) * u64::from(n))
}

/// Runs an operation with a time limit, again where that may help.
macro_rules! run {
    ($limit:expr, $operation:literal, $call:expr) => {{
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = match tokio::time::timeout($limit, $call).await {
                Ok(outcome) => outcome,
                Err(_) => Err($crate::failure::Failure::Late),
            };
            match outcome {
                Err(failure)
                    if tries < $crate::failure::TRIES && failure.is_worth_a_retry() =>
                {
                    metrics::counter!(
                        "agentmine_store_retries_total", "operation" => $operation
                    )
                    .increment(1);
                    tracing::debug!(operation = $operation, tries, ?failure, "trying again");
                    tokio::time::sleep($crate::failure::pause(tries)).await;
                }
                other => {
                    break other.map_err($crate::failure::Failure::into_store_error);
                }
            }
        }
    }};
}
pub(crate) use run;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_codes_are_told_from_lasting_ones() {
        for code in ["40001", "40P01", "5", "6", "261", "517"] {
            assert!(is_passing(code), "{code}");
        }
        for code in ["23505", "42P01", "1555", "2067", "787"] {
            assert!(!is_passing(code), "{code}");
        }
        assert!(is_away("57P01") && is_away("08006") && !is_away("5"));
    }
}
