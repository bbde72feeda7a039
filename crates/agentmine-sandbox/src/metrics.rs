//! The metrics of sandboxes.

use agentmine_runtime::metrics::zero;

/// Describes them for `/metrics`. May be called again.
pub(crate) fn describe() {
    metrics::describe_histogram!(
        "agentmine_sandbox_start_seconds",
        "Time to start a sandbox, until its guest answers, by backend."
    );
    metrics::describe_counter!(
        "agentmine_sandbox_removal_failures_total",
        "Sandboxes that could not be removed, by backend."
    );
    metrics::describe_gauge!(
        "agentmine_warm_sandboxes",
        "Sandboxes started ahead that no task has taken yet: consumer.warm_sandboxes."
    );
    metrics::gauge!("agentmine_warm_sandboxes").increment(0.0);
    metrics::describe_counter!(
        "agentmine_sandboxes_taken_total",
        "Sandboxes that tasks got where some are started ahead, by where from: pool or new."
    );
    zero("agentmine_sandboxes_taken_total", "from", &["pool", "new"]);
    zero(
        "agentmine_sandbox_removal_failures_total",
        "backend",
        &["docker", "local"],
    );
}
