//! Why a session ends before its task is done.
//!
//! The stages return these errors unchanged; only `session::verdict` decides what each means for the
//! task.

use agentmine_agent::AgentError;
use agentmine_agent::journal::JournalError;
use agentmine_domain::Blame;
use agentmine_effects::EffectError;
use agentmine_gateway::facts::FactsError;
use agentmine_gateway::{GatewayError, branch_in_the_way};
use agentmine_llm::LlmError;
use agentmine_sandbox::SandboxError;
use agentmine_store::StoreError;
use agentmine_trackers::TrackerError;

/// The session was requested to end, or has lost its lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Interrupt {
    /// A stop request.
    #[error("stopped: {0}")]
    Stopped(String),
    /// A pause request.
    #[error("paused: {0}")]
    Paused(String),
    /// The lease is lost; another worker has the task or will claim it. No write and no effect may
    /// follow.
    #[error("the lease is no longer held")]
    LeaseLost,
    /// The worker is shutting down.
    #[error("the worker is draining")]
    Draining,
}

/// With this begins the reason of a session whose sandbox ended together with its engine.
pub(crate) const ENGINE_GONE: &str = "the sandbox ended with its engine: ";

/// Why a session ends before its task is done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error(transparent)]
    Interrupted(#[from] Interrupt),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    #[error(transparent)]
    Effect(#[from] EffectError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("a step could not be encoded: {0}")]
    Encode(#[from] serde_json::Error),
    #[error(transparent)]
    Model(LlmError),
    /// The model API accepted the conversation when it was shorter.
    #[error("{0}")]
    Conversation(LlmError),
    #[error(transparent)]
    Facts(#[from] FactsError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The sandbox could not be frozen or released.
    #[error("the agent's sandbox could not be frozen for the measurement: {0}")]
    Freeze(SandboxError),
    /// The worker's bare repository for measuring could not be created: the disk is full, or git is
    /// missing.
    #[error("{0}")]
    BareRepo(GatewayError),
    /// The sandbox can no longer be used.
    #[error("{0}")]
    SandboxGone(String),
    /// The sandbox ended, and so did its engine.
    #[error("{ENGINE_GONE}{0}")]
    EngineGone(SandboxError),
    #[error("a checkpoint cannot be read: {0}")]
    Checkpoint(BundleError),
    #[error("the work would be pushed to the branch {0:?}; expected a separate branch")]
    NotASeparateBranch(String),
    /// A rule of the forge protects the work branch.
    #[error(
        "the branch {branch:?} cannot be pushed to, because {why}. hint: allow AgentMine's account to push to it, then request the work again"
    )]
    ProtectedBranch { branch: String, why: String },
    /// The repository has a branch above the work branch.
    #[error("{}, then request the work again", branch_in_the_way(.branch, .other))]
    BranchInTheWay { branch: String, other: String },
    /// A person removed the branch that an earlier session pushed.
    #[error("somebody deleted the branch `{0}`, and AgentMine does not restore it")]
    BranchDeleted(String),
    #[error("the branch moved during or after the measurement")]
    BranchMoved,
    /// The agent that the task names cannot work on it.
    #[error("{0}")]
    Agent(String),
    /// Nothing was pushed, so there is no pull request to open.
    #[error("no result: {0}")]
    NoResult(String),
    #[error("the worker panicked: {0}")]
    Panicked(String),
}

/// Why a stored checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    #[error(transparent)]
    Damaged(#[from] std::io::Error),
    #[error("a stored checkpoint is larger than {0} bytes")]
    TooLarge(usize),
}

/// An error in a sandbox with a clone of the repository.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceError {
    #[error("the sandbox could not be started: {0}")]
    Start(SandboxError),
    #[error("the gateway could not be set up: {0}")]
    Gateway(GatewayError),
    #[error(transparent)]
    Command(SandboxError),
    #[error("git {command} failed in the sandbox: {output}")]
    Git { command: String, output: String },
    /// The gateway saw the tracker refuse the worker's credentials.
    #[error(
        "{during}: the tracker refused the worker's credentials (HTTP {status}). hint: check that the token is not expired and may read and write this repository"
    )]
    Unauthorized { during: &'static str, status: u16 },
    /// The gateway saw the repository's host refuse what a person has to allow; the text has a hint.
    #[error("{during}: {detail}")]
    Refused {
        during: &'static str,
        detail: String,
    },
    /// The gateway saw the repository's host fail.
    #[error("{during}: {detail}")]
    HostAway {
        during: &'static str,
        detail: String,
    },
    #[error("branch {branch:?} could not be cloned: {output}")]
    NoSuchBranch { branch: String, output: String },
    #[error("branch {branch:?} could not be cloned: {output}")]
    Clone { branch: String, output: String },
}

