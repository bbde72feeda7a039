//! Requests to a forge, and what is left of its rate limit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use agentmine_domain::TrackerKind;
use chrono::{DateTime, Utc};

use super::rate_limit::{Bucket, Holder};
use super::transport::Outcome;

const REQUESTS: &str = "agentmine_tracker_requests_total";
const REMAINING: &str = "agentmine_tracker_rate_limit_remaining";
/// The outcomes of requests.
const OUTCOMES: [&str; 4] = ["ok", "limited", "denied", "failed"];

/// Describes them, and makes the series of a forge exist. How much is left is known with the first reply.
pub(super) fn describe(tracker: TrackerKind) {
    metrics::describe_counter!(REQUESTS, "Requests to trackers, by outcome.");
    metrics::describe_gauge!(
        REMAINING,
        "Requests that the tracker still allows in the window of its rate limit, as it reports; for an App, of the installation with the fewest left."
    );
    for outcome in OUTCOMES {
        metrics::counter!(REQUESTS, "tracker" => tracker.as_str(), "outcome" => outcome)
            .increment(0);
    }
}

/// Counts a request.
pub(super) fn count(tracker: TrackerKind, outcome: &Outcome) {
    let outcome = match outcome {
        Outcome::Reply(_) => OUTCOMES[0],
        Outcome::Limited(_) => OUTCOMES[1],
        Outcome::Denied(_) | Outcome::TooLarge(_) => OUTCOMES[2],
        Outcome::Failed(..) => OUTCOMES[3],
        // Nothing was sent.
        Outcome::NoToken(_) => return,
    };
    let tracker = tracker.as_str();
    metrics::counter!(REQUESTS, "tracker" => tracker, "outcome" => outcome).increment(1);
}

/// Shows what is left of a window. Each host has its own limit.
pub(super) fn show((tracker, host): (TrackerKind, &str), bucket: Bucket, remaining: i64) {
    let window = match bucket {
        Bucket::General => "general",
        Bucket::Own(prefix) => prefix,
    };
    let (tracker, host) = (tracker.as_str(), host.to_owned());
    metrics::gauge!(REMAINING, "tracker" => tracker, "host" => host, "window" => window)
        .set(remaining as f64);
}

/// What is left of the windows of all holders. An App may have thousands of installations, so they are no label of the
/// metric: it shows the one with the fewest requests left.
#[derive(Debug, Default)]
pub(super) struct Remaining(Mutex<HashMap<(Bucket, Holder), Left>>);

/// How many requests are left, and until when that counts.
type Left = (i64, DateTime<Utc>);

impl Remaining {
    /// Takes note of what a reply says of a holder's window, and returns the lowest of all whose windows have not begun again.
    pub(super) fn lowest(
        &self,
        holder: Holder,
        bucket: Bucket,
        remaining: Left,
        now: DateTime<Utc>,
    ) -> i64 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((bucket, holder), remaining);
        known.retain(|key, (_, until)| *until > now || *key == (bucket, holder));
        let same = known.iter().filter(|((of, _), _)| *of == bucket);
        same.map(|(_, (left, _))| *left)
            .min()
            .unwrap_or(remaining.0)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn the_installation_with_the_fewest_requests_left_is_shown_until_its_window_begins_anew() {
        let (remaining, now) = (Remaining::default(), Utc::now());
        let (one, other) = (Holder::Installation(1), Holder::Installation(2));
        let (soon, late) = (now + TimeDelta::seconds(5), now + TimeDelta::hours(1));
        let general = |holder, left, until, now| {
            remaining.lowest(holder, Bucket::General, (left, until), now)
        };
        assert_eq!(general(one, 3, soon, now), 3);
        assert_eq!(general(other, 4999, late, now), 3);
        assert_eq!(general(one, 2, soon, now), 2);
        let search = Bucket::Own("search/");
        assert_eq!(remaining.lowest(other, search, (30, late), now), 30);
        assert_eq!(general(other, 4998, late, soon), 4998);
        assert_eq!(general(one, 5000, late, soon), 4998);
    }
}
