//! Requests to a forge, and what is left of its rate limit.

use agentmine_domain::TrackerKind;

use super::rate_limit::Bucket;
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
        "Requests that the tracker still allows in the window of its rate limit, as it says."
    );
    for outcome in OUTCOMES {
        metrics::counter!(REQUESTS, "tracker" => tracker.as_str(), "outcome" => outcome)
            .increment(0);
    }
}

/// Counts a request to a host. `remaining` is what its reply says: each host has its own limit.
pub(super) fn count(
    (tracker, host): (TrackerKind, &str),
    bucket: Bucket,
    outcome: &Outcome,
    remaining: Option<i64>,
) {
    let outcome = match outcome {
        Outcome::Reply(_) => OUTCOMES[0],
        Outcome::Limited(_) => OUTCOMES[1],
        Outcome::Denied(_) => OUTCOMES[2],
        Outcome::Failed(..) => OUTCOMES[3],
    };
    let tracker = tracker.as_str();
    metrics::counter!(REQUESTS, "tracker" => tracker, "outcome" => outcome).increment(1);
    if let Some(remaining) = remaining {
        let window = match bucket {
            Bucket::General => "general",
            Bucket::Own(prefix) => prefix,
        };
        let host = host.to_owned();
        metrics::gauge!(REMAINING, "tracker" => tracker, "host" => host, "window" => window)
            .set(remaining as f64);
    }
}
