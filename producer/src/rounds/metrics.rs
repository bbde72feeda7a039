//! Rounds that began, and why no further ones are made.

use agentmine_domain::RoundCause;

const NAME: &str = "agentmine_rounds_total";

/// What begins rounds.
const BEGINNINGS: [&str; 4] = ["requests", "checks", "conflict", "several"];

/// What ends them: see [`super::ends`]; then what becomes of pull requests.
pub(super) const ENDS: [&str; 11] = [
    "failed",
    "stopped",
    "limit",
    "red_base",
    "same_conflict",
    "same_failure",
    "pushed",
    "removed",
    "merged",
    "closed",
    "gone",
];

/// Describes the metric and sets it to what it is before the first round.
pub(crate) fn describe_metrics() {
    metrics::describe_counter!(
        NAME,
        "Rounds on pull requests of AgentMine that began, by what asked for them, and pull requests on which they ended, by why."
    );
    for (event, reasons) in [("begun", &BEGINNINGS[..]), ("ended", &ENDS[..])] {
        for reason in reasons {
            metrics::counter!(NAME, "event" => event, "reason" => *reason).increment(0);
        }
    }
}

pub(super) fn count_begun(cause: &RoundCause) {
    let causes = [
        (!cause.requests.is_empty()).then_some("requests"),
        (!cause.checks.is_empty()).then_some("checks"),
        cause.conflict.then_some("conflict"),
    ];
    let mut causes = causes.into_iter().flatten();
    let reason = match (causes.next(), causes.next()) {
        (Some(only), None) => only,
        (Some(_) | None, _) => "several",
    };
    metrics::counter!(NAME, "event" => "begun", "reason" => reason).increment(1);
}

pub(super) fn count_ended(reason: &'static str) {
    metrics::counter!(NAME, "event" => "ended", "reason" => reason).increment(1);
}
