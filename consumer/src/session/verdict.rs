//! The one place that decides what an error means for the task.

use agentmine_domain::Blame;
use agentmine_effects::{EffectError, is_final};
use agentmine_gateway::facts::FactsError;
use agentmine_llm::LlmError;
use agentmine_sandbox::SandboxError;
use agentmine_trackers::TrackerError;
use chrono::{DateTime, Utc};

use crate::error::{Interrupt, SessionError, WorkspaceError};

/// What happens to a task whose session ended with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The lease is lost: nothing is written.
    Abandon,
    /// Queued again immediately; the attempt does not count.
    GiveBack,
    /// An external service is unavailable: queued again with a delay, and the attempt does not count. Failed
    /// once outages have delayed the task for too long.
    Wait {
        /// Which service, and at which stage.
        reason: String,
        /// When it accepts requests again, if it said so.
        until: Option<DateTime<Utc>>,
    },
    /// The tracker or the git host refused the credentials: paused until it accepts them, and the attempt does not
    /// count.
    Credentials(String),
    /// Queued again with a delay if attempts are left, otherwise failed.
    Retry(String),
    /// Failed; a retry would not help.
    Fail(String),
    /// Stopped by a person.
    Stop(String),
    /// Paused by a person.
    Pause(String),
}

impl Verdict {
    /// For logs.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Abandon => "lease_lost",
            Self::GiveBack => "drained",
            Self::Wait { .. } => "outage",
            Self::Credentials(_) => "credentials",
            Self::Retry(_) => "retry",
            Self::Fail(_) => "failed",
            Self::Stop(_) => "stopped",
            Self::Pause(_) => "paused",
        }
    }
}

/// Decides what an error means for the task.
pub(crate) fn verdict(error: &SessionError) -> Verdict {
    match error {
        SessionError::Interrupted(interrupt) => of_interrupt(interrupt),
        _ if error.is_lease_lost() => Verdict::Abandon,
        _ if is_of_credentials(error) => Verdict::Credentials(error.to_string()),
        // As during a deploy, or after it was undone.
        SessionError::Journal(step) if step.is_of_later_version() => Verdict::Wait {
            reason: format!(
                "no consumer of a later version of AgentMine, which recorded a step of the journal, has taken the task ({step})"
            ),
            until: None,
        },
        _ if is_permanent(error) => Verdict::Fail(error.to_string()),
        _ => match error.blame() {
            Blame::World { until } => Verdict::Wait {
                reason: error.to_string(),
                until,
            },
            Blame::Task | Blame::Ours => Verdict::Retry(error.to_string()),
        },
    }
}

fn of_interrupt(interrupt: &Interrupt) -> Verdict {
    match interrupt {
        Interrupt::Stopped(reason) => Verdict::Stop(reason.clone()),
        Interrupt::Paused(reason) => Verdict::Pause(reason.clone()),
        Interrupt::LeaseLost => Verdict::Abandon,
        Interrupt::Draining => Verdict::GiveBack,
    }
}

/// Whether the tracker or the git host refused the credentials, or what they allow, as it does for an archived or blocked
/// repository, or the model API refused the account. A person can change that.
pub(super) fn is_of_credentials(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::Tracker(
            TrackerError::Unauthorized { .. }
                | TrackerError::Forbidden { .. }
                | TrackerError::Archived { .. }
        ) | SessionError::Effect(EffectError::Tracker(
            TrackerError::Unauthorized { .. }
                | TrackerError::Forbidden { .. }
                | TrackerError::Archived { .. }
        )) | SessionError::Facts(FactsError::Auth(_) | FactsError::Refused(_))
            | SessionError::Workspace(
                WorkspaceError::Unauthorized { .. } | WorkspaceError::Refused { .. }
            )
            | SessionError::Model(LlmError::Unauthorized { .. } | LlmError::OutOfQuota { .. })
    )
}

