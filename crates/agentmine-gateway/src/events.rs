//! What the gateway allowed and refused.
//!
//! The sandbox decides how often something happens, so what is kept is bounded, and nothing is lost: web
//! requests are counted for each host, up to [`MAX_HOSTS`] allowed and as many refused; of more hosts those of
//! one domain are counted together, and in the end all others. Pushes are kept up to [`MAX_PUSHES`] accepted and
//! as many refused; more are counted.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::egress::{AllowedBy, BlockedBy};
use crate::printable::printable;

/// Web hosts kept: of those allowed, and of those refused.
const MAX_HOSTS: usize = 1000;
/// Domains kept of further hosts: of those allowed, and of those refused.
const MAX_DOMAINS: usize = 200;
/// Push events kept: of those accepted, and of those refused.
const MAX_PUSHES: usize = 500;
/// Authors and committers of pushed commits that are kept.
const MAX_IDENTITIES: usize = 100;
/// All hosts for which there was no room.
const OTHERS: &str = "(other hosts)";

/// Something the gateway allowed or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        /// The host's name, in lower case; `*.` and a domain, or `(other hosts)`, where there were too many.
        host: String,
        /// The port.
        port: u16,
        /// How many requests.
        count: u64,
    },
    /// Web requests to this host were refused here. Kept once for each host, port and reason.
    WebBlocked {
        /// The host as the sandbox named it, truncated if it is long.
        host: String,
        /// The port; 0 when the request named none.
        port: u16,
        /// The reason that the client was given.
        reason: String,
        /// How many requests.
        count: u64,
    },
}

/// The record of one session's gateway.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
    /// Notified of each push: when it begins, and when upstream accepts it.
    pushing: Notify,
    /// Notified of each web request that was refused, or could not be forwarded.
    in_vain: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Of git, oldest first.
    git: Vec<TrafficEvent>,
    web: HashMap<Web, u64>,
    /// Web requests that were refused, or could not be forwarded, by host and reason; of the first [`MAX_HOSTS`].
    in_vain: HashMap<String, u64>,
    allowed: usize,
    refused: usize,
    /// What [`Ledger::news`] has not returned yet.
    news: Vec<String>,
    pushes_accepted: usize,
    pushes_refused: usize,
    dropped: u64,
    auth_refused: Option<u16>,
    host_failure: Option<String>,
    host_refusal: Option<String>,
    pushed_head: Option<String>,
    others_pushed: bool,
    /// Authors and committers of the pushed commits.
    identities: BTreeSet<String>,
}

/// What web requests are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Web {
    host: String,
    port: u16,
    /// Why they were refused; `None` if they were allowed.
    refused: Option<String>,
}

impl Ledger {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing here panics in the middle of a change, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of git, oldest first; then web requests, the refused ones first, and by their number.
    pub(crate) fn events(&self) -> Vec<TrafficEvent> {
        let state = self.state();
        let mut web: Vec<(&Web, u64)> =
            state.web.iter().map(|(web, count)| (web, *count)).collect();
        web.sort_by(|(a, a_count), (b, b_count)| {
            let refused_first = b.refused.is_some().cmp(&a.refused.is_some());
            let by_count = refused_first.then(b_count.cmp(a_count));
            by_count.then_with(|| (&a.host, a.port).cmp(&(&b.host, b.port)))
        });
        let web = web.into_iter().map(|(web, count)| web.event(count));
        state.git.iter().cloned().chain(web).collect()
    }

