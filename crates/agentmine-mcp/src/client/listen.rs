//! Subscribes to logs and to changes, which a server sends only if it was asked to.

use std::time::Duration;

use rmcp::model::{ErrorCode, ServerCapabilities};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use super::request::Requests;

/// The wait before the next subscription: at first, and at most. It doubles each time.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// After a subscription that lasted this long, the wait is short again.
const GOOD: Duration = Duration::from_secs(30);

/// Asks for the log. The response is not waited for and cannot fail the start.
pub(super) fn set_log_level(requests: &Requests) {
    let params = Map::from_iter([("level".to_owned(), json!("info"))]);
    if let Ok(pending) = requests.send("logging/setLevel", params, None) {
        drop(pending.never_cancelled());
    }
}

/// Asks for notifications of changes in the stateless era. The server sends them while a request for them is
/// open, so it is repeated until the connection ends.
pub(super) fn listen(requests: Requests, has: &ServerCapabilities) {
    let tools = has.tools.as_ref().and_then(|it| it.list_changed);
    let prompts = has.prompts.as_ref().and_then(|it| it.list_changed);
    let resources = has.resources.as_ref().and_then(|it| it.list_changed);
    let filter: Map<String, Value> = [
        ("toolsListChanged", tools),
        ("promptsListChanged", prompts),
        ("resourcesListChanged", resources),
    ]
    .into_iter()
    .filter(|(_, changes)| *changes == Some(true))
    .map(|(list, _)| (list.to_owned(), true.into()))
    .collect();
    if filter.is_empty() {
        return;
    }
    let params = Map::from_iter([("notifications".to_owned(), filter.into())]);
    tokio::spawn(async move {
        let shared = &requests.link.shared;
        let mut wait = AGAIN.0;
        while shared.ending.reason().is_none() {
            let began = Instant::now();
            let sent = requests.send("subscriptions/listen", params.clone(), None);
            let Ok(mut pending) = sent else { return };
            if let Ok(Err(refusal)) = pending.response().await
                && let ErrorCode::METHOD_NOT_FOUND | ErrorCode::INVALID_PARAMS = refusal.code
            {
                // It will never accept a subscription.
                return;
            }
            if began.elapsed() >= GOOD {
                wait = AGAIN.0;
            }
            let _ = timeout(wait, shared.ending.wait()).await;
            wait = (wait * 2).min(AGAIN.1);
            // Changes between two subscriptions are not notified.
            shared.changed();
        }
    });
}
