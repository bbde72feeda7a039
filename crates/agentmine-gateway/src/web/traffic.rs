//! What plain requests and tunnels have in common.

use std::time::Duration;

use metrics::Counter;

/// Time limit without a byte in either direction.
pub(super) const IDLE: Duration = Duration::from_secs(300);

pub(super) fn bytes_received() -> Counter {
    metrics::counter!("agentmine_gateway_web_bytes_total", "direction" => "in")
}

pub(super) fn bytes_sent() -> Counter {
    metrics::counter!("agentmine_gateway_web_bytes_total", "direction" => "out")
}
