//! Notifications of logs and of changes, which a server sends only where it was asked to.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};

use super::Client;
use super::request::send;
use crate::Era;

/// Between two subscriptions; the first is doubled each time up to the second.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// A subscription that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(30);

impl Client {
    /// Asks for the server's log and, in the stateless era, for notifications of changes, which it sends
    /// as long as a request for them is open. Neither is waited for, and neither can fail the start.
    pub(super) fn subscribe(&self) {
        match self.greeting.era {
            Era::Handshake if self.wants_logs => {
                let params = Map::from_iter([("level".to_owned(), json!("info"))]);
                if let Ok(pending) = send(&self.link, &self.meta, "logging/setLevel", params) {
                    // The response does not matter.
                    pending.forget();
                }
            }
            Era::Handshake => {}
            Era::Stateless => self.listen(),
        }
    }

    fn listen(&self) {
        let has = &self.capabilities;
        let lists = [
            ("tools", has.tools.as_ref().and_then(|it| it.list_changed)),
            (
                "prompts",
                has.prompts.as_ref().and_then(|it| it.list_changed),
            ),
            (
                "resources",
                has.resources.as_ref().and_then(|it| it.list_changed),
            ),
        ];
        let changing = lists.iter().filter(|(_, changes)| *changes == Some(true));
        let filter: Map<String, Value> = changing
            .map(|(list, _)| (format!("{list}ListChanged"), true.into()))
            .collect();
        if filter.is_empty() {
            return;
        }
        let params = Map::from_iter([("notifications".to_owned(), filter.into())]);
        let (link, meta) = (self.link.clone(), self.meta.clone());
        // Ends with the connection, which the client ends when it is dropped.
        tokio::spawn(async move {
            let ended = link.shared.ending.token();
            let mut wait = AGAIN.0;
            while !ended.is_cancelled() {
                let began = Instant::now();
                let Ok(mut pending) = send(&link, &meta, "subscriptions/listen", params.clone())
                else {
                    return;
                };
                if let Ok(Err(refusal)) = pending.response().await
                    && [-32601, -32602].contains(&refusal.code.0)
                {
                    // It never will take one.
                    return;
                }
                if began.elapsed() >= GOOD {
                    wait = AGAIN.0;
                }
                let _ = timeout(wait, ended.cancelled()).await;
                wait = (wait * 2).min(AGAIN.1);
                // Nobody was notified of what changed meanwhile.
                link.shared.changed();
            }
        });
    }
}
