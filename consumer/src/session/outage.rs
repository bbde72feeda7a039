//! How long outages of external services have delayed a task.

use std::time::Duration;

use agentmine_domain::{Session, SessionEnd};
use agentmine_runtime::backoff::Backoff;
use chrono::{DateTime, Utc};

use super::context::SessionContext;
use crate::error::ENGINE_GONE;

/// The longest delay that the growth of delays leads to.
const LONGEST_DELAY: Duration = Duration::from_secs(300);
/// The random part of a delay is at most this fraction (a quarter) of it, and at most [`WIDEST`].
const SPREAD_DIVISOR: u32 = 4;
const WIDEST: Duration = Duration::from_secs(60);
/// All sessions: an outage of days is a run of more than a thousand of them, and ends by its age.
const NO_LIMIT: u32 = 0;

/// What the reason of a session begins with that an outage ended. A session may also give its task back
/// because the worker shuts down, or for another try.
const OUTAGE: &str = "an external service is unavailable: ";

/// The reason of a session that an outage ends.
pub(super) fn outage_reason(reason: &str) -> String {
    format!("{OUTAGE}{reason}")
}

fn is_outage(session: &Session) -> bool {
    session.end == Some(SessionEnd::Released)
        && session
            .reason
            .as_deref()
            .is_some_and(|it| it.starts_with(OUTAGE))
}

/// Whether the model answered or a tool ran in a session that lasted longer than any delay: then an outage before
/// it was over. A service that answers once in each session, or an engine that the task's own commands end, is
/// one outage.
fn made_progress(session: &Session, now: DateTime<Utc>) -> bool {
    let lasted = session.ended_at.unwrap_or(now) - session.started_at;
    (session.usage.model_calls > 0 || session.usage.tool_calls > 0)
        && lasted.to_std().is_ok_and(|it| it >= LONGEST_DELAY)
}

/// A run of sessions that outages ended, up to the one that ends now, since the task last made progress.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outage {
    /// When the session ended that made progress last, or the first of the run.
    pub(super) since: DateTime<Utc>,
    /// How many sessions ended in the run before this one.
    sessions: u32,
    /// Whether the current session worked, for no longer than a delay, and the last one that worked before it ended
    /// with its engine. After hours of work the engine more likely ended by itself.
    follows_an_end_of_the_engine: bool,
}

/// Whether the model answered in this session, so that a command may have been under way when it ended. The call that
/// ends an engine has no result, and is not counted.
fn worked(session: &Session) -> bool {
    session.usage.model_calls > 0
}

/// Whether the session worked until its sandbox ended together with its engine.
fn ended_with_its_engine(session: &Session) -> bool {
    let reason = session.reason.as_deref().unwrap_or_default();
    worked(session) && is_outage(session) && reason[OUTAGE.len()..].starts_with(ENGINE_GONE)
}

impl Outage {
    /// Reads the task's sessions. If they cannot be read, the outage begins now.
    pub(super) async fn of(ctx: &SessionContext) -> Self {
        let store = &ctx.deps.store;
        let sessions = store.sessions(Some(ctx.task.id), NO_LIMIT).await;
        Self::among(&sessions.unwrap_or_default(), Utc::now())
    }

    /// `sessions` are newest first, the current one among them.
    fn among(sessions: &[Session], now: DateTime<Utc>) -> Self {
        let mut outage = Self {
            since: now,
            sessions: 0,
            // Sessions that found no engine at all may be between the two.
            follows_an_end_of_the_engine: match sessions {
                [current, earlier @ ..] if worked(current) && !made_progress(current, now) => {
                    let before = earlier.iter().find(|session| worked(session));
                    before.is_some_and(ended_with_its_engine)
                }
                [..] => false,
            },
        };
        for session in sessions {
            if session.end.is_some() && !is_outage(session) {
                break;
            }
            if let Some(ended) = session.ended_at {
                outage.since = ended;
                outage.sessions = outage.sessions.saturating_add(1);
            }
            if made_progress(session, now) {
                break;
            }
        }
        outage
    }

