//! The metrics that the store moves.

/// Describes them for `/metrics`. May be called again.
pub(crate) fn describe() {
    metrics::describe_counter!("agentmine_tasks_enqueued_total", "Tasks recorded.");
    metrics::describe_counter!(
        "agentmine_outbox_sent_total",
        "Wake-ups published and confirmed."
    );
    metrics::describe_counter!(
        "agentmine_outbox_failures_total",
        "Wake-ups that could not be published."
    );
    metrics::describe_counter!("agentmine_claims_total", "Claims by outcome.");
    metrics::describe_counter!(
        "agentmine_sessions_ended_total",
        "Sessions by how they ended."
    );
    metrics::describe_counter!("agentmine_leases_expired_total", "Leases that ran out.");
    metrics::describe_counter!(
        "agentmine_tasks_rewoken_total",
        "Queued tasks that got another wake-up."
    );
    metrics::describe_counter!(
        "agentmine_fenced_writes_total",
        "Writes refused because the lease was lost."
    );
    metrics::describe_counter!(
        "agentmine_store_retries_total",
        "Statements repeated after a passing error, by operation."
    );
}
