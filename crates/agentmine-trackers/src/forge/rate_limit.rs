//! Rate limits: what a refused reply says of them, and until when this process then sends nothing.
//!
//! `Retry-After` counts first (a number or a date), then the reset of an exhausted window, else a
//! minute. A part of an API with a window of its own (GitHub's search) has its own gate; any other
//! limit closes all of them. Gates are not shared between processes: each learns of a limit by its own
//! refused request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use http::{HeaderMap, StatusCode, header};

/// The wait if a reply names no time. GitHub asks for at least a minute.
const DEFAULT_WAIT: TimeDelta = TimeDelta::minutes(1);
/// No reply closes a gate for longer: a wrong clock or header must not stop a fleet for good.
const LONGEST_WAIT: TimeDelta = TimeDelta::hours(2);

/// How a forge announces its limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitRules {
    /// The prefix of its headers for `remaining` and `reset`, in lower case.
    pub(crate) header_prefix: &'static str,
    /// Phrases in the body of a 403 that mean a limit, in lower case. A 429 needs none.
    pub(crate) phrases: &'static [&'static str],
}

/// Which of a forge's windows a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Bucket {
    /// The API's common one.
    General,
    /// The one of all addresses with this path prefix below the base.
    Own(&'static str),
}

/// For which requests a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// For those of the refused request's bucket.
    Bucket,
    /// For every request.
    Everything,
}

/// A limit that a reply announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) until: DateTime<Utc>,
    pub(crate) scope: Scope,
}

impl LimitRules {
    /// Reads a limit from a refused reply; `None` if it was refused for another reason.
    pub(crate) fn read(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        now: DateTime<Utc>,
    ) -> Option<Limited> {
        if status != StatusCode::FORBIDDEN && status != StatusCode::TOO_MANY_REQUESTS {
            return None;
        }
        let in_headers = self.in_headers(headers, now);
        if in_headers.is_some() {
            return in_headers;
        }
        let text = String::from_utf8_lossy(body);
        (status == StatusCode::TOO_MANY_REQUESTS || self.is_announced(&text))
            .then(|| default_limit(now))
    }

    /// The limit of a reply that is known to announce one, whatever its status is.
    pub(crate) fn announced(&self, headers: &HeaderMap, now: DateTime<Utc>) -> Limited {
        let in_headers = self.in_headers(headers, now);
        in_headers.unwrap_or_else(|| default_limit(now))
    }

    /// Whether the text of a refusal means a limit.
    pub(crate) fn is_announced(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.phrases.iter().any(|phrase| text.contains(phrase))
    }

    fn in_headers(&self, headers: &HeaderMap, now: DateTime<Utc>) -> Option<Limited> {
        if let Some(until) = retry_after(headers, now) {
            let scope = Scope::Everything;
            return Some(Limited { until, scope });
        }
        if self.number(headers, "remaining") != Some(0) {
            return None;
        }
        // The reset is a time by the server's clock, and so is its `Date`.
        let here = date(headers, header::DATE).unwrap_or(now).timestamp();
        let reset = self.number(headers, "reset").unwrap_or(here + 60);
        Some(Limited {
            until: at(now, reset.saturating_sub(here).saturating_add(1)),
            scope: Scope::Bucket,
        })
    }

    /// How many requests the server still allows in the window, if it says so.
    pub(super) fn remaining(&self, headers: &HeaderMap) -> Option<i64> {
        self.number(headers, "remaining")
    }

    fn number(&self, headers: &HeaderMap, name: &str) -> Option<i64> {
        let value = headers.get(format!("{}{name}", self.header_prefix))?;
        value.to_str().ok()?.trim().parse().ok()
    }
}

/// The limit of a reply that names no time.
fn default_limit(now: DateTime<Utc>) -> Limited {
    Limited {
        until: now + DEFAULT_WAIT,
        scope: Scope::Everything,
    }
}

/// What `Retry-After` asks for, on any reply.
pub(crate) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(at(now, seconds));
    }
    let date = date(headers, header::RETRY_AFTER)?;
    Some(at(now, (date - now).num_seconds()))
}

fn at(now: DateTime<Utc>, seconds: i64) -> DateTime<Utc> {
    let wait = TimeDelta::try_seconds(seconds.max(0)).unwrap_or(LONGEST_WAIT);
    now + wait.min(LONGEST_WAIT)
}

fn date(headers: &HeaderMap, name: header::HeaderName) -> Option<DateTime<Utc>> {
    let text = headers.get(name)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok().map(DateTime::from)
}

/// Until when no request is sent.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<Closed>);

