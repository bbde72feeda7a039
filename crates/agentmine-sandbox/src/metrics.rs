//! The metrics of sandboxes.

use agentmine_runtime::config::BackendKind;
use agentmine_runtime::metrics::zero;

use crate::backend_label::{BACKENDS, backend_label};
use crate::client;

/// Shows how many stale sandboxes could not be removed, as [`crate::remove_stale`] returned it.
pub fn show_stale(kind: BackendKind, left: u32) {
    metrics::gauge!("agentmine_sandboxes_stale", "backend" => backend_label(kind))
        .set(f64::from(left));
}

/// Describes them for `/metrics`, and makes their series exist. May be called again.
pub(crate) fn describe() {
    metrics::describe_histogram!(
        "agentmine_sandbox_start_seconds",
        "Time to start a sandbox, until its guest answers, by backend."
    );
    for backend in BACKENDS {
        let _ = metrics::histogram!("agentmine_sandbox_start_seconds", "backend" => backend);
    }
    metrics::describe_counter!(
        "agentmine_sandbox_removal_failures_total",
        "Sandboxes that could not be removed, by backend."
    );
    metrics::describe_gauge!(
        "agentmine_warm_sandboxes",
        "Sandboxes started ahead that no task has taken yet (consumer.warm_sandboxes)."
    );
    metrics::gauge!("agentmine_warm_sandboxes").increment(0.0);
    metrics::describe_counter!(
        "agentmine_sandboxes_taken_total",
        "Sandboxes given to tasks where some are started ahead, by source: pool or new."
    );
    zero("agentmine_sandboxes_taken_total", "from", &["pool", "new"]);
    zero(
        "agentmine_sandbox_removal_failures_total",
        "backend",
        &BACKENDS,
    );
    describe_use();
}

fn describe_use() {
    metrics::describe_gauge!(
        "agentmine_sandboxes_running",
        "Sandboxes of this process that run, by backend."
    );
    metrics::describe_gauge!(
        "agentmine_sandbox_memory_bytes",
        "Memory of the processes in this process's running sandboxes, without shared memory, by backend."
    );
    metrics::describe_counter!(
        "agentmine_sandbox_cpu_seconds_total",
        "CPU time of the sandboxes of this process, in whole seconds, by backend."
    );
    metrics::describe_gauge!(
        "agentmine_sandbox_processes",
        "Processes in the running sandboxes of this process, by backend."
    );
    metrics::describe_gauge!(
        "agentmine_sandbox_disk_bytes",
        "Space used by the workspaces of this process's running sandboxes, by backend."
    );
    metrics::describe_gauge!(
        "agentmine_sandboxes_stale",
        "Sandboxes of ended work that could not be removed at the last try, by backend."
    );
    client::register_use();
    for backend in BACKENDS {
        metrics::gauge!("agentmine_sandboxes_stale", "backend" => backend).increment(0.0);
    }
}