/// Whether another attempt would fail too. A refusal is final; an unavailable engine or network may come
/// back (spec 001 §8.1).
fn is_permanent(error: &SessionError) -> bool {
    match error {
        SessionError::Tracker(error) | SessionError::Effect(EffectError::Tracker(error)) => {
            is_final(error)
        }
        SessionError::Model(error) => match error {
            LlmError::Unavailable { .. } | LlmError::Protocol(_) => false,
            LlmError::Refused { .. }
            | LlmError::NotFound { .. }
            | LlmError::NotAnApi(_)
            | LlmError::NoTls { .. }
            | LlmError::Unauthorized { .. }
            | LlmError::OutOfQuota { .. }
            | LlmError::ContextTooLong(_)
            | LlmError::Replay(_) => true,
        },
        SessionError::Facts(error) => match error {
            FactsError::Auth(_)
            | FactsError::Refused(_)
            | FactsError::NotFound(_)
            | FactsError::TooLarge(_) => true,
            FactsError::Network(_) | FactsError::Git(_) => false,
        },
        SessionError::Agent(_) => true,
        SessionError::Workspace(error) => match error {
            WorkspaceError::Start(SandboxError::Refused(_))
            | WorkspaceError::Unauthorized { .. }
            | WorkspaceError::Refused { .. }
            | WorkspaceError::NoSuchBranch { .. } => true,
            // The worker's disk may have room again.
            WorkspaceError::Gateway(error) => error.blame() == Blame::Ours,
            WorkspaceError::Start(_)
            | WorkspaceError::Command(_)
            | WorkspaceError::Git { .. }
            | WorkspaceError::HostAway { .. }
            | WorkspaceError::Clone { .. } => false,
        },
        SessionError::Effect(EffectError::Record { .. })
        | SessionError::Journal(_)
        | SessionError::Encode(_)
        | SessionError::Checkpoint(_)
        | SessionError::NotASeparateBranch(_)
        | SessionError::ProtectedBranch { .. }
        | SessionError::BranchInTheWay { .. }
        | SessionError::BranchDeleted(_)
        | SessionError::NoResult(_) => true,
        SessionError::Interrupted(_)
        | SessionError::Store(_)
        | SessionError::Effect(EffectError::Store(_))
        | SessionError::Freeze(_)
        | SessionError::BareRepo(_)
        | SessionError::SandboxGone(_)
        | SessionError::EngineGone(_)
        | SessionError::Conversation(_)
        | SessionError::BranchMoved
        | SessionError::Panicked(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use agentmine_agent::journal::Entry;
    use agentmine_domain::{Epoch, Seq, Step, StepKind, TaskId, TrackerKind};
    use agentmine_gateway::GatewayError;
    use agentmine_store::StoreError;

    use super::*;

    fn is_retry(error: impl Into<SessionError>) -> bool {
        matches!(verdict(&error.into()), Verdict::Retry(_))
    }

    fn is_wait(error: impl Into<SessionError>) -> bool {
        matches!(verdict(&error.into()), Verdict::Wait { .. })
    }

    fn is_fail(error: impl Into<SessionError>) -> bool {
        matches!(verdict(&error.into()), Verdict::Fail(_))
    }

    #[test]
    fn an_unavailable_model_is_waited_for_and_a_refused_request_is_final() {
        assert!(is_wait(SessionError::Model(LlmError::Unavailable {
            tries: 5,
            detail: "503".into(),
            until: None,
        })));
        let body = || "no".to_owned();
        let refused = LlmError::Refused {
            status: 400,
            body: body(),
        };
        assert!(is_fail(SessionError::Model(refused)));
        let not_found = LlmError::NotFound {
            status: 404,
            body: body(),
        };
        let Verdict::Fail(reason) = verdict(&SessionError::Model(not_found)) else {
            panic!("not final");
        };
        assert!(reason.contains("model.base_url"), "{reason}");
    }

    #[test]
    fn a_refused_conversation_is_tried_again() {
        let error = LlmError::Refused {
            status: 400,
            body: "roles must alternate".into(),
        };
        assert!(is_retry(SessionError::Conversation(error)));
    }

    #[test]
    fn nothing_is_written_once_the_lease_is_lost() {
        let lost: [SessionError; 3] = [
            Interrupt::LeaseLost.into(),
            StoreError::Fenced(TaskId::new()).into(),
            EffectError::Store(StoreError::Fenced(TaskId::new())).into(),
        ];
        for error in lost {
            assert_eq!(verdict(&error), Verdict::Abandon, "{error}");
        }
    }

    #[test]
    fn stop_and_pause_requests_keep_their_reason() {
        assert_eq!(
            verdict(&Interrupt::Stopped("enough".into()).into()),
            Verdict::Stop("enough".into())
        );
        assert_eq!(
            verdict(&Interrupt::Paused("later".into()).into()),
            Verdict::Pause("later".into())
        );
        assert_eq!(verdict(&Interrupt::Draining.into()), Verdict::GiveBack);
    }

    #[test]
    fn a_refusal_is_final_and_an_outage_costs_no_attempt() {
        let tracker = TrackerKind::GitHub;
        assert!(is_fail(TrackerError::NotFound {
            tracker,
            what: "the issue".into()
        }));
        let gateway =
            |kind: std::io::ErrorKind| WorkspaceError::Gateway(GatewayError::Io(kind.into()));
        assert!(is_wait(gateway(std::io::ErrorKind::StorageFull)));
        assert!(is_fail(gateway(std::io::ErrorKind::PermissionDenied)));
        assert!(is_wait(FactsError::Network("timed out".into())));
        assert!(is_wait(StoreError::Unavailable("read-only".into())));
        assert!(is_wait(WorkspaceError::HostAway {
            during: "git fetch",
            detail: "the repository's host h cannot be reached".into(),
        }));
        let start = |error| SessionError::from(WorkspaceError::Start(error));
        assert!(is_fail(start(SandboxError::Refused(
            "no such image".into()
        ))));
        assert!(is_wait(start(SandboxError::Unavailable("refused".into()))));
        assert!(is_retry(SessionError::SandboxGone("out of memory".into())));
        assert!(is_fail(SessionError::NoResult("nothing was pushed".into())));
        assert!(is_retry(SessionError::Panicked(
            "index out of bounds".into()
        )));
    }

    #[test]
    fn a_step_of_a_later_version_is_left_to_a_consumer_of_that_version() {
        let unreadable = |payload: &str| {
            let step = Step {
                seq: Seq(7),
                epoch: Epoch(1),
                kind: StepKind::Note,
                payload: payload.parse().unwrap(),
                duration_ms: 0,
                at: Utc::now(),
            };
            SessionError::from(Entry::decode(&step).unwrap_err())
        };
        for later in [
            r#"{"v":2,"type":"note","text":"x"}"#,
            r#"{"v":1,"type":"poem","text":"x"}"#,
        ] {
            let Verdict::Wait { reason, .. } = verdict(&unreadable(later)) else {
                panic!("{later}");
            };
            assert!(reason.contains("step 7"), "{reason}");
            assert!(reason.contains("later version"), "{reason}");
        }
        assert!(is_fail(unreadable(r#"{"v":1,"type":"note"}"#)));
    }

    #[test]
    fn refused_credentials_pause_the_task() {
        let words = || ("403".to_owned(), "give it issues=write".to_owned());
        let (detail, hint) = words();
        let tracker = TrackerKind::GitHub;
        let forbidden = TrackerError::Forbidden {
            tracker,
            detail,
            hint,
        };
        let (detail, hint) = words();
        let unauthorized = TrackerError::Unauthorized {
            tracker,
            detail,
            hint,
        };
        let errors: [SessionError; 6] = [
            forbidden.into(),
            EffectError::Tracker(unauthorized).into(),
            FactsError::Auth(403).into(),
            FactsError::Refused("single sign-on".into()).into(),
            WorkspaceError::Refused {
                during: "git push",
                detail: "single sign-on".into(),
            }
            .into(),
            WorkspaceError::Unauthorized {
                during: "git clone",
                status: 401,
            }
            .into(),
        ];
        for error in errors {
            assert!(
                matches!(verdict(&error), Verdict::Credentials(_)),
                "{error}"
            );
        }
    }

    #[test]
    fn a_rate_limit_is_waited_for_until_its_stated_end() {
        let until = Utc::now() + chrono::Duration::minutes(20);
        let limited = TrackerError::RateLimited {
            tracker: TrackerKind::GitHub,
            until,
        };
        let Verdict::Wait { until: seen, .. } = verdict(&limited.into()) else {
            panic!("not waited for");
        };
        assert_eq!(seen, Some(until));
    }
}