    /// What is new since the last call, one line each: refused pushes, and hosts.
    pub(crate) fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.state().news)
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

    pub(crate) fn host_refusal(&self) -> Option<String> {
        self.state().host_refusal.clone()
    }

    /// The repository's host refuses what is asked until a person changes something: the session cannot succeed.
    pub(crate) fn host_refused(&self, what: &str) {
        self.state().host_refusal = Some(what.to_owned());
    }

    /// The repository's host answered.
    pub(crate) fn host_answered(&self) {
        let mut state = self.state();
        state.host_failure = None;
        state.host_refusal = None;
    }

    pub(crate) fn pushed_head(&self) -> Option<String> {
        self.state().pushed_head.clone()
    }

    pub(crate) fn others_pushed(&self) -> bool {
        self.state().others_pushed
    }

    /// A push from here was on top of one of somebody else.
    pub(crate) fn others_have_pushed(&self) {
        self.state().others_pushed = true;
    }

    pub(crate) fn pushed(&self, branch: &str, old: &str, new: &str, bytes: u64) {
        metrics::counter!("agentmine_gateway_pushes_total", "outcome" => "accepted").increment(1);
        let mut state = self.state();
        state.pushed_head = Some(new.to_owned());
        state.host_failure = None;
        state.host_refusal = None;
        let kept = state.pushes_accepted;
        state.pushes_accepted += 1;
        let event = TrafficEvent::Pushed {
            branch: branch.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
            bytes,
        };
        state.push_event(kept, event);
        drop(state);
        self.pushing.notify_one();
    }

    /// Records the authors and committers of a push that upstream accepted.
    pub(crate) fn record_identities(&self, identities: &BTreeSet<String>) {
        let mut state = self.state();
        for identity in identities {
            if state.identities.len() < MAX_IDENTITIES {
                state.identities.insert(identity.clone());
            }
        }
    }

    pub(crate) fn identities(&self) -> Vec<String> {
        self.state().identities.iter().cloned().collect()
    }

    /// A client begins a push.
    pub(crate) fn push_begins(&self) {
        self.pushing.notify_one();
    }

    /// Waits for a push that begins, or that upstream accepts, after the last call.
    pub(crate) async fn pushing(&self) {
        self.pushing.notified().await;
    }

    pub(crate) fn push_refused(&self, reason: &str) {
        metrics::counter!("agentmine_gateway_pushes_total", "outcome" => "refused").increment(1);
        let reason = printable(reason);
        let mut state = self.state();
        let kept = state.pushes_refused;
        state.pushes_refused += 1;
        if kept < MAX_PUSHES {
            state.news.push(format!("a push was refused: {reason}"));
        }
        state.push_event(kept, TrafficEvent::PushRefused { reason });
    }

    pub(crate) fn auth(&self, status: u16) {
        let mut state = self.state();
        if state.auth_refused.is_none() {
            state.auth_refused = Some(status);
            state.git.push(TrafficEvent::AuthRefused { status });
        }
    }

    pub(crate) fn web_allowed(&self, host: &str, port: u16, by: AllowedBy) {
        by.count(1);
        self.state().count(Web {
            host: printable(host),
            port,
            refused: None,
        });
    }

    pub(crate) fn web_blocked(&self, host: &str, port: u16, by: BlockedBy, reason: &str) {
        by.count(1);
        let web = Web {
            host: printable(host),
            port,
            refused: Some(printable(reason)),
        };
        let line = web.line();
        self.state().count(web);
        self.was_in_vain(line);
    }

    /// A request to a host was allowed, and could not be forwarded.
    pub(crate) fn web_unreachable(&self, host: &str, port: u16, reason: &str) {
        let host = printable(host);
        self.was_in_vain(format!(
            "web requests to {host}:{port} were not forwarded: {reason}"
        ));
    }

    fn was_in_vain(&self, line: String) {
        let mut state = self.state();
        if state.in_vain.len() < MAX_HOSTS || state.in_vain.contains_key(&line) {
            *state.in_vain.entry(line).or_default() += 1;
        }
        drop(state);
        self.in_vain.notify_waiters();
    }

    /// Waits until so many web requests to one host were refused, or could not be forwarded, after the call. Returns a
    /// line that says which host, and why.
    pub(crate) async fn often_in_vain(&self, times: u64) -> String {
        let before = self.state().in_vain.clone();
        let is_often = |(line, count): &(&String, &u64)| {
            let seen = before.get(*line).copied().unwrap_or_default();
            *count - seen >= times
        };
        loop {
            let mut next = std::pin::pin!(self.in_vain.notified());
            next.as_mut().enable();
            if let Some((line, _)) = self.state().in_vain.iter().find(is_often) {
                return line.clone();
            }
            next.await;
        }
    }
}

impl State {
    fn push_event(&mut self, kept: usize, event: TrafficEvent) {
        if kept < MAX_PUSHES {
            self.git.push(event);
        } else {
            self.dropped += 1;
        }
    }

    /// Counts a request by its host if there is room, else by its domain, else with all others.
    fn count(&mut self, web: Web) {
        let kept = match web.refused {
            Some(_) => &mut self.refused,
            None => &mut self.allowed,
        };
        let forms = [
            (web.clone(), MAX_HOSTS),
            (web.of_domain(), MAX_HOSTS + MAX_DOMAINS),
            (web.of_others(), usize::MAX),
        ];
        for (web, most) in forms {
            if let Some(count) = self.web.get_mut(&web) {
                *count = count.saturating_add(1);
                return;
            }
            if *kept < most {
                *kept += 1;
                self.news.push(web.line());
                self.web.insert(web, 1);
                return;
            }
        }
    }
}

impl Web {
    /// Counted together with the other names of its domain, on any port.
    fn of_domain(&self) -> Self {
        let labels: Vec<&str> = self.host.rsplit('.').take(2).collect();
        let is_name = self.host.parse::<std::net::IpAddr>().is_err();
        let host = match labels.as_slice() {
            [top, second] if is_name => format!("*.{second}.{top}"),
            _ => OTHERS.to_owned(),
        };
        Self {
            host,
            port: 0,
            refused: self.refused.clone(),
        }
    }

    fn of_others(&self) -> Self {
        Self {
            host: OTHERS.to_owned(),
            port: 0,
            refused: self
                .refused
                .as_ref()
                .map(|_| "for several reasons".to_owned()),
        }
    }

