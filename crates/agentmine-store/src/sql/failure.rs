//! Why one attempt at an operation failed, and what that means.
//!
//! Every operation is safe to repeat: a claim carries a nonce, a step its token, an enqueue its key, and the
//! others set what they set. An attempt that failed for a passing reason (a deadlock, a serialization
//! failure, a busy file, a read-only server, a broken connection, even around a commit whose outcome is unknown)
//! may therefore be repeated.

use agentmine_domain::{ParseIdError, TaskId, UnknownName};
use agentmine_runtime::failpoint::OutcomeUnknown;

use crate::StoreError;

/// The SQLSTATE of a write on a read-only server.
const READ_ONLY: &str = "25006";

/// The SQLSTATE of a server without a free connection: too many clients already.
pub(super) const FULL: &str = "53300";

/// The SQLSTATE of a statement past its time limit, or cancelled by a person.
const CANCELED: &str = "57014";

/// The SQLSTATE of a wrong password, or of a user that does not exist.
const WRONG_PASSWORD: &str = "28P01";

/// The SQLSTATE of a statement that the user may not execute.
pub(super) const NOT_ALLOWED: &str = "42501";

/// Why one attempt failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Fenced(TaskId),
    /// The lease has run out, and is not taken.
    Expired(TaskId),
    Database(sqlx::Error),
    /// The server answers, and takes no writes.
    ReadOnly,
    /// The time limit passed.
    TimedOut,
    Fault(String),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<OutcomeUnknown> for Failure {
    fn from(error: OutcomeUnknown) -> Self {
        Self::Database(std::io::Error::other(error).into())
    }
}

impl From<sqlx::migrate::MigrateError> for Failure {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        match error {
            MigrateError::ExecuteMigration(error, version)
                if code(&error).as_deref() == Some(NOT_ALLOWED) =>
            {
                Self::Fault(format!(
                    "migration {version} is not allowed to this user: {error}. hint: start this version \
                     once with a user who owns the tables, before the others"
                ))
            }
            MigrateError::Execute(error) if code(&error).as_deref() == Some(NOT_ALLOWED) => {
                Self::Fault(format!(
                    "bringing the schema up to date is not allowed to this user: {error}. hint: run `producer migrate` \
                     of this version with a user who owns the tables, and set `store.migrations: wait`"
                ))
            }
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                Self::Database(error)
            }
            other => Self::Fault(format!("migrating the schema: {other}")),
        }
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

impl From<ParseIdError> for Failure {
    fn from(error: ParseIdError) -> Self {
        Self::Fault(error.to_string())
    }
}

/// What a failure shows of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It answered: it refused, or others were in the way.
    There,
    /// It cannot be reached, or takes no writes.
    Away,
    /// Nothing came within the time limit, for whatever reason.
    Silent,
}

impl Failure {
    /// Whether the server takes no writes, as after a failover: another connection may lead to another one.
    pub(super) fn is_read_only(&self) -> bool {
        match self {
            Self::Database(error) => code(error).as_deref() == Some(READ_ONLY),
            Self::ReadOnly => true,
            Self::Fenced(_) | Self::Expired(_) | Self::TimedOut | Self::Fault(_) => false,
        }
    }

    /// Whether others were in the way: they held a lock for too long, or waited for this one.
    pub(super) fn is_contention(&self) -> bool {
        match self {
            Self::Database(error) => code(error).is_some_and(|code| is_contention(&code)),
            Self::Fenced(_)
            | Self::Expired(_)
            | Self::ReadOnly
            | Self::TimedOut
            | Self::Fault(_) => false,
        }
    }