#[derive(Debug, Default)]
struct Closed {
    all: Option<DateTime<Utc>>,
    buckets: HashMap<Bucket, DateTime<Utc>>,
}

impl Gates {
    /// Closes a bucket or all of them. A gate never opens earlier than it was said to before.
    pub(crate) fn close(&self, bucket: Bucket, limited: Limited) {
        let mut closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match limited.scope {
            Scope::Everything => closed.all = closed.all.max(Some(limited.until)),
            Scope::Bucket => {
                let until = closed.buckets.entry(bucket).or_insert(limited.until);
                *until = limited.until.max(*until);
            }
        }
    }

    /// When this bucket opens; `None` if it is open.
    pub(crate) fn closed(&self, bucket: Bucket, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = closed.all.max(closed.buckets.get(&bucket).copied())?;
        (until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone;

    use super::*;

    const GITHUB: LimitRules = LimitRules {
        header_prefix: "x-ratelimit-",
        phrases: &["secondary rate limit"],
    };

    fn now() -> DateTime<Utc> {
        Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).unwrap()
    }

    fn read_with(
        rules: LimitRules,
        status: u16,
        pairs: &[(&'static str, &str)],
        body: &str,
    ) -> Option<Limited> {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let status = StatusCode::from_u16(status).unwrap();
        rules.read(status, &headers, body.as_bytes(), now())
    }

    fn read(status: u16, pairs: &[(&'static str, &str)], body: &str) -> Option<Limited> {
        read_with(GITHUB, status, pairs, body)
    }

    fn limited(seconds: i64, scope: Scope) -> Option<Limited> {
        Some(Limited {
            until: now() + TimeDelta::seconds(seconds),
            scope,
        })
    }

    #[test]
    fn limits_are_read_from_headers_and_phrases() {
        let (bucket, all) = (Scope::Bucket, Scope::Everything);
        assert_eq!(read(200, &[("retry-after", "5")], ""), None);
        assert_eq!(
            read(403, &[("x-ratelimit-remaining", "12")], "not accessible"),
            None
        );
        assert_eq!(read(429, &[("retry-after", "5")], ""), limited(5, all));
        assert_eq!(read(429, &[], ""), limited(60, all));
        assert_eq!(
            read(403, &[], "You have exceeded a SECONDARY rate limit."),
            limited(60, all)
        );
        let date = [("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT")];
        assert_eq!(read(403, &date, ""), limited(30, all));
        // The server's clock is two minutes ahead of ours: the wait is what counts.
        let reset = (now().timestamp() + 130).to_string();
        let pairs = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", reset.as_str()),
            ("date", "Thu, 01 Jan 2026 00:02:00 GMT"),
        ];
        assert_eq!(read(403, &pairs, ""), limited(11, bucket));
        // A number out of any range neither closes a gate for good nor overflows.
        let forever = i64::MAX.to_string();
        assert_eq!(
            read(429, &[("retry-after", &forever)], ""),
            limited(7200, all)
        );
        let pairs = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", forever.as_str()),
        ];
        assert_eq!(read(403, &pairs, ""), limited(7200, bucket));
    }

    /// GitLab's headers have no prefix, and its 429 may be plain text with no header at all.
    #[test]
    fn another_forges_headers_are_a_matter_of_their_prefix() {
        let gitlab = LimitRules {
            header_prefix: "ratelimit-",
            phrases: &[],
        };
        let reset = (now().timestamp() + 9).to_string();
        let pairs = [
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", reset.as_str()),
        ];
        assert_eq!(
            read_with(gitlab, 429, &pairs, ""),
            limited(10, Scope::Bucket)
        );
        assert_eq!(
            read_with(gitlab, 429, &[], "Retry later\n"),
            limited(60, Scope::Everything)
        );
        assert_eq!(read_with(gitlab, 403, &[], "403 Forbidden"), None);
    }

    #[test]
    fn a_gate_closes_its_own_bucket_or_all() {
        let (gates, search) = (Gates::default(), Bucket::Own("search/"));
        let (soon, late) = (now() + TimeDelta::seconds(1), now() + TimeDelta::seconds(9));
        let close = |until, scope| gates.close(search, Limited { until, scope });
        close(late, Scope::Bucket);
        close(soon, Scope::Bucket);
        assert_eq!(gates.closed(search, now()), Some(late));
        assert_eq!(gates.closed(Bucket::General, now()), None);
        close(soon, Scope::Everything);
        assert_eq!(gates.closed(Bucket::General, now()), Some(soon));
        assert_eq!(gates.closed(search, now()), Some(late));
        assert_eq!(gates.closed(search, late), None);
    }
}