    fn line(&self) -> String {
        let Self { host, port, .. } = self;
        match &self.refused {
            Some(reason) => format!("web requests to {host}:{port} were refused: {reason}"),
            None => format!("web requests to {host}:{port} were allowed"),
        }
    }

    fn event(&self, count: u64) -> TrafficEvent {
        let (host, port) = (self.host.clone(), self.port);
        match self.refused.clone() {
            None => TrafficEvent::WebAllowed { host, port, count },
            Some(reason) => TrafficEvent::WebBlocked {
                host,
                port,
                reason,
                count,
            },
        }
    }
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

    /// Hosts with their counts, in order; refused ones with a `!`.
    fn web(ledger: &Ledger) -> Vec<(String, u64)> {
        let shown = |event| match event {
            TrafficEvent::WebAllowed { host, count, .. } => Some((host, count)),
            TrafficEvent::WebBlocked { host, count, .. } => Some((format!("!{host}"), count)),
            _ => None,
        };
        ledger.events().into_iter().filter_map(shown).collect()
    }

    #[test]
    fn refused_hosts_come_first_and_then_those_with_the_most_requests() {
        let ledger = Ledger::default();
        for (host, times) in [("a", 2), ("b", 5), ("c", 2)] {
            (0..times).for_each(|_| ledger.web_allowed(host, 443, AllowedBy::Listed));
        }
        for (host, times) in [("x", 1), ("y", 3)] {
            (0..times).for_each(|_| ledger.web_blocked(host, 443, BlockedBy::Host, "no"));
        }
        let seen = web(&ledger);
        let seen: Vec<_> = seen.iter().map(|(host, n)| (host.as_str(), *n)).collect();
        assert_eq!(seen, [("!y", 3), ("!x", 1), ("b", 5), ("a", 2), ("c", 2)]);
        let news = ledger.news();
        assert_eq!(news.len(), 5, "{news:?}");
        ledger.web_blocked("x", 443, BlockedBy::Host, "no");
        assert!(ledger.news().is_empty(), "it is not new");
    }

    #[tokio::test]
    async fn a_host_that_is_requested_over_and_over_in_vain_is_noticed() {
        let ledger = Ledger::default();
        let refuse = |host, times| {
            (0..times).for_each(|_| ledger.web_blocked(host, 443, BlockedBy::Host, "no"));
        };
        refuse("before", 9);
        let mut often = Box::pin(ledger.often_in_vain(3));
        let before = futures::poll!(often.as_mut());
        assert!(before.is_pending(), "what was before does not count");
        (0..9).for_each(|_| ledger.web_allowed("fine", 443, AllowedBy::Listed));
        refuse("before", 2);
        refuse("other", 2);
        let rarely = futures::poll!(often.as_mut());
        assert!(rarely.is_pending(), "none three times");
        refuse("other", 1);
        let line = "web requests to other:443 were refused: no";
        assert_eq!(often.await, line);
        let often = ledger.often_in_vain(2);
        let away = async { (0..2).for_each(|_| ledger.web_unreachable("away", 80, "no answer")) };
        let (line, ()) = futures::future::join(often, away).await;
        assert_eq!(
            line,
            "web requests to away:80 were not forwarded: no answer"
        );
    }

    #[test]
    fn no_request_is_lost_however_many_hosts_there_are() {
        let ledger = Ledger::default();
        let requests = 5 * MAX_HOSTS;
        for n in 0..requests {
            ledger.web_blocked(&format!("h{n}.evil.example"), 80, BlockedBy::Host, "no");
            ledger.web_blocked(&format!("a.h{n}.example"), 80, BlockedBy::Host, "no");
            ledger.web_allowed(&format!("h{n}.fine.example"), 443, AllowedBy::Listed);
        }
        let seen = web(&ledger);
        let refused: u64 = seen
            .iter()
            .filter(|it| it.0.starts_with('!'))
            .map(|it| it.1)
            .sum();
        let all: u64 = seen.iter().map(|it| it.1).sum();
        assert_eq!((refused, all), (2 * requests as u64, 3 * requests as u64));
        assert!(
            seen.len() <= 2 * (MAX_HOSTS + MAX_DOMAINS + 2),
            "{}",
            seen.len()
        );
        for group in ["!*.evil.example", "!(other hosts)", "*.fine.example"] {
            assert!(seen.iter().any(|it| it.0 == group), "{group}");
        }
        assert!(ledger.news().len() < 4 * MAX_HOSTS);
    }

    #[test]
    fn refused_pushes_leave_room_for_accepted_ones() {
        let ledger = Ledger::default();
        for _ in 0..=MAX_PUSHES {
            ledger.push_refused("no");
        }
        ledger.pushed("b", "0", "1", 1);
        assert!(matches!(
            ledger.events().last(),
            Some(TrafficEvent::Pushed { .. })
        ));
        assert_eq!(ledger.dropped(), 1);
    }
}
