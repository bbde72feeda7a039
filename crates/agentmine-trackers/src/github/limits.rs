//! GitHub's rate limits: what a reply says of them, and how long this process then stays away.
//!
//! The rules are those of GitHub's "Best practices for using the REST API": `Retry-After` first,
//! then `x-ratelimit-reset` where nothing remains, else at least a minute. Search has a limit of
//! its own, so one gate stands for each; a secondary limit closes both. Gates are not shared
//! between processes: each learns of a limit by its own refused request.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use http::{HeaderMap, StatusCode};

/// Which of GitHub's limits a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bucket {
    Core,
    Search,
}

/// Until when a refused request asks to wait, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) until: DateTime<Utc>,
    /// A secondary limit holds for every request, not for one bucket.
    pub(super) secondary: bool,
}

/// What GitHub asks for when it names no time.
const SECONDARY_WAIT: TimeDelta = TimeDelta::minutes(1);
/// No reply may close a gate for longer: a wrong clock or header must not stop a fleet for good.
const LONGEST_WAIT: TimeDelta = TimeDelta::hours(2);

/// Reads a limit out of a refused reply; `None` if it was refused for another reason.
pub(super) fn read(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: DateTime<Utc>,
) -> Option<Limited> {
    if status != StatusCode::FORBIDDEN && status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let at = |seconds: i64, secondary| {
        let wait = TimeDelta::try_seconds(seconds.max(0)).unwrap_or(LONGEST_WAIT);
        Limited {
            until: now + wait.min(LONGEST_WAIT),
            secondary,
        }
    };
    if let Some(seconds) = number("retry-after") {
        return Some(at(seconds, true));
    }
    if let Some(date) = date(headers, "retry-after") {
        return Some(at((date - now).num_seconds(), true));
    }
    if number("x-ratelimit-remaining") == Some(0) {
        // The reset is a time by the server's clock; so is its `Date`.
        let here = date(headers, "date").unwrap_or(now).timestamp();
        let reset = number("x-ratelimit-reset").unwrap_or(here + 60);
        return Some(at(reset.saturating_sub(here).saturating_add(1), false));
    }
    let text = String::from_utf8_lossy(body).to_lowercase();
    if status == StatusCode::TOO_MANY_REQUESTS
        || text.contains("secondary rate limit")
        || text.contains("abuse detection")
    {
        return Some(at(SECONDARY_WAIT.num_seconds(), true));
    }
    None
}

fn date(headers: &HeaderMap, name: &str) -> Option<DateTime<Utc>> {
    let text = headers.get(name)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok().map(DateTime::from)
}

/// Until when each bucket is closed.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<[Option<DateTime<Utc>>; 2]>);

impl Gates {
    /// Closes a gate, or both; a gate is never opened earlier than it said before.
    pub(super) fn close(&self, bucket: Bucket, limited: Limited) {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, of) in gates.iter_mut().zip([Bucket::Core, Bucket::Search]) {
            if limited.secondary || of == bucket {
                *slot = (*slot).max(Some(limited.until));
            }
        }
    }

    /// How long this bucket stays closed, and until when; `None` if it is open.
    pub(super) fn closed(
        &self,
        bucket: Bucket,
        now: DateTime<Utc>,
    ) -> Option<(Duration, DateTime<Utc>)> {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = match bucket {
            Bucket::Core => gates[0],
            Bucket::Search => gates[1],
        }?;
        let wait = (until - now).to_std().ok()?;
        (!wait.is_zero()).then_some((wait, until))
    }
}
