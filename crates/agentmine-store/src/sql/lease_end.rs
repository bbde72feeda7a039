//! What the end of a lease makes of the row and its session.

use std::time::Duration;

use agentmine_domain::{EndState, SessionEnd, TaskState, Urgency};

use crate::{Attempt, LeaseEnd, LeaseRequest};

/// The row and the session as they are to be written.
pub(super) struct Ending<'a> {
    /// The row's state.
    pub(super) state: TaskState,
    /// The row's reason; a queued row has none.
    pub(super) task_reason: Option<&'a str>,
    /// Recorded if there is one.
    pub(super) pull_request_url: Option<&'a str>,
    /// Attempts that do not count.
    pub(super) refunded_attempts: u32,
    /// Until a queued row's wake-up is due.
    pub(super) wake_after: Option<Duration>,
    /// Whether a queued row goes before all others.
    pub(super) urgency: Urgency,
    /// The session's end.
    pub(super) session: SessionEnd,
    /// The session's reason.
    pub(super) session_reason: Option<&'a str>,
}

impl<'a> Ending<'a> {
    /// A released task with a request is not queued again: no worker would act on the request. Likewise,
    /// one that is paused is ended if a stop was requested.
    pub(super) fn of(
        end: &'a LeaseEnd,
        request: LeaseRequest,
        request_reason: Option<&'a str>,
    ) -> Self {
        match end {
            LeaseEnd::Finish {
                state,
                reason,
                pull_request_url,
            } => {
                let (session, requested) = match state {
                    EndState::Done => (SessionEnd::Done, None),
                    EndState::Failed => (SessionEnd::Failed, None),
                    EndState::Stopped => (SessionEnd::Stopped, request_reason),
                };
                let reason = reason.as_deref().or(requested);
                Self {
                    state: TaskState::Ended(*state),
                    task_reason: reason,
                    pull_request_url: pull_request_url.as_deref(),
                    refunded_attempts: 0,
                    wake_after: None,
                    urgency: Urgency::Normal,
                    session,
                    session_reason: reason,
                }
            }
            LeaseEnd::Pause { reason } => Self {
                // People may have stopped the task while its pause was reported.
                state: match request {
                    LeaseRequest::Stop => TaskState::Ended(EndState::Stopped),
                    LeaseRequest::Continue | LeaseRequest::Pause => TaskState::Paused,
                },
                task_reason: request_reason.or(Some(reason)),
                pull_request_url: None,
                refunded_attempts: 1,
                wake_after: None,
                urgency: Urgency::Normal,
                session: SessionEnd::Paused,
                session_reason: Some(reason),
            },
            LeaseEnd::HandOver { reason } => {
                let released = Released {
                    reason,
                    delay: Duration::ZERO,
                    attempt: Attempt::Refunded,
                    urgency: Urgency::Takeover,
                };
                released.ending(request, request_reason)
            }
            LeaseEnd::Release {
                reason,
                delay,
                attempt,
            } => {
                let released = Released {
                    reason,
                    delay: *delay,
                    attempt: *attempt,
                    urgency: Urgency::Normal,
                };
                released.ending(request, request_reason)
            }
        }
    }
}

/// A lease that a worker gave back.
struct Released<'a> {
    reason: &'a str,
    delay: Duration,
    attempt: Attempt,
    urgency: Urgency,
}

impl<'a> Released<'a> {
    fn ending(self, request: LeaseRequest, request_reason: Option<&'a str>) -> Ending<'a> {
        let Self {
            reason,
            delay,
            attempt,
            urgency,
        } = self;
        let (state, task_reason, wake_after) = match request {
            LeaseRequest::Continue => (TaskState::Queued, None, Some(delay)),
            LeaseRequest::Stop => (TaskState::Ended(EndState::Stopped), request_reason, None),
            LeaseRequest::Pause => (TaskState::Paused, request_reason.or(Some(reason)), None),
        };
        Ending {
            state,
            task_reason,
            pull_request_url: None,
            refunded_attempts: match attempt {
                Attempt::Charged => 0,
                Attempt::Refunded => 1,
            },
            wake_after,
            urgency: match state {
                TaskState::Queued => urgency,
                TaskState::Leased(_) | TaskState::Paused | TaskState::Ended(_) => Urgency::Normal,
            },
            session: SessionEnd::Released,
            session_reason: Some(reason),
        }
    }
}
