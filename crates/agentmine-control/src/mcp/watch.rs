//! Subscriptions to `task://{id}`: a notice when the state of the task changes.
//!
//! The store is read again and again, since another process may change the task. What only keeps a lease alive is no
//! change. A watch ends with its subscription, or with the connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::{Task, TaskNumber};
use agentmine_store::Store;
use rmcp::RoleServer;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::Peer;
use tokio::task::AbortHandle;

use super::context::Context;
use crate::{ControlError, input};

/// How often a task is checked.
const EVERY: Duration = Duration::from_millis(300);
/// Subscriptions of one client at most.
pub(super) const MAX_SUBSCRIPTIONS: usize = 64;
const PREFIX: &str = "task://";

/// The number of the task that a URI names; `None`: it can change without a notice.
pub(super) fn watched(uri: &str) -> Option<TaskNumber> {
    uri.strip_prefix(PREFIX)?.parse().ok()
}

/// The subscriptions of one client of the protocol's revisions up to 2025-11-25.
#[derive(Default)]
pub(super) struct Subscriptions(Mutex<BTreeMap<String, AbortHandle>>);

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let all = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        all.values().for_each(AbortHandle::abort);
    }
}

impl Subscriptions {
    /// Begins to watch a task. A second subscription to it replaces the first.
    pub(super) async fn add(
        &self,
        context: &Arc<Context>,
        uri: String,
        peer: Peer<RoleServer>,
    ) -> Result<(), ControlError> {
        let Some(number) = watched(&uri) else {
            return Err(unwatched(&uri));
        };
        let task = input::task(context.store.as_ref(), number.0).await?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, watch| !watch.is_finished());
        if all.len() >= MAX_SUBSCRIPTIONS && !all.contains_key(&uri) {
            return Err(ControlError::Validation(format!(
                "there are {MAX_SUBSCRIPTIONS} subscriptions already"
            ))
            .hint("end one with resources/unsubscribe"));
        }
        let (context, named) = (Arc::clone(context), uri.clone());
        let watching = tokio::spawn(async move {
            let mut seen = State::of(&task);
            while !peer.is_transport_closed() {
                seen = changed(context.store.as_ref(), number, seen).await;
                let notice = ResourceUpdatedNotificationParam::new(named.clone());
                if peer.notify_resource_updated(notice).await.is_err() {
                    break;
                }
            }
        });
        if let Some(earlier) = all.insert(uri, watching.abort_handle()) {
            earlier.abort();
        }
        Ok(())
    }

    /// Ends a subscription, if there is one.
    pub(super) fn remove(&self, uri: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = all.remove(uri) {
            watch.abort();
        }
    }
}

fn unwatched(uri: &str) -> ControlError {
    ControlError::Validation(format!(
        "there is no subscription to {:?}, expected task:// with the number of a task",
        input::shown(uri)
    ))
    .hint("resources/templates/list lists the resources")
}

/// What a change is of.
#[derive(Clone, PartialEq)]
pub(super) struct State(Task);

impl State {
    pub(super) fn of(task: &Task) -> Self {
        Self(Task {
            // A heartbeat extends the lease, which nobody has to know.
            lease_until: None,
            ..task.clone()
        })
    }
}

/// Waits until the state is another one.
pub(super) async fn changed(store: &dyn Store, number: TaskNumber, seen: State) -> State {
    loop {
        tokio::time::sleep(EVERY).await;
        // A store that is away changes nothing.
        if let Ok(Some(task)) = store.task_by_number(number).await {
            let now = State::of(&task);
            if now != seen {
                return now;
            }
        }
    }
}
