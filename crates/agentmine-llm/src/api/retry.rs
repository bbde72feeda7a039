//! The one layer of retries around a model API.
//!
//! A server that is away, overloaded or loading is tried for a time, since that passes with time only. A
//! reply that breaks off is tried for a number of times. Each wait has a floor, above it is jitter, and a
//! server that says how long to wait is obeyed, unless that is less: a wait that the call has no time for ends it at once, and
//! the error names the moment.
//!
//! Guaranteed: the time of a whole call is bounded.

use std::future::Future;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::notice::Notices;
use super::page;
use crate::call_state::RequestCost;
use crate::error::LlmError;

/// The reason of a try that brought no part of a reply in time.
pub(super) const NO_FIRST_BYTE: &str = "first_byte_timeout";

/// The longest wait for which a call continues only because it has tries left.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Why one try gave no reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another try is of no use.
    Final(LlmError),
    /// Worth another try.
    Retry {
        /// What was wrong.
        trouble: Trouble,
        /// A fixed word for the metric and the log, never text of the server.
        reason: &'static str,
        /// What happened, for the error that the caller sees.
        detail: String,
        /// The wait that the server asked for.
        after: Option<Duration>,
    },
}

/// Why another try makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The server is away, overloaded or loading.
    Away,
    /// The server limits the rate.
    Limited,
    /// The connection ended without an answer, perhaps after the request was sent.
    Dropped,
    /// No server was reached at an address that has not replied before.
    Absent,
    /// Its reply broke off or did not come, and may have been paid for.
    Reply,
    /// It did not answer, and nothing shows that it works on a reply.
    Silent,
}

impl Trouble {
    /// What the server does, for people.
    fn of_server(self) -> &'static str {
        match self {
            Self::Limited => "limits the rate",
            Self::Away | Self::Dropped | Self::Absent | Self::Reply | Self::Silent => {
                "is not available"
            }
        }
    }
}

impl Failure {
    /// What this means at an address that has replied as a model API before: a web page there, or another certificate, is
    /// shown during maintenance, or by a proxy whose server is away.
    pub(crate) fn at_proven_address(self) -> Self {
        let away = |reason, detail| Self::Retry {
            trouble: Trouble::Away,
            reason,
            detail,
            after: None,
        };
        let detail = match self {
            Self::Final(LlmError::NoTls { why, hint: _ }) => return away("connect", why),
            Self::Retry {
                trouble: Trouble::Absent,
                reason,
                detail,
                after: _,
            } => return away(reason, detail),
            Self::Final(LlmError::NotAnApi(page)) => page,
            Self::Final(LlmError::NotFound { status, body }) => match page::described(&body) {
                Some(page) => format!("{page} (status {status})"),
                // A model API says in JSON that it has no such model. A proxy whose server is away does not.
                None if status == 404 && !body.starts_with(['{', '[']) => {
                    format!("status {status} ({body})")
                }
                None => return Self::Final(LlmError::NotFound { status, body }),
            },
            other => return other,
        };
        away("page", format!("{detail} instead of a reply"))
    }

    /// The same failure, counted as a reply that came too late: the server may still be working on it and may charge for it.
    pub(crate) fn of_late_reply(self) -> Self {
        match self {
            Self::Retry {
                trouble: _,
                reason,
                detail,
                after,
            } => Self::Retry {
                trouble: Trouble::Reply,
                reason,
                detail,
                after,
            },
            Self::Final(error) => Self::Final(error),
        }
    }

    /// What the request may have cost.
    pub(crate) fn cost(&self) -> RequestCost {
        match self {
            Self::Retry { trouble, .. } => match trouble {
                Trouble::Reply => RequestCost::Reply,
                Trouble::Silent | Trouble::Dropped => RequestCost::Unknown,
                Trouble::Away | Trouble::Limited | Trouble::Absent => RequestCost::Nothing,
            },
            // The server replied with something.
            Self::Final(LlmError::Protocol(_)) => RequestCost::Reply,
            Self::Final(_) => RequestCost::Nothing,
        }
    }

    /// A reply that is worth another try, for which the server asked for no wait.
    pub(crate) fn retry(reason: &'static str, detail: impl Into<String>) -> Self {
        Self::Retry {
            trouble: Trouble::Reply,
            reason,
            detail: detail.into(),
            after: None,
        }
    }
}

/// How often and how long to try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPolicy {
    /// Tries, the first included. 0 counts as 1.
    pub(crate) max_tries: u32,
    /// How long a server that is away is tried, however many tries that takes.
    pub(crate) away: Duration,
    /// The same for an address where no server was ever reached, if it is less.
    pub(crate) absent: Option<Duration>,
    /// The widest wait before the second try.
    pub(crate) base: Duration,
    /// The widest wait before any try.
    pub(crate) cap: Duration,
    /// Tries and waits together.
    pub(crate) total: Duration,
}

