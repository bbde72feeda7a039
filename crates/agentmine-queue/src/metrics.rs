//! The metrics of the queue.

/// Describes them for `/metrics`. May be called again.
pub(crate) fn describe() {
    metrics::describe_counter!(
        "agentmine_messages_published_total",
        "Messages published, by target and outcome."
    );
    metrics::describe_counter!(
        "agentmine_messages_taken_total",
        "Messages taken from the queue."
    );
    metrics::describe_counter!(
        "agentmine_queue_connections_total",
        "Opened connections to the broker."
    );
    metrics::describe_counter!(
        "agentmine_queue_connection_failures_total",
        "Failed connections to the broker."
    );
    metrics::describe_gauge!(
        "agentmine_queue_blocked",
        "Whether the broker accepts no messages, because it is short of memory or disk."
    );
    metrics::gauge!("agentmine_queue_blocked").increment(0.0);
    for counter in [
        "agentmine_messages_taken_total",
        "agentmine_queue_connections_total",
        "agentmine_queue_connection_failures_total",
    ] {
        metrics::counter!(counter).increment(0);
    }
}