    /// Whether a command of the task may be what ends the engine: `reason` says that it ended, and so it did in the
    /// session before, while the task was at work.
    pub(super) fn may_be_caused_by_the_task(&self, reason: &str) -> bool {
        reason.starts_with(ENGINE_GONE) && self.follows_an_end_of_the_engine
    }

    /// The time since it began.
    pub(super) fn age(&self) -> Duration {
        (Utc::now() - self.since).to_std().unwrap_or_default()
    }

    /// The time until the next attempt: the first of `ladder`, doubled with each session of the run.
    pub(super) fn delay(&self, ladder: &[u64]) -> Duration {
        let first = Duration::from_secs(ladder.first().copied().unwrap_or(5));
        first
            .saturating_mul(2u32.saturating_pow(self.sessions))
            .min(LONGEST_DELAY)
    }
}

/// The delay plus a random part. An outage ends the sessions of a whole fleet at once, and a rate limit names the same time to
/// all of them; without the random part they would all start again at the same moment, each with a sandbox and a clone.
pub(super) fn spread(delay: Duration) -> Duration {
    let widest = (delay / SPREAD_DIVISOR).min(WIDEST);
    delay.saturating_add(Backoff::new(widest, widest).delay())
}

#[cfg(test)]
mod tests {
    use agentmine_domain::{Epoch, SessionId, TaskId, TaskNumber, Usage, WorkerId};

    use super::*;

    fn session(end: Option<SessionEnd>, minutes_ago: i64, now: DateTime<Utc>) -> Session {
        let at = now - chrono::Duration::minutes(minutes_ago);
        Session {
            id: SessionId(1),
            task: TaskId::new(),
            task_number: TaskNumber(1),
            epoch: Epoch(1),
            worker: WorkerId("w".into()),
            model: None,
            started_at: at,
            ended_at: end.map(|_| at),
            end,
            reason: end.map(|_| outage_reason("h")),
            usage: Usage::default(),
            external: None,
        }
    }

    #[test]
    fn an_outage_begins_with_the_first_session_that_it_ended() {
        let now = Utc::now();
        let released = Some(SessionEnd::Released);
        let ends = [
            (None, 0),
            (released, 2),
            (released, 7),
            (Some(SessionEnd::Expired), 9),
            (released, 30),
        ];
        let sessions: Vec<_> = ends.map(|(end, ago)| session(end, ago, now)).into();
        let outage = Outage::among(&sessions, now);
        assert_eq!(outage.since, now - chrono::Duration::minutes(7));
        assert_eq!(outage.sessions, 2);
        let first = Outage::among(&sessions[..1], now);
        assert_eq!((first.since, first.sessions), (now, 0));
    }

    #[test]
    fn an_outage_is_measured_since_the_task_last_made_progress() {
        let now = Utc::now();
        let ended = |minutes_ago| session(Some(SessionEnd::Released), minutes_ago, now);
        let worked = |minutes_ago| Session {
            usage: Usage {
                model_calls: 30,
                ..Usage::default()
            },
            started_at: now - chrono::Duration::minutes(minutes_ago + 60),
            ..ended(minutes_ago)
        };
        // Hours of work between two outages.
        let sessions = [ended(3), ended(5), worked(9), ended(300), ended(1500)];
        let outage = Outage::among(&sessions, now);
        assert_eq!(outage.since, now - chrono::Duration::minutes(9));
        assert_eq!(outage.sessions, 3);
        // The current session worked: its outage begins now.
        let current = Session {
            ended_at: None,
            end: None,
            ..worked(600)
        };
        let outage = Outage::among(&[current, ended(601)], now);
        assert_eq!((outage.since, outage.sessions), (now, 0));
    }