impl RetryPolicy {
    /// How long to wait after the failure of try number `tried` (from 1). `jitter` is in 0..=1.
    fn delay(&self, tried: u32, after: Option<Duration>, jitter: f64) -> Duration {
        let widest = self
            .base
            .saturating_mul(2u32.saturating_pow(tried.saturating_sub(1)))
            .min(self.cap);
        let jitter = jitter.clamp(0.0, 1.0);
        match after {
            // The jitter comes on top of what the server asked for, since it asked everybody the same. A server that asks for
            // less than we would wait asks everybody to come back at once.
            Some(asked) if asked > widest / 2 => asked.saturating_add(self.base.mul_f64(jitter)),
            Some(_) | None => widest / 2 + (widest / 2).mul_f64(jitter),
        }
    }

    /// Whether a call that has taken `elapsed` waits for another try. `tried` counts the tries that ended
    /// like the last one.
    fn continues(&self, trouble: Trouble, tried: u32, elapsed: Duration, delay: Duration) -> bool {
        let has_tries = tried < self.max_tries;
        let time = match trouble {
            Trouble::Reply | Trouble::Silent => return has_tries,
            Trouble::Away | Trouble::Dropped | Trouble::Limited => self.away,
            Trouble::Absent => self.away.min(self.absent.unwrap_or(self.away)),
        };
        elapsed.saturating_add(delay) <= time || (has_tries && delay <= MAX_RETRY_AFTER + self.base)
    }

    /// Calls `attempt` with the number of the try until it succeeds, fails for good, or the tries or
    /// the time are over.
    pub(crate) async fn run<T, F, Fut>(
        &self,
        notices: &Notices<'_>,
        mut attempt: F,
    ) -> Result<T, LlmError>
    where
        F: FnMut(u32) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let begun = tokio::time::Instant::now();
        let deadline = begun + self.total;
        let mut last = (String::from("no response in time"), None);
        let (mut tried, mut broken) = (0, 0);
        loop {
            tried += 1;
            let gave_up =
                |(detail, until): (String, Option<DateTime<Utc>>)| LlmError::Unavailable {
                    tries: tried,
                    detail: format!("{detail} (gave up after {} s)", begun.elapsed().as_secs()),
                    until,
                };
            let (trouble, reason, detail, after) =
                match tokio::time::timeout_at(deadline, attempt(tried)).await {
                    Ok(Ok(value)) => return Ok(value),
                    Ok(Err(Failure::Final(error))) => return Err(error),
                    Ok(Err(Failure::Retry {
                        trouble,
                        reason,
                        detail,
                        after,
                    })) => (trouble, reason, detail, after),
                    Err(_) => return Err(gave_up(last)),
                };
            broken += u32::from(matches!(trouble, Trouble::Reply | Trouble::Silent));
            let alike = match trouble {
                Trouble::Away | Trouble::Dropped | Trouble::Limited | Trouble::Absent => tried,
                Trouble::Reply | Trouble::Silent => broken,
            };
            let delay = self.delay(alike, after, rand::random_range(0.0..=1.0));
            let elapsed = begun.elapsed();
            last = (detail, after.and_then(in_the_future));
            if !self.continues(trouble, alike, elapsed, delay) || elapsed + delay >= self.total {
                return Err(gave_up(last));
            }
            metrics::counter!("agentmine_llm_retries_total", "reason" => reason).increment(1);
            notices.retry(trouble.of_server(), &last.0, delay);
            tokio::time::sleep(delay).await;
        }
    }
}

