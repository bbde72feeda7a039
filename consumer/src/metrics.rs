//! The consumer's metrics.

/// Describes them for `/metrics`. May be called again.
pub(crate) fn describe() {
    metrics::describe_gauge!(
        "agentmine_sessions_running",
        "Sessions currently running in this process."
    );
    metrics::describe_histogram!(
        "agentmine_session_duration_seconds",
        "Duration of sessions."
    );
    metrics::describe_gauge!("agentmine_tasks", "Tasks in the store, by state.");
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
