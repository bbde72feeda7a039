//! What a gateway saw, for the facts.

use agentmine_agent::WebRequest;
use agentmine_gateway::{Gateway, TrafficEvent};

/// The web requests so far, counted by host and outcome.
pub(super) fn web(gateway: &Gateway) -> Vec<WebRequest> {
    let request = |event| match event {
        TrafficEvent::WebAllowed { host, port, count } => Some((host, port, count, None)),
        TrafficEvent::WebBlocked {
            host,
            port,
            reason,
            count,
        } => Some((host, port, count, Some(reason))),
        TrafficEvent::Pushed { .. }
        | TrafficEvent::PushRefused { .. }
        | TrafficEvent::AuthRefused { .. } => None,
    };
    let requests = gateway.events().into_iter().filter_map(request);
    requests
        .map(|(host, port, count, refused)| WebRequest {
            // Hosts that are counted together have no port.
            host: if port == 0 {
                host
            } else {
                format!("{host}:{port}")
            },
            count,
            refused,
        })
        .collect()
}

/// Why pushes were refused so far, each reason once, with the number of times.
pub(super) fn refused_pushes(gateway: &Gateway) -> Vec<String> {
    let mut reasons: Vec<(String, u64)> = Vec::new();
    for event in gateway.events() {
        let TrafficEvent::PushRefused { reason } = event else {
            continue;
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, times)) => *times += 1,
            None => reasons.push((reason, 1)),
        }
    }
    let more = gateway.dropped_events();
    let more = (more > 0).then(|| format!("and {more} more pushes"));
    let reasons = reasons.into_iter().map(|(reason, times)| match times {
        1 => reason,
        times => format!("{reason} ({times} times)"),
    });
    reasons.chain(more).collect()
}
