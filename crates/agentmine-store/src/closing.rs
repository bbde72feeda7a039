//! What ending a lease makes of the row and its session: one table for both databases.

use std::time::Duration;

use agentmine_domain::{EndState, SessionEnd};

use crate::row::row;
use crate::{Attempt, LeaseEnd};

row! {
    /// What people left in a leased row.
    pub(crate) struct RequestRow {
        pub(crate) request: Option<String>,
        pub(crate) request_reason: Option<String>,
    }
}

/// The row and session as they are to be written.
pub(crate) struct Closing<'a> {
    /// The row's state.
    pub(crate) state: &'static str,
    /// The session's end.
    pub(crate) ending: SessionEnd,
    /// The row's reason; a queued row has none.
    pub(crate) task_reason: Option<&'a str>,
    /// The session's reason.
    pub(crate) session_reason: Option<&'a str>,
    /// Recorded if there is one.
    pub(crate) pull_request_url: Option<&'a str>,
    /// Attempts handed back.
    pub(crate) attempts_back: i32,
    /// When the row is queued: until its wake-up.
    pub(crate) wake_after: Option<Duration>,
}

impl<'a> Closing<'a> {
    /// A task given back while somebody waits for it to stop or pause is not queued again: no worker
    /// would pass the request on.
    pub(crate) fn of(close: &'a LeaseEnd, requests: Option<&'a RequestRow>) -> Self {
        let request_reason = requests.and_then(|w| w.request_reason.as_deref());
        match close {
            LeaseEnd::Finish {
                state,
                reason,
                pull_request_url,
            } => {
                let reason = match state {
                    EndState::Stopped => reason.as_deref().or(request_reason),
                    EndState::Done | EndState::Failed => reason.as_deref(),
                };
                Self {
                    state: state.as_str(),
                    ending: match state {
                        EndState::Done => SessionEnd::Done,
                        EndState::Failed => SessionEnd::Failed,
                        EndState::Stopped => SessionEnd::Stopped,
                    },
                    task_reason: reason,
                    session_reason: reason,
                    pull_request_url: pull_request_url.as_deref(),
                    attempts_back: 0,
                    wake_after: None,
                }
            }
            LeaseEnd::Pause { reason } => Self::set_aside(reason, request_reason, 1),
            LeaseEnd::Release {
                reason,
                delay,
                attempt,
            } => {
                let attempts_back = match attempt {
                    Attempt::Charged => 0,
                    Attempt::Refunded => 1,
                };
                match requests.and_then(|w| w.request.as_deref()) {
                    Some("stop") => Self {
                        state: "stopped",
                        ending: SessionEnd::Released,
                        task_reason: request_reason,
                        session_reason: Some(reason),
                        pull_request_url: None,
                        attempts_back,
                        wake_after: None,
                    },
                    Some(_) => Self {
                        ending: SessionEnd::Released,
                        session_reason: Some(reason),
                        ..Self::set_aside(reason, request_reason, attempts_back)
                    },
                    None => Self {
                        state: "queued",
                        ending: SessionEnd::Released,
                        task_reason: None,
                        session_reason: Some(reason),
                        pull_request_url: None,
                        attempts_back,
                        wake_after: Some(*delay),
                    },
                }
            }
        }
    }

    fn set_aside(reason: &'a str, request_reason: Option<&'a str>, attempts_back: i32) -> Self {
        Self {
            state: "paused",
            ending: SessionEnd::Paused,
            task_reason: request_reason.or(Some(reason)),
            session_reason: Some(reason),
            pull_request_url: None,
            attempts_back,
            wake_after: None,
        }
    }
}