    /// Whether the database answered that it did nothing, since others held a lock or a person cancelled the statement.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Database(error) => {
                self.is_contention() || code(error).as_deref() == Some(CANCELED)
            }
            Self::Fenced(_)
            | Self::Expired(_)
            | Self::ReadOnly
            | Self::TimedOut
            | Self::Fault(_) => false,
        }
    }

    /// Whether the connection is closed, by the server or on the way: what it sends first where it ends a connection, and what
    /// is found later.
    pub(super) fn is_broken_connection(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Io(_)) => true,
            Self::Database(error) => code(error).is_some_and(|code| {
                matches!(code.as_str(), "57P01" | "57P02")
                    || code.starts_with("08")
                    || is_idle_limit(&code)
            }),
            Self::Fenced(_)
            | Self::Expired(_)
            | Self::ReadOnly
            | Self::TimedOut
            | Self::Fault(_) => false,
        }
    }

    pub(super) fn presence(&self) -> Presence {
        match self {
            Self::Fenced(_) | Self::Expired(_) | Self::Fault(_) => Presence::There,
            Self::ReadOnly => Presence::Away,
            Self::TimedOut | Self::Database(sqlx::Error::PoolTimedOut) => Presence::Silent,
            Self::Database(error) => match code(error) {
                // A limit or a person ended the statement, or this process was stalled.
                Some(code) if code == CANCELED || is_idle_limit(&code) => Presence::There,
                // SQLite has one lock: a process that waits for it in vain cannot extend a lease.
                Some(code) if sqlite_primary(&code).is_none() && is_contention(&code) => {
                    Presence::There
                }
                _ if is_outage(error) || is_refused_login(error) => Presence::Away,
                _ => Presence::There,
            },
        }
    }

    /// Whether the same operation may succeed if it is repeated at once.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Database(error) => {
                self.is_broken_connection()
                    || code(error).is_some_and(|code| is_contention(&code) || code == READ_ONLY)
            }
            Self::ReadOnly => true,
            Self::Fenced(_) | Self::Expired(_) | Self::TimedOut | Self::Fault(_) => false,
        }
    }

    /// Whether a row with a value that is unique exists already.
    pub(super) fn is_duplicate(&self) -> bool {
        match self {
            Self::Database(error) => error
                .as_database_error()
                .is_some_and(|error| error.is_unique_violation()),
            Self::Fenced(_)
            | Self::Expired(_)
            | Self::ReadOnly
            | Self::TimedOut
            | Self::Fault(_) => false,
        }
    }

    /// As [`Failure::at`], for a store that was open: a password that was right is being replaced, and its file will
    /// hold the new one soon.
    pub(super) fn at_work(self, address: &str) -> StoreError {
        match self {
            Self::Database(error) if is_refused_login(&error) => {
                StoreError::Unavailable(format!("{address}: {error}"))
            }
            other => other.at(address),
        }
    }

    /// As [`Failure::at_work`], where no attempt can have changed anything.
    pub(super) fn in_the_way(self, address: &str) -> StoreError {
        match self {
            Self::Database(error) => StoreError::Busy(format!("{address}: {error}")),
            other => other.at_work(address),
        }
    }

    /// What the caller gets. `address` names the database.
    pub(super) fn at(self, address: &str) -> StoreError {
        match self {
            Self::Fenced(task) => {
                metrics::counter!("agentmine_fenced_writes_total").increment(1);
                StoreError::Fenced(task)
            }
            Self::Expired(task) => StoreError::Expired(task),
            Self::ReadOnly => read_only(address),
            Self::Database(error) if code(&error).as_deref() == Some(READ_ONLY) => {
                read_only(address)
            }
            Self::TimedOut => {
                StoreError::Unavailable(format!("{address}: no answer within the time limit"))
            }
            Self::Fault(reason) => StoreError::Fault(format!("{address}: {reason}")),
            Self::Database(error) if code(&error).as_deref() == Some(FULL) => {
                StoreError::Unavailable(format!(
                    "{address}: {error}. hint: all processes together need store.max_connections each, and two more for \
                     each consumer; lower store.max_connections, or raise max_connections of the server"
                ))
            }
            Self::Database(error) if code(&error).as_deref() == Some(WRONG_PASSWORD) => {
                StoreError::Fault(format!(
                    "{address}: {error}. hint: correct user and password in store.url (AGENTMINE_STORE_URL), and percent-encode \
                     special characters in the password (@ is %40)"
                ))
            }
            Self::Database(sqlx::Error::PoolTimedOut) => StoreError::Unavailable(format!(
                "{address}: no connection in time: the server is silent or full, or store.max_connections are in use"
            )),
            Self::Database(error) if is_outage(&error) => {
                StoreError::Unavailable(format!("{address}: {error}"))
            }
            Self::Database(error) => StoreError::Fault(format!("{address}: {error}")),
        }
    }
}

