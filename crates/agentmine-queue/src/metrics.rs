//! The metrics that the queue moves.

/// Describes them for `/metrics`. May be called again.
pub(crate) fn describe() {
    metrics::describe_counter!(
        "agentmine_messages_published_total",
        "Messages published, by target and outcome."
    );
    metrics::describe_counter!("agentmine_messages_taken_total", "Messages taken.");
    metrics::describe_counter!(
        "agentmine_queue_connections_total",
        "Connections to the broker that came up."
    );
    metrics::describe_counter!(
        "agentmine_queue_connection_failures_total",
        "Connections to the broker that did not."
    );
}