    #[test]
    fn a_service_that_answers_once_in_each_session_is_one_outage() {
        let now = Utc::now();
        let worked = |minutes_ago| Session {
            usage: Usage {
                model_calls: 1,
                tool_calls: 1,
                ..Usage::default()
            },
            started_at: now - chrono::Duration::minutes(minutes_ago + 1),
            ..session(Some(SessionEnd::Released), minutes_ago, now)
        };
        let current = Session {
            ended_at: None,
            end: None,
            ..worked(0)
        };
        let outage = Outage::among(&[current, worked(5), worked(20), worked(90)], now);
        assert_eq!(outage.since, now - chrono::Duration::minutes(90));
        assert_eq!(outage.delay(&[5]), Duration::from_secs(40));
    }

    #[test]
    fn an_engine_that_ends_in_two_sessions_at_work_may_be_ended_by_the_task() {
        let now = Utc::now();
        let gone = format!("{ENGINE_GONE}refused");
        let at_work = |model_calls, reason: &str, end| Session {
            usage: Usage {
                model_calls,
                ..Usage::default()
            },
            reason: Some(outage_reason(reason)),
            ..session(end, 1, now)
        };
        let released = Some(SessionEnd::Released);
        let current = |model_calls| at_work(model_calls, "", None);
        let suspects =
            |sessions: &[Session]| Outage::among(sessions, now).may_be_caused_by_the_task(&gone);
        assert!(!suspects(&[current(1)]), "the first time");
        assert!(suspects(&[current(1), at_work(2, &gone, released)]));
        assert!(!suspects(&[current(0), at_work(2, &gone, released)]));
        assert!(!suspects(&[current(1), at_work(0, &gone, released)]));
        let no_engine = at_work(0, "no engine", released);
        assert!(suspects(&[
            current(1),
            no_engine,
            at_work(2, &gone, released)
        ]));
        assert!(!suspects(&[current(1), at_work(2, "503", released)]));
        let earlier = Outage::among(&[current(1), at_work(2, &gone, released)], now);
        assert!(!earlier.may_be_caused_by_the_task("the tracker is away"));
    }

    #[test]
    fn a_session_that_was_drained_or_failed_before_an_outage_is_no_part_of_it() {
        let now = Utc::now();
        let released = |reason: &str, minutes_ago| Session {
            reason: Some(reason.to_owned()),
            ..session(Some(SessionEnd::Released), minutes_ago, now)
        };
        for reason in ["the worker was shut down", "out of memory"] {
            let sessions = [
                released(&outage_reason("503"), 3),
                released(reason, 600),
                released(&outage_reason("503"), 700),
            ];
            let outage = Outage::among(&sessions, now);
            assert_eq!(outage.since, now - chrono::Duration::minutes(3), "{reason}");
            assert_eq!(outage.sessions, 1);
        }
    }

    #[test]
    fn delays_grow_from_the_first_of_the_ladder_to_five_minutes() {
        let delay = |sessions, ladder: &[u64]| {
            let since = Utc::now();
            let outage = Outage {
                since,
                sessions,
                follows_an_end_of_the_engine: false,
            };
            outage.delay(ladder).as_secs()
        };
        assert_eq!([0, 1, 2].map(|n| delay(n, &[5, 30])), [5, 10, 20]);
        assert_eq!(
            (delay(40, &[5]), delay(6, &[5]), delay(0, &[])),
            (300, 300, 5)
        );
    }

    #[test]
    fn tasks_that_one_outage_gave_back_are_not_due_at_one_moment() {
        for (seconds, widest) in [(5, 1.25), (300, 60.0), (3600, 60.0)] {
            let delay = Duration::from_secs(seconds);
            let added = (0..200).map(|_| (spread(delay) - delay).as_secs_f64());
            let added: Vec<f64> = added.collect();
            assert!(added.iter().all(|it| *it <= widest), "{added:?}");
            assert!(added.iter().any(|it| *it < widest * 0.3), "{added:?}");
            assert!(added.iter().any(|it| *it > widest * 0.7), "{added:?}");
        }
        assert_eq!(spread(Duration::ZERO), Duration::ZERO);
    }
}
