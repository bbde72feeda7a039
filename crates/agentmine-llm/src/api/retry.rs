//! The one layer of retries around a model API: full jitter, unless the server says how long to wait.
//!
//! Guaranteed: the number of tries and the time of a whole call are bounded.

use std::future::Future;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::error::LlmError;

/// A server that asks for a longer wait is asked again after this one.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Why one try gave no reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another try is of no use.
    Final(LlmError),
    /// Worth another try.
    Retry {
        /// A fixed word for the metric and the log, never text of the server.
        reason: &'static str,
        /// What happened, for the error that the caller sees.
        detail: String,
        /// The wait that the server asked for.
        after: Option<Duration>,
    },
}

impl Failure {
    /// A failure worth another try, for which the server asked for no wait.
    pub(crate) fn retry(reason: &'static str, detail: impl Into<String>) -> Self {
        Self::Retry {
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
        let jittered = widest.mul_f64(jitter.clamp(0.0, 1.0));
        // The jitter comes on top of what the server asked for, since it asked everybody the same.
        after.map_or(jittered, |asked| {
            asked.min(MAX_RETRY_AFTER) + jittered.min(self.base)
        })
    }

    /// Calls `attempt` with the number of the try until it succeeds, fails for good, or the tries or
    /// the time are over.
    pub(crate) async fn run<T, F, Fut>(&self, mut attempt: F) -> Result<T, LlmError>
    where
        F: FnMut(u32) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let deadline = tokio::time::Instant::now() + self.total;
        let mut last = (String::from("no response in time"), None);
        let mut tried = 0;
        loop {
            tried += 1;
            let out_of_time = |(detail, until): (String, Option<DateTime<Utc>>)| {
                let detail = format!("{detail} (gave up after {} s)", self.total.as_secs());
                LlmError::Unavailable {
                    tries: tried,
                    detail,
                    until,
                }
            };
            let (reason, detail, after) =
                match tokio::time::timeout_at(deadline, attempt(tried)).await {
                    Ok(Ok(value)) => return Ok(value),
                    Ok(Err(Failure::Final(error))) => return Err(error),
                    Ok(Err(Failure::Retry {
                        reason,
                        detail,
                        after,
                    })) => (reason, detail, after),
                    Err(_) => return Err(out_of_time(last)),
                };
            let until = after.and_then(in_the_future);
            if tried >= self.max_tries {
                return Err(LlmError::Unavailable {
                    tries: tried,
                    detail,
                    until,
                });
            }
            let delay = self.delay(tried, after, rand::random_range(0.0..=1.0));
            if tokio::time::Instant::now() + delay >= deadline {
                return Err(out_of_time((detail, until)));
            }
            metrics::counter!("agentmine_llm_retries_total", "reason" => reason).increment(1);
            tracing::warn!(
                reason,
                r#try = tried,
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "a model call failed and is tried again"
            );
            last = (detail, until);
            tokio::time::sleep(delay).await;
        }
    }
}

/// When a wait that begins now ends; `None` if it is longer than a date can hold.
fn in_the_future(wait: Duration) -> Option<DateTime<Utc>> {
    let wait = chrono::TimeDelta::from_std(wait).ok()?;
    Utc::now().checked_add_signed(wait)
}