/// When a wait that begins now ends; `None` if it is longer than a date can hold.
fn in_the_future(wait: Duration) -> Option<DateTime<Utc>> {
    let wait = chrono::TimeDelta::from_std(wait).ok()?;
    Utc::now().checked_add_signed(wait)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        max_tries: 4,
        away: Duration::from_secs(60),
        absent: Some(Duration::from_secs(20)),
        base: Duration::from_secs(1),
        cap: Duration::from_secs(8),
        total: Duration::from_secs(600),
    };

    fn quiet() -> &'static Notices<'static> {
        Box::leak(Box::new(Notices::new("h", Duration::from_secs(60), None)))
    }

    fn away(after: Option<u64>) -> Failure {
        Failure::Retry {
            trouble: Trouble::Away,
            reason: "status",
            detail: "busy".into(),
            after: after.map(Duration::from_secs),
        }
    }

    #[test]
    fn a_proxy_whose_server_is_away_answers_404_without_json() {
        for (body, is_away) in [
            ("404 page not found", true),
            ("(empty body)", true),
            ("default backend - 404", true),
            (
                r#"{"error":{"message":"The model `m` does not exist"}}"#,
                false,
            ),
        ] {
            let failure = Failure::Final(LlmError::NotFound {
                status: 404,
                body: body.into(),
            });
            let seen = matches!(failure.at_proven_address(), Failure::Retry { .. });
            assert_eq!(seen, is_away, "{body}");
        }
    }

    #[test]
    fn an_address_that_has_replied_is_waited_for_whatever_its_connection_shows() {
        for failure in [
            Failure::Final(LlmError::NoTls {
                why: "UnknownIssuer".into(),
                hint: "check it",
            }),
            Failure::Retry {
                trouble: Trouble::Absent,
                reason: "connect",
                detail: "refused".into(),
                after: None,
            },
        ] {
            let seen = failure.at_proven_address();
            let is_away = matches!(
                seen,
                Failure::Retry {
                    trouble: Trouble::Away,
                    reason: "connect",
                    ..
                }
            );
            assert!(is_away, "{seen:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_never_reached_is_tried_for_its_own_time() {
        let begun = tokio::time::Instant::now();
        let failed = POLICY.run(quiet(), async |_| {
            Err::<(), _>(Failure::Retry {
                trouble: Trouble::Absent,
                reason: "connect",
                detail: "refused".into(),
                after: None,
            })
        });
        failed.await.unwrap_err();
        let seconds = begun.elapsed().as_secs();
        assert!((10..=20).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_wait_has_a_floor_and_jitter_above_it_and_doubles_up_to_the_cap() {
        let ms = |tried, jitter| POLICY.delay(tried, None, jitter).as_millis();
        assert_eq!((ms(1, 0.0), ms(1, 1.0)), (500, 1000));
        assert_eq!((ms(3, 0.0), ms(3, 0.5), ms(3, 1.0)), (2000, 3000, 4000));
        assert_eq!((ms(30, 0.0), ms(30, 1.0)), (4000, 8000));
        let asked = |seconds| POLICY.delay(1, Some(Duration::from_secs(seconds)), 0.0);
        assert_eq!(asked(7), Duration::from_secs(7));
        assert_eq!(asked(0), Duration::from_millis(500));
        // A server that asks for less than that is not asked again at once, however often it does.
        let little = |tried| POLICY.delay(tried, Some(Duration::from_millis(120)), 0.5);
        assert_eq!(little(3), POLICY.delay(3, None, 0.5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_for_less_than_the_time_is_waited_for() {
        let begun = tokio::time::Instant::now();
        let done = POLICY.run(quiet(), async |tried| match begun.elapsed().as_secs() {
            0..49 => Err(away(None)),
            _ => Ok(tried),
        });
        let tried = done.await.unwrap();
        assert!(tried > POLICY.max_tries, "{tried}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stays_away_is_tried_for_the_time_and_no_longer() {
        let begun = tokio::time::Instant::now();
        let failed = POLICY.run(quiet(), async |_| Err::<(), _>(away(None)));
        let error = failed.await.unwrap_err();
        let seconds = begun.elapsed().as_secs();
        assert!((52..=60).contains(&seconds), "{seconds}");
        let text = format!("busy (gave up after {seconds} s)");
        assert!(error.to_string().contains(&text), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_asks_for_is_obeyed() {
        let begun = tokio::time::Instant::now();
        let times = RefCell::new(Vec::new());
        let done = POLICY.run(quiet(), async |tried| {
            times.borrow_mut().push(begun.elapsed().as_secs());
            match tried {
                3 => Ok(tried),
                _ => Err(away(Some(20))),
            }
        });
        assert_eq!(done.await.unwrap(), 3);
        let times = times.into_inner();
        assert_eq!(times[0], 0);
        assert!((20..=21).contains(&times[1]), "{times:?}");
        assert!((40..=42).contains(&times[2]), "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_takes_too_long_ends_the_call_and_its_end_is_named() {
        let begun = tokio::time::Instant::now();
        let failed = POLICY.run(quiet(), async |_| Err::<(), _>(away(Some(900))));
        let error = failed.await.unwrap_err();
        let LlmError::Unavailable { until, tries, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((tries, begun.elapsed().as_secs()), (1, 0));
        let wait = until.unwrap() - Utc::now();
        assert!((890..=900).contains(&wait.num_seconds()), "{wait}");
        let failed = POLICY.run(quiet(), async |_| Err::<(), _>(away(Some(u64::MAX))));
        let error = failed.await.unwrap_err();
        assert!(matches!(error, LlmError::Unavailable { until: None, .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn replies_that_break_off_are_counted_and_the_last_failure_is_reported() {
        let failed = POLICY.run(quiet(), async |tried| {
            Err::<(), _>(Failure::retry("broken", format!("failure {tried}")))
        });
        let error = failed.await.unwrap_err().to_string();
        assert!(
            error.starts_with("the model API is unavailable after 4 tries: failure 4"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_as_a_whole_is_bounded() {
        let start = tokio::time::Instant::now();
        let error = POLICY
            .run(quiet(), async |_| {
                std::future::pending::<Result<(), Failure>>().await
            })
            .await
            .unwrap_err();
        assert!(matches!(error, LlmError::Unavailable { tries: 1, .. }));
        assert_eq!(start.elapsed(), POLICY.total);
    }

    #[tokio::test(start_paused = true)]
    async fn a_final_failure_is_not_tried_again() {
        let tries = RefCell::new(0);
        let error = POLICY
            .run(quiet(), async |_| {
                *tries.borrow_mut() += 1;
                Err::<(), _>(Failure::Final(LlmError::Protocol("odd".into())))
            })
            .await
            .unwrap_err();
        assert!(matches!(error, LlmError::Protocol(_)));
        assert_eq!(tries.into_inner(), 1);
    }
}
