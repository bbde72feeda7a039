//! What is set up once a connection stands: the server's log, and the news of changes.

#![expect(
    deprecated,
    reason = "the log of a server is deprecated in the protocol, and in use"
)]

use std::time::Duration;

use rmcp::model::{
    ClientRequest, LoggingLevel, SetLevelRequest, SetLevelRequestParams, SubscriptionFilter,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient};
use tokio::time::{Instant, sleep};

use super::Client;
use crate::lock;

/// Between two listenings, doubled each time up to the second one.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// A listening that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(30);

impl Client {
    /// Asks for the server's log and, in the stateless era, for the news of changes, which it sends
    /// as long as a request for them stands. Neither is waited for, and neither can fail the start.
    pub(super) async fn begin(&self) {
        if self.hub.stateless() {
            self.listen();
        } else if self.wants_logs {
            let level = SetLevelRequestParams::new(LoggingLevel::Info);
            let request = ClientRequest::SetLevelRequest(SetLevelRequest::new(level));
            let options = PeerRequestOptions::no_options();
            // The answer does not matter.
            let _ = self.peer.send_cancellable_request(request, options).await;
        }
    }

    fn listen(&self) {
        let told = |told: Option<bool>| told.filter(|told| *told);
        let has = &self.capabilities;
        let mut filter = SubscriptionFilter::new();
        filter.tools_list_changed = told(has.tools.as_ref().and_then(|it| it.list_changed));
        filter.prompts_list_changed = told(has.prompts.as_ref().and_then(|it| it.list_changed));
        filter.resources_list_changed = told(has.resources.as_ref().and_then(|it| it.list_changed));
        if filter == SubscriptionFilter::new() {
            return;
        }
        let (peer, hub) = (self.peer.clone(), self.hub.clone());
        let task = tokio::spawn(async move {
            let mut wait = AGAIN.0;
            loop {
                let began = Instant::now();
                let params = SubscriptionsListenRequestParams::new(filter.clone());
                let request = SubscriptionsListenRequest::new(params);
                let request = ClientRequest::SubscriptionsListenRequest(request);
                let options = PeerRequestOptions::no_options();
                let Ok(handle) = peer.send_cancellable_request(request, options).await else {
                    return;
                };
                let mut listening = Listening(Some(handle));
                let refused = listening.end().await;
                if refused || hub.ending.reason().is_some() {
                    return;
                }
                if began.elapsed() >= GOOD {
                    wait = AGAIN.0;
                }
                sleep(wait).await;
                wait = (wait * 2).min(AGAIN.1);
                // What changed meanwhile was told to nobody.
                hub.changes
                    .send_modify(|count| *count = count.wrapping_add(1));
            }
        });
        *lock(&self.listening) = Some(task);
    }
}

/// A standing request, which ends on the server when it is dropped.
struct Listening(Option<RequestHandle<RoleClient>>);

impl Listening {
    /// Waits until the server ends it. `true`: it never will take one.
    async fn end(&mut self) -> bool {
        let Some(handle) = &mut self.0 else {
            return true;
        };
        let answer = (&mut handle.rx).await;
        self.0 = None;
        match answer {
            Ok(Err(rmcp::service::ServiceError::McpError(error))) => {
                [-32601, -32602].contains(&error.code.0)
            }
            _ => false,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(handle.cancel(Some("no more interest".into())));
        }
    }
}
