//! Rate limits: what a refused reply says of them, and until when this process then sends nothing.
//!
//! `Retry-After` counts first (a number or a date), then the reset of an exhausted window, else a
//! minute. Each installation of a GitHub App has its own limits ("Rate limits for GitHub Apps"), and so has a part of
//! an API with its own window (GitHub's search). An exhausted window closes that gate alone. Any other limit closes
//! all gates of its holder: GitHub's secondary limits are shared by REST and GraphQL. GitHub does not say whether they
//! hold for other installations of the App too, so each of these learns of it by one refused request at most, which
//! closes its own gates. Gates are not shared between processes: each learns of a limit by its own refused request.

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

/// Whose limits a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// Those of the only token.
    Token,
    /// Those of a GitHub App, which asks for tokens.
    App,
    /// Those of an installation of a GitHub App.
    Installation(u64),
}

/// For which requests a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// For those of the refused request's holder and bucket.
    Bucket,
    /// For every request of the holder.
    Holder,
    /// For those of the bucket, no matter who the holder is: the server itself is away.
    Server,
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
        let is_exhausted = self.number(headers, "remaining") == Some(0);
        let scope = match is_exhausted {
            true => Scope::Bucket,
            false => Scope::Holder,
        };
        if let Some(until) = retry_after(headers, now) {
            return Some(Limited { until, scope });
        }
        let reset = || self.reset(headers, now).unwrap_or(now + DEFAULT_WAIT);
        is_exhausted.then(|| Limited {
            until: reset(),
            scope,
        })
    }

    /// When the window begins again, if the server says so.
    fn reset(&self, headers: &HeaderMap, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        // It is a time by the server's clock, and so is its `Date`.
        let here = date(headers, header::DATE).unwrap_or(now).timestamp();
        let reset = self.number(headers, "reset")?;
        Some(at(now, reset.saturating_sub(here).saturating_add(1)))
    }

    /// How many requests the server still allows in the window, and until when that counts, if it says so.
    pub(super) fn remaining(
        &self,
        headers: &HeaderMap,
        now: DateTime<Utc>,
    ) -> Option<(i64, DateTime<Utc>)> {
        let until = self.reset(headers, now).unwrap_or(now + LONGEST_WAIT);
        Some((self.number(headers, "remaining")?, until))
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
        scope: Scope::Holder,
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
    servers: HashMap<Bucket, DateTime<Utc>>,
    holders: HashMap<Holder, DateTime<Utc>>,
    buckets: HashMap<(Holder, Bucket), DateTime<Utc>>,
}

impl Gates {
    /// Closes what the limit of a refused request holds for. A gate never opens earlier than it was said to before.
    pub(crate) fn close(&self, holder: Holder, bucket: Bucket, limited: Limited) {
        let mut closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = match limited.scope {
            Scope::Server => closed.servers.entry(bucket).or_insert(limited.until),
            Scope::Holder => closed.holders.entry(holder).or_insert(limited.until),
            Scope::Bucket => {
                let key = (holder, bucket);
                closed.buckets.entry(key).or_insert(limited.until)
            }
        };
        *until = limited.until.max(*until);
    }

    /// When this bucket of a holder opens; `None` if it is open.
    pub(crate) fn closed(
        &self,
        holder: Holder,
        bucket: Bucket,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gates = [
            closed.servers.get(&bucket),
            closed.holders.get(&holder),
            closed.buckets.get(&(holder, bucket)),
        ];
        let until = gates.into_iter().flatten().copied().max()?;
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
        let (bucket, all) = (Scope::Bucket, Scope::Holder);
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
        // The server's clock is two minutes ahead of this machine's: the wait is what counts.
        let reset = (now().timestamp() + 130).to_string();
        let pairs = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", reset.as_str()),
            ("date", "Thu, 01 Jan 2026 00:02:00 GMT"),
        ];
        assert_eq!(read(403, &pairs, ""), limited(11, bucket));
        // What is exhausted is the window, also where the reply says how long to wait.
        let pairs = [("x-ratelimit-remaining", "0"), ("retry-after", "5")];
        assert_eq!(read(403, &pairs, ""), limited(5, bucket));
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
            limited(60, Scope::Holder)
        );
        assert_eq!(read_with(gitlab, 403, &[], "403 Forbidden"), None);
    }

    #[test]
    fn a_gate_closes_its_own_bucket_or_all_of_its_holder_or_of_the_server() {
        let (gates, search) = (Gates::default(), Bucket::Own("search/"));
        let (one, other) = (Holder::Installation(1), Holder::Installation(2));
        let (soon, late) = (now() + TimeDelta::seconds(1), now() + TimeDelta::seconds(9));
        let close = |until, scope| gates.close(one, search, Limited { until, scope });
        close(late, Scope::Bucket);
        close(soon, Scope::Bucket);
        assert_eq!(gates.closed(one, search, now()), Some(late));
        assert_eq!(gates.closed(one, Bucket::General, now()), None);
        assert_eq!(gates.closed(other, search, now()), None);
        close(soon, Scope::Holder);
        assert_eq!(gates.closed(one, Bucket::General, now()), Some(soon));
        assert_eq!(gates.closed(other, Bucket::General, now()), None);
        assert_eq!(gates.closed(one, search, now()), Some(late));
        assert_eq!(gates.closed(one, search, late), None);
        close(soon, Scope::Server);
        assert_eq!(gates.closed(other, search, now()), Some(soon));
        assert_eq!(gates.closed(other, Bucket::General, now()), None);
    }
}
