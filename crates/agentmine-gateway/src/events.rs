//! What the gateway allowed and refused.
//!
//! The sandbox decides how often something happens, so everything kept here is bounded: each web host
//! once, up to [`MAX_WEB`] allowed and as many refused, so that neither crowds out the other, and
//! pushes up to [`MAX_PUSHES`]. What does not fit is counted.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::printable::printable;

/// Distinct web events kept: of those allowed, and of those refused.
const MAX_WEB: usize = 1000;
/// Push events kept.
const MAX_PUSHES: usize = 500;

/// Something the gateway allowed or refused. Web requests are shown in the pull request's summary;
/// refused pushes will be, once the hardening issue adds them to the session's report.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TrafficEvent {
    /// A push went upstream and was accepted.
    Pushed {
        /// The branch, without `refs/heads/`.
        branch: String,
        /// The branch's commit before; all zeros when the push created the branch.
        old: String,
        /// The branch's commit now.
        new: String,
        /// Size of the push as the sandbox sent it.
        bytes: u64,
    },
    /// A push was refused, here or upstream.
    PushRefused {
        /// The reason that git was given.
        reason: String,
    },
    /// Upstream refused the worker's credentials: the session cannot succeed.
    AuthRefused {
        /// 401 or 403.
        status: u16,
    },
    /// Web requests to this host were allowed. Kept once for each host and port.
    WebAllowed {
        /// The host's name, in lower case.
        host: String,
        /// The port.
        port: u16,
    },
    /// Web requests to this host were refused here. Kept once for each host, port and reason.
    WebBlocked {
        /// The host as the sandbox named it, truncated if it is long.
        host: String,
        /// The port; 0 when the request named none.
        port: u16,
        /// The reason that the client was given.
        reason: String,
    },
}

/// The record of one session's gateway.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<TrafficEvent>,
    allowed_seen: HashSet<TrafficEvent>,
    blocked_seen: HashSet<TrafficEvent>,
    dropped: u64,
    pushes: usize,
    auth_refused: Option<u16>,
    host_failure: Option<String>,
    pushed_head: Option<String>,
}

impl Ledger {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing here panics in the middle of a change, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn events(&self) -> Vec<TrafficEvent> {
        self.state().events.clone()
    }

    /// How many events did not fit.
    pub(crate) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    pub(crate) fn auth_refused(&self) -> Option<u16> {
        self.state().auth_refused
    }

    pub(crate) fn host_failure(&self) -> Option<String> {
        self.state().host_failure.clone()
    }

    /// The repository's host did not do what was asked, because it is away.
    pub(crate) fn host_failed(&self, what: &str) {
        self.state().host_failure = Some(printable(what));
    }

    /// The repository's host answered.
    pub(crate) fn host_answered(&self) {
        self.state().host_failure = None;
    }

    pub(crate) fn pushed_head(&self) -> Option<String> {
        self.state().pushed_head.clone()
    }

    pub(crate) fn pushed(&self, branch: &str, old: &str, new: &str, bytes: u64) {
        metrics::counter!("agentmine_gateway_pushes_total", "outcome" => "accepted").increment(1);
        let mut state = self.state();
        state.pushed_head = Some(new.to_owned());
        state.host_failure = None;
        state.push_event(TrafficEvent::Pushed {
            branch: branch.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
            bytes,
        });
    }

    pub(crate) fn push_refused(&self, reason: &str) {
        metrics::counter!("agentmine_gateway_pushes_total", "outcome" => "refused").increment(1);
        let reason = printable(reason);
        self.state()
            .push_event(TrafficEvent::PushRefused { reason });
    }

    pub(crate) fn auth(&self, status: u16) {
        let mut state = self.state();
        if state.auth_refused.is_none() {
            state.auth_refused = Some(status);
            state.events.push(TrafficEvent::AuthRefused { status });
        }
    }

    pub(crate) fn web_allowed(&self, host: &str, port: u16) {
        metrics::counter!("agentmine_gateway_web_requests_total", "outcome" => "allowed")
            .increment(1);
        let host = printable(host);
        let mut state = self.state();
        let State {
            allowed_seen,
            events,
            dropped,
            ..
        } = &mut *state;
        web_event(
            TrafficEvent::WebAllowed { host, port },
            allowed_seen,
            events,
            dropped,
        );
    }

    pub(crate) fn web_blocked(&self, host: &str, port: u16, reason: &str) {
        metrics::counter!("agentmine_gateway_web_requests_total", "outcome" => "blocked")
            .increment(1);
        let event = TrafficEvent::WebBlocked {
            host: printable(host),
            port,
            reason: printable(reason),
        };
        let mut state = self.state();
        let State {
            blocked_seen,
            events,
            dropped,
            ..
        } = &mut *state;
        web_event(event, blocked_seen, events, dropped);
    }
}

impl State {
    fn push_event(&mut self, event: TrafficEvent) {
        if self.pushes < MAX_PUSHES {
            self.pushes += 1;
            self.events.push(event);
        } else {
            self.dropped += 1;
        }
    }
}

/// Keeps an event once, while there is room.
fn web_event(
    event: TrafficEvent,
    seen: &mut HashSet<TrafficEvent>,
    events: &mut Vec<TrafficEvent>,
    dropped: &mut u64,
) {
    if seen.contains(&event) {
        return;
    }
    if seen.len() >= MAX_WEB {
        *dropped += 1;
        return;
    }
    seen.insert(event.clone());
    events.push(event);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_failed_is_away_until_it_answers() {
        let ledger = Ledger::default();
        assert_eq!(ledger.host_failure(), None);
        ledger.host_failed("h responded with HTTP 503");
        let failure = ledger.host_failure();
        assert_eq!(failure.as_deref(), Some("h responded with HTTP 503"));
        ledger.host_answered();
        assert_eq!(ledger.host_failure(), None);
        ledger.host_failed("h cannot be reached");
        ledger.pushed("b", "0", "1", 1);
        assert_eq!(ledger.host_failure(), None);
    }

    #[test]
    fn a_host_is_kept_once_and_hosts_are_bounded() {
        let ledger = Ledger::default();
        ledger.web_allowed("a.example", 443);
        ledger.web_allowed("a.example", 443);
        assert_eq!(ledger.events().len(), 1);
        for n in 0..(MAX_WEB * 2) {
            ledger.web_blocked(&format!("h{n}"), 80, "no");
        }
        assert_eq!(ledger.events().len(), MAX_WEB + 1);
        assert_eq!(ledger.dropped(), MAX_WEB as u64);
        ledger.web_blocked("h0", 80, "no");
        assert_eq!(ledger.dropped(), MAX_WEB as u64, "it is already listed");
        ledger.web_allowed("b.example", 443);
        ledger.push_refused("still kept");
        assert_eq!(ledger.events().len(), MAX_WEB + 3);
    }

    #[test]
    fn allowed_hosts_leave_room_for_refused_ones() {
        let ledger = Ledger::default();
        for n in 0..=MAX_WEB {
            ledger.web_allowed(&format!("h{n}"), 443);
        }
        ledger.web_blocked("evil.example", 443, "no");
        let last = ledger.events().pop();
        assert!(
            matches!(last, Some(TrafficEvent::WebBlocked { host, .. }) if host == "evil.example")
        );
        assert_eq!(ledger.dropped(), 1);
    }
}
