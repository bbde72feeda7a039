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
    zero(
        "agentmine_sandbox_removal_failures_total",
        "backend",
        &["docker", "local"],
    );
}
