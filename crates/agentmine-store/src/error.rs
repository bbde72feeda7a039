//! What went wrong, as the callers of the store see it.

use agentmine_domain::{Blame, TaskId};
use agentmine_runtime::exit::{Exit, Failure};

/// Why the store did not do as asked. Every message about the database names it (`host:port/database`
/// or the file), and none holds a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The lease is no longer the row's: stop all writes and effects at once.
    #[error("the lease on task {0} is no longer held")]
    Fenced(TaskId),
    /// The lease has run out by the database's clock, and nobody has taken it yet: no effect may begin until
    /// it is extended.
    #[error("the lease on task {0} has run out")]
    Expired(TaskId),
    /// The database is away, busy, full, or read-only after a failover. Trying again later may help.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// Others are in the way: they hold a lock. Certainly nothing was changed, and another row may be free.
    #[error("store busy: {0}")]
    Busy(String),
    /// The database refused a statement, or returned what this version does not understand.
    #[error("store: {0}")]
    Fault(String),
}

impl StoreError {
    /// Why a process cannot start, with what to do about it.
    #[must_use]
    pub fn at_start(self) -> Failure {
        let failure = Failure::new(Exit::Other, "the database cannot be used");
        let failure = match &self {
            Self::Unavailable(why) if !why.contains("hint: ") => failure.hint(
                "check that the database is reachable, and store.url (AGENTMINE_STORE_URL); `agentmine doctor` checks both",
            ),
            Self::Unavailable(_)
            | Self::Busy(_)
            | Self::Fenced(_)
            | Self::Expired(_)
            | Self::Fault(_) => failure,
        };
        failure.because(self)
    }

    /// Whose fault it is. A lost lease is nobody's: another worker continues the task.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Fenced(_) | Self::Expired(_) | Self::Unavailable(_) | Self::Busy(_) => {
                Blame::OUTAGE
            }
            Self::Fault(_) => Blame::Ours,
        }
    }
}

/// Why the relay stopped.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A wake-up could not be published; its entry stays in the outbox.
    #[error("publishing a wake-up: {0}")]
    Publish(String),
}

#[cfg(test)]
mod tests {
    use agentmine_runtime::exit;

    use super::*;

    #[test]
    fn an_absent_database_is_reported_with_what_to_do_and_other_errors_keep_their_hint() {
        let shown = |error: StoreError| exit::render(&error.at_start().into());
        let absent = shown(StoreError::Unavailable("h:1/db: refused".into()));
        assert!(
            absent.contains("h:1/db: refused\nhint: check that the database is reachable"),
            "{absent}"
        );
        let full = shown(StoreError::Unavailable(
            "h:1/db: full. hint: raise it".into(),
        ));
        assert_eq!(full.matches("hint: ").count(), 1, "{full}");
        let fault = shown(StoreError::Fault("h:1/db: no table".into()));
        assert!(!fault.contains("hint: "), "{fault}");
    }
}