impl From<AgentError<SessionError>> for SessionError {
    fn from(error: AgentError<SessionError>) -> Self {
        match error {
            AgentError::Model(error) => Self::Model(error),
            AgentError::Conversation(error) => Self::Conversation(error),
            AgentError::Worker(error) => error,
        }
    }
}

impl SessionError {
    /// Whether something of the repository was not found: perhaps all of it.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::Facts(FactsError::NotFound(_))
                | Self::Tracker(TrackerError::NotFound { .. })
                | Self::Effect(EffectError::Tracker(TrackerError::NotFound { .. }))
                | Self::Workspace(WorkspaceError::Clone { .. } | WorkspaceError::Git { .. })
        )
    }

    /// Whether a process of the worker may have ended by a signal: one of a sandbox, or git.
    pub(crate) fn may_be_of_a_lost_process(&self) -> bool {
        matches!(
            self,
            Self::SandboxGone(_)
                | Self::Freeze(_)
                | Self::BareRepo(_)
                | Self::Facts(FactsError::Git(_) | FactsError::Network(_))
                | Self::Workspace(
                    WorkspaceError::Start(_)
                        | WorkspaceError::Command(_)
                        | WorkspaceError::Git { .. }
                        | WorkspaceError::HostAway { .. }
                        | WorkspaceError::Clone { .. }
                )
        )
    }

    /// Whose fault it is, and until when.
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Self::Store(error) | Self::Effect(EffectError::Store(error)) => error.blame(),
            Self::Tracker(error) | Self::Effect(EffectError::Tracker(error)) => error.blame(),
            Self::Model(error) => error.blame(),
            Self::Facts(error) => error.blame(),
            Self::Freeze(error)
            | Self::EngineGone(error)
            | Self::Workspace(WorkspaceError::Start(error) | WorkspaceError::Command(error)) => {
                error.blame()
            }
            Self::Interrupted(_) | Self::Workspace(WorkspaceError::HostAway { .. }) => {
                Blame::OUTAGE
            }
            Self::BareRepo(error) | Self::Workspace(WorkspaceError::Gateway(error)) => {
                error.blame()
            }
            Self::Workspace(
                WorkspaceError::Unauthorized { .. } | WorkspaceError::Refused { .. },
            )
            | Self::Effect(EffectError::Record { .. })
            | Self::Journal(_)
            | Self::Encode(_)
            | Self::Checkpoint(_)
            | Self::Panicked(_) => Blame::Ours,
            Self::Workspace(
                WorkspaceError::Git { .. }
                | WorkspaceError::Clone { .. }
                | WorkspaceError::NoSuchBranch { .. },
            )
            | Self::SandboxGone(_)
            | Self::Conversation(_)
            | Self::NotASeparateBranch(_)
            | Self::ProtectedBranch { .. }
            | Self::BranchInTheWay { .. }
            | Self::BranchDeleted(_)
            | Self::BranchMoved
            | Self::Agent(_)
            | Self::NoResult(_) => Blame::Task,
        }
    }

    /// Whether the call may succeed once the store has answered a heartbeat: it is unavailable, or the lease may
    /// have ended meanwhile.
    pub(crate) fn passes_with_a_heartbeat(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Expired(_))
                | Self::Effect(
                    EffectError::Store(
                        StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Expired(_)
                    ) | EffectError::Tracker(TrackerError::NotPermitted { .. })
                )
        )
    }

    /// Whether the lease is lost.
    pub(crate) fn is_lease_lost(&self) -> bool {
        matches!(
            self,
            Self::Interrupted(Interrupt::LeaseLost)
                | Self::Store(StoreError::Fenced(_))
                | Self::Effect(EffectError::Store(StoreError::Fenced(_)))
        )
    }

    /// The error for a panic, with its message.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panicked(text.unwrap_or_else(|| "no message".into()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_branch_in_the_way_is_named_as_where_it_is_pushed() {
        let (branch, other) = ("agentmine/issue-7", "agentmine");
        let error = SessionError::BranchInTheWay {
            branch: branch.into(),
            other: other.into(),
        };
        let next = "hint: rename or delete `agentmine`, then request the work again";
        let shown = error.to_string();
        assert!(shown.starts_with(&branch_in_the_way(branch, other)) && shown.ends_with(next));
    }

    #[test]
    fn a_full_disk_of_the_worker_costs_no_attempt() {
        let io = |kind: ErrorKind| GatewayError::Io(kind.into());
        let (full, denied) = (ErrorKind::StorageFull, ErrorKind::PermissionDenied);
        assert_eq!(SessionError::BareRepo(io(full)).blame(), Blame::OUTAGE);
        assert_eq!(SessionError::BareRepo(io(denied)).blame(), Blame::Ours);
        let gateway = |kind| SessionError::from(WorkspaceError::Gateway(io(kind)));
        assert_eq!(gateway(full).blame(), Blame::OUTAGE);
        assert_eq!(gateway(denied).blame(), Blame::Ours);
    }
}