/// What `Retry-After` asks for (RFC 9110 §10.2.3: seconds or a date), or the milliseconds that some
/// providers send beside it.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    if let Some(ms) = number("retry-after-ms") {
        return Duration::try_from_secs_f64(ms / 1e3).ok();
    }
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        max_tries: 4,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(8),
        total: Duration::from_secs(600),
    };

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut map = HeaderMap::new();
        map.insert(name, value.parse().unwrap());
        map
    }

    #[test]
    fn jitter_is_full_and_its_width_doubles_up_to_the_cap() {
        assert_eq!(POLICY.delay(1, None, 0.0), Duration::ZERO);
        assert_eq!(POLICY.delay(1, None, 1.0), Duration::from_secs(1));
        assert_eq!(POLICY.delay(3, None, 1.0), Duration::from_secs(4));
        assert_eq!(POLICY.delay(30, None, 1.0), Duration::from_secs(8));
        assert_eq!(POLICY.delay(3, None, 0.5), Duration::from_secs(2));
    }

    #[test]
    fn what_the_server_asks_for_is_waited_and_capped() {
        let asked = |s| Some(Duration::from_secs(s));
        assert_eq!(POLICY.delay(1, asked(7), 0.0), Duration::from_secs(7));
        assert_eq!(POLICY.delay(1, asked(86_400), 0.0), MAX_RETRY_AFTER);
    }

    #[test]
    fn retry_after_is_read_as_seconds_as_a_date_and_as_milliseconds() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let read = |name, value| retry_after(&headers(name, value), now);
        assert_eq!(read("retry-after", "3"), Some(Duration::from_secs(3)));
        assert_eq!(
            read("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"),
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            read("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(
            read("retry-after-ms", "250"),
            Some(Duration::from_millis(250))
        );
        for nonsense in ["soon", "-1", "NaN", "1e300"] {
            assert_eq!(read("retry-after", nonsense), None, "{nonsense}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_respected() {
        let start = tokio::time::Instant::now();
        let times = RefCell::new(Vec::new());
        let done = POLICY
            .run(async |tried| {
                times.borrow_mut().push(start.elapsed().as_secs());
                if tried < 3 {
                    return Err(Failure::Retry {
                        reason: "status",
                        detail: "busy".into(),
                        after: Some(Duration::from_secs(20)),
                    });
                }
                Ok(tried)
            })
            .await;
        assert_eq!(done.unwrap(), 3);
        let times = times.into_inner();
        assert_eq!(times[0], 0);
        assert!((20..=21).contains(&times[1]), "{times:?}");
        assert!((40..=42).contains(&times[2]), "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn giving_up_names_when_the_server_can_be_asked_again() {
        let busy = || Failure::Retry {
            reason: "status",
            detail: "busy".into(),
            after: Some(Duration::from_secs(900)),
        };
        let error = POLICY
            .run(async |_| Err::<(), _>(busy()))
            .await
            .unwrap_err();
        let LlmError::Unavailable { until, .. } = error else {
            panic!("{error}");
        };
        let wait = until.unwrap() - Utc::now();
        assert!((890..=900).contains(&wait.num_seconds()), "{wait}");
        let long = Failure::Retry {
            reason: "status",
            detail: "busy".into(),
            after: Some(Duration::MAX),
        };
        let long = std::cell::RefCell::new(Some(long));
        let once = RetryPolicy {
            max_tries: 1,
            ..POLICY
        };
        let failed = once.run(async |_| Err::<(), _>(long.take().unwrap()));
        let error = failed.await.unwrap_err();
        assert!(matches!(error, LlmError::Unavailable { until: None, .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn the_tries_are_counted_and_the_last_failure_is_reported() {
        let error = POLICY
            .run(async |tried| Err::<(), _>(Failure::retry("connect", format!("failure {tried}"))))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the model API is unavailable after 4 tries: failure 4"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_as_a_whole_is_bounded() {
        let start = tokio::time::Instant::now();
        let error = POLICY
            .run(async |_| std::future::pending::<Result<(), Failure>>().await)
            .await
            .unwrap_err();
        assert!(matches!(error, LlmError::Unavailable { tries: 1, .. }));
        assert_eq!(start.elapsed(), POLICY.total);
    }

    #[tokio::test(start_paused = true)]
    async fn a_final_failure_is_not_tried_again() {
        let tries = RefCell::new(0);
        let error = POLICY
            .run(async |_| {
                *tries.borrow_mut() += 1;
                Err::<(), _>(Failure::Final(LlmError::Protocol("odd".into())))
            })
            .await
            .unwrap_err();
        assert!(matches!(error, LlmError::Protocol(_)));
        assert_eq!(tries.into_inner(), 1);
    }
}
