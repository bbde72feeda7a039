//! The label `backend` of metrics.

use agentmine_runtime::config::BackendKind;

/// The values of the label `backend`.
pub(crate) const BACKENDS: [&str; 2] = ["docker", "local"];

/// The value of the label `backend`.
pub(crate) fn backend_label(kind: BackendKind) -> &'static str {
    match kind {
        BackendKind::Docker => BACKENDS[0],
        BackendKind::Local => BACKENDS[1],
    }
}
