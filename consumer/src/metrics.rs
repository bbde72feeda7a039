//! The consumer's metrics.

use agentmine_domain::Phase;
use agentmine_store::LeaseEnd;

use crate::prepare::clone::{CLONE_FAILURES, CLONES_FROM};
use crate::record::phase;
use crate::run::tools;
use crate::session::cause::Cause;

/// How an end of a session is named in `agentmine_session_results_total`.
const RESULTS: [&str; 7] = [
    "done",
    "partial",
    "failed",
    "stopped",
    "paused",
    "released",
    "handed_over",
];

/// Counts how a session ended and what caused it.
pub(crate) fn count_result(end: &LeaseEnd, cause: Cause) {
    use agentmine_domain::EndState;
    let result = match end {
        LeaseEnd::Finish { state, reason, .. } => match (state, reason) {
            (EndState::Done, None) => "done",
            (EndState::Done, Some(_)) => "partial",
            (EndState::Failed, _) => "failed",
            (EndState::Stopped, _) => "stopped",
        },
        LeaseEnd::Pause { .. } => "paused",
        LeaseEnd::Release { .. } => "released",
        LeaseEnd::HandOver { .. } => "handed_over",
    };
    results(result, cause, 1);
}

/// A task that failed because it lost its worker too often, or its wake-ups.
pub(crate) fn count_lost_task() {
    results("failed", Cause::Ours, 1);
}

/// Why leases are lost.
const LOSSES: [&str; 2] = ["taken", "silence"];

/// A session ends since its lease was lost; `certain` is whether the store answered it until then.
pub(crate) fn count_lost_lease(certain: bool) {
    let cause = LOSSES[usize::from(!certain)];
    metrics::counter!("agentmine_leases_lost_total", "cause" => cause).increment(1);
}

fn results(result: &'static str, cause: Cause, count: u64) {
    metrics::counter!(
        "agentmine_session_results_total", "result" => result, "cause" => cause.as_str()
    )
    .increment(count);
}

/// Describes them for `/metrics`, and makes their series exist. May be called again.
pub(crate) fn describe() {
    agentmine_gateway::describe_metrics();
    metrics::describe_counter!(
        "agentmine_session_results_total",
        "Ended sessions by result and cause: none, the task, an external service, a person, or AgentMine."
    );
    for result in RESULTS {
        for cause in Cause::ALL {
            results(result, *cause, 0);
        }
    }
    metrics::describe_histogram!(
        "agentmine_phase_duration_seconds",
        metrics::Unit::Seconds,
        "Duration of the phases of sessions."
    );
    for phase in Phase::ALL {
        phase::register(*phase);
    }
    metrics::describe_counter!(
        "agentmine_cost_microdollars_total",
        "Cost of model calls by the configured prices, in millionths of a US dollar."
    );
    metrics::describe_counter!(
        "agentmine_tool_calls_total",
        "Tool calls, by kind of tool and outcome."
    );
    for outcome in tools::OUTCOMES {
        for kind in tools::KINDS {
            metrics::counter!("agentmine_tool_calls_total", "tool" => kind, "outcome" => outcome)
                .increment(0);
        }
    }
    metrics::describe_histogram!(
        "agentmine_tool_call_duration_seconds",
        metrics::Unit::Seconds,
        "Duration of tool calls, with their checkpoint, by kind of tool."
    );
    for kind in tools::KINDS {
        let _ = metrics::histogram!("agentmine_tool_call_duration_seconds", "tool" => kind);
    }
    let _ = metrics::histogram!("agentmine_session_duration_seconds");
    for counter in [
        "agentmine_cost_microdollars_total",
        "agentmine_command_timeouts_total",
        "agentmine_lease_silences_total",
        "agentmine_checkpoint_bytes_total",
        "agentmine_sandboxes_left_total",
    ] {
        metrics::counter!(counter).increment(0);
    }
    metrics::gauge!("agentmine_sessions_running").increment(0.0);
    metrics::describe_gauge!(
        "agentmine_slots",
        "Slots of this process: consumer.concurrency."
    );
    metrics::describe_gauge!(
        "agentmine_sessions_running",
        "Sessions currently running in this process."
    );
    metrics::describe_histogram!(
        "agentmine_session_duration_seconds",
        "Duration of sessions."
    );
    metrics::describe_counter!(
        "agentmine_clone_failures_total",
        "Failed clones in sandboxes, by cause: host unavailable, credentials refused, repository or branch missing, \
         or other."
    );
    agentmine_runtime::metrics::zero("agentmine_clone_failures_total", "cause", &CLONE_FAILURES);
    metrics::describe_counter!(
        "agentmine_clones_total",
        "Clones in sandboxes by where they came from: a template, which is a copy of an earlier clone of the same refs, or \
         the repository"
    );
    agentmine_runtime::metrics::zero("agentmine_clones_total", "from", &CLONES_FROM);
    metrics::describe_counter!(
        "agentmine_command_timeouts_total",
        "Commands of agents that exceeded their time limit and were killed."
    );
    metrics::describe_counter!(
        "agentmine_leases_lost_total",
        "Sessions that ended because their lease was lost: another worker took it, or the store did not answer."
    );
    agentmine_runtime::metrics::zero("agentmine_leases_lost_total", "cause", &LOSSES);
    metrics::describe_counter!(
        "agentmine_lease_silences_total",
        "Sessions paused because the store did not answer."
    );
    metrics::describe_counter!(
        "agentmine_checkpoint_bytes_total",
        "Bytes of checkpoints stored, compressed."
    );
    metrics::describe_counter!(
        "agentmine_sandboxes_left_total",
        "Sandboxes left for the sweep to remove."
    );
}
