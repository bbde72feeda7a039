//! The metrics that the store moves.

use crate::RetentionKind;
use crate::sql::{ATTEMPTS, CONNECTION_STATES, POOLS};
use agentmine_domain::SessionEnd;
use agentmine_runtime::metrics::zero;

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
    zero("agentmine_claims_total", "outcome", &["taken", "none"]);
    metrics::describe_histogram!(
        "agentmine_task_pickup_seconds",
        metrics::Unit::Seconds,
        "Time from the record, admission or latest change of a task to its first claim, unless other tasks may hold it up."
    );
    let _ = metrics::histogram!("agentmine_task_pickup_seconds");
    metrics::describe_histogram!(
        "agentmine_task_recovery_seconds",
        metrics::Unit::Seconds,
        "Time from the last heartbeat of a lost worker to the next claim of its task."
    );
    let _ = metrics::histogram!("agentmine_task_recovery_seconds");
    metrics::describe_counter!(
        "agentmine_sessions_ended_total",
        "Sessions whose lease ended, by outcome."
    );
    let ends: Vec<&str> = SessionEnd::ALL.iter().map(|end| end.as_str()).collect();
    zero("agentmine_sessions_ended_total", "end", &ends);
    metrics::describe_counter!("agentmine_leases_expired_total", "Expired leases.");
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
        "Statements repeated after a transient error, by operation."
    );
    metrics::describe_counter!("agentmine_attempts_total", "Leases that began, by attempt.");
    zero("agentmine_attempts_total", "attempt", &ATTEMPTS);
    metrics::describe_histogram!(
        "agentmine_store_connection_wait_seconds",
        metrics::Unit::Seconds,
        "Time until a statement got a connection from the pool."
    );
    let _ = metrics::histogram!("agentmine_store_connection_wait_seconds");
    metrics::describe_gauge!(
        "agentmine_store_connections",
        "Connections of this process to the database, used and idle, as of its last use of one; by pool."
    );
    for pool in POOLS {
        for state in CONNECTION_STATES {
            metrics::gauge!("agentmine_store_connections", "pool" => pool, "state" => state)
                .increment(0.0);
        }
    }
    metrics::describe_counter!(
        "agentmine_retention_removed_total",
        "Rows of ended tasks that retention removed, by kind."
    );
    zero(
        "agentmine_retention_removed_total",
        "what",
        &RetentionKind::ALL.map(RetentionKind::as_str),
    );
    for counter in [
        "agentmine_tasks_enqueued_total",
        "agentmine_outbox_sent_total",
        "agentmine_outbox_failures_total",
        "agentmine_leases_expired_total",
        "agentmine_tasks_rewoken_total",
        "agentmine_fenced_writes_total",
    ] {
        metrics::counter!(counter).increment(0);
    }
}
