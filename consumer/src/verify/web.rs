//! The web requests that a gateway saw.

use agentmine_agent::WebRequest;
use agentmine_gateway::{Gateway, TrafficEvent};

/// The web requests so far, counted by host and outcome.
pub(super) fn web(gateway: &Gateway) -> Vec<WebRequest> {
    let mut seen: Vec<WebRequest> = Vec::new();
    for event in gateway.events() {
        let (host, refused) = match event {
            TrafficEvent::WebAllowed { host, port } => (format!("{host}:{port}"), None),
            TrafficEvent::WebBlocked { host, port, reason } => {
                (format!("{host}:{port}"), Some(reason))
            }
            TrafficEvent::Pushed { .. }
            | TrafficEvent::PushRefused { .. }
            | TrafficEvent::AuthRefused { .. } => {
                continue;
            }
        };
        match seen
            .iter_mut()
            .find(|w| w.host == host && w.refused == refused)
        {
            Some(known) => known.count += 1,
            None => seen.push(WebRequest {
                host,
                count: 1,
                refused,
            }),
        }
    }
    seen
}
