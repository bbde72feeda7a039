//! The gateway's metrics.

use agentmine_runtime::metrics::zero;

use crate::egress::{AllowedBy, BlockedBy};

/// Describes them for `/metrics`, and makes their series exist. May be called again.
pub fn describe() {
    metrics::describe_counter!(
        "agentmine_gateway_git_requests_total",
        "Git requests of sandboxes, by kind."
    );
    metrics::describe_counter!(
        "agentmine_gateway_git_bytes_total",
        "Bytes of git traffic, by direction."
    );
    metrics::describe_counter!(
        "agentmine_gateway_clones_total",
        "New clones of sandboxes, by source: a mirror, or the repository's host; failed means the host after a fault \
         of the mirror."
    );
    metrics::describe_counter!(
        "agentmine_gateway_pushes_total",
        "Pushes, accepted and refused."
    );
    metrics::describe_counter!(
        "agentmine_gateway_web_requests_total",
        "Web requests of sandboxes, allowed and blocked, by the deciding rule of the web policy."
    );
    metrics::describe_counter!(
        "agentmine_gateway_web_bytes_total",
        "Bytes of web traffic, by direction."
    );
    zero(
        "agentmine_gateway_git_requests_total",
        "request",
        &["advertise_fetch", "advertise_push", "fetch", "push"],
    );
    zero(
        "agentmine_gateway_git_bytes_total",
        "direction",
        &["fetched", "pushed"],
    );
    zero(
        "agentmine_gateway_clones_total",
        "from",
        &["mirror", "host", "failed"],
    );
    zero(
        "agentmine_gateway_pushes_total",
        "outcome",
        &["accepted", "refused"],
    );
    AllowedBy::ALL.into_iter().for_each(|rule| rule.count(0));
    BlockedBy::ALL.into_iter().for_each(|rule| rule.count(0));
    zero(
        "agentmine_gateway_web_bytes_total",
        "direction",
        &["in", "out"],
    );
}
