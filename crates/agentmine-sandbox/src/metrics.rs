//! The metrics that sandboxes move.

/// Describes them for `/metrics`. May be called again.
pub(crate) fn describe() {
    metrics::describe_histogram!(
        "agentmine_sandbox_start_seconds",
        "Time from nothing to a guest that answers, by backend."
    );
    metrics::describe_counter!(
        "agentmine_sandbox_removal_failures_total",
        "Sandboxes that could not be removed, by backend."
    );
}