/// Postgres: invalid password, invalid authorization.
fn is_refused_login(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| matches!(code.as_str(), WRONG_PASSWORD | "28000"))
}

fn read_only(address: &str) -> StoreError {
    StoreError::Unavailable(format!(
        "{address}: the server is read-only: a standby, default_transaction_read_only, or a full disk. hint: point \
         store.url to the primary"
    ))
}

fn is_outage(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        error => code(error).is_some_and(|code| is_contention(&code) || is_away(&code)),
    }
}

/// The database's own code for the error: an SQLSTATE, or SQLite's extended result code.
pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Postgres: serialization failure, deadlock, lock not available. SQLite: busy and locked.
fn is_contention(code: &str) -> bool {
    matches!(code, "40001" | "40P01" | "55P03") || matches!(sqlite_primary(code), Some(5 | 6))
}

/// Postgres closed the connection: a transaction was idle for too long, or took too long, or the session was idle for too
/// long. An administrator may set these limits.
fn is_idle_limit(code: &str) -> bool {
    matches!(code, "25P03" | "25P04" | "57P05")
}

/// Postgres: a broken connection (08), out of resources (53), starting, stopping or past a statement's time
/// limit (57), a read-only server after a failover (25006), a session that it ended (25P03). SQLite: a file that cannot be
/// read, written or opened, a read-only or full disk.
fn is_away(code: &str) -> bool {
    match sqlite_primary(code) {
        Some(primary) => matches!(primary, 8 | 10 | 13 | 14),
        None => {
            code == READ_ONLY
                || is_idle_limit(code)
                || ["08", "53", "57"]
                    .iter()
                    .any(|class| code.starts_with(class))
        }
    }
}

/// SQLite's primary result code. An SQLSTATE has five characters, a result code of SQLite fewer.
fn sqlite_primary(code: &str) -> Option<u32> {
    let extended: u32 = (code.len() < 5).then(|| code.parse().ok()).flatten()?;
    Some(extended & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_database_that_does_not_answer_may_be_away() {
        let io = || Failure::Database(std::io::Error::other("reset").into());
        for (failure, presence) in [
            (Failure::Fenced(TaskId::new()), Presence::There),
            (Failure::Fault("x".into()), Presence::There),
            (Failure::TimedOut, Presence::Silent),
            (
                Failure::Database(sqlx::Error::PoolTimedOut),
                Presence::Silent,
            ),
            (Failure::Database(sqlx::Error::RowNotFound), Presence::There),
            (Failure::ReadOnly, Presence::Away),
            (io(), Presence::Away),
        ] {
            assert_eq!(failure.presence(), presence, "{failure:?}");
        }
    }

    #[test]
    fn transient_codes_are_distinguished_from_lasting_ones() {
        for code in ["40001", "40P01", "5", "6", "261", "517"] {
            assert!(is_contention(code), "{code}");
        }
        for code in ["23505", "42P01", "1555", "2067", "787"] {
            assert!(!is_contention(code) && !is_away(code), "{code}");
        }
        for code in [
            "57P01", "08006", "53300", "25006", "25P03", "8", "13", "14", "1546",
        ] {
            assert!(is_away(code), "{code}");
        }
        assert!(!is_away("5"));
    }
}
