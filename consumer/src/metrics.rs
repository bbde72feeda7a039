//! The metrics that a consumer moves.

/// Describes them for `/metrics`. May be called again.
pub(crate) fn describe() {
    metrics::describe_gauge!(
        "agentmine_sessions_running",
        "Sessions that run in this process now."
    );
    metrics::describe_histogram!(
        "agentmine_session_duration_seconds",
        "How long sessions took."
    );
    metrics::describe_gauge!(
        "agentmine_tasks",
        "Tasks by state, as the store counts them."
    );
    metrics::describe_counter!(
        "agentmine_lease_silences_total",
        "Sessions frozen because the store did not answer."
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
