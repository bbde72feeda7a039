//! Requests for work that start none, and why.

use agentmine_domain::ItemRef;
use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::StoreError;

/// A request for work that starts none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRequest {
    /// The item that asks.
    pub item: ItemRef,
    /// What asked for work.
    pub trigger: String,
    /// The item's title.
    pub title: String,
    /// Its address for people.
    pub url: String,
    /// A stable name of the reason.
    pub code: String,
    /// The reason as a sentence, for people.
    pub message: String,
}

/// A request that was held in the last scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The request, and why it is held.
    pub request: HeldRequest,
    /// Since when it is held for this reason.
    pub since: DateTime<Utc>,
}

/// Requests that start no work. Only producers write them.
#[async_trait]
pub trait HeldStore: Send + Sync + 'static {
    /// Records that a scan found a request that starts no work. One item has one: the newest.
    async fn hold_request(&self, held: &HeldRequest) -> Result<(), StoreError>;

    /// The requests that scans of the last ten minutes found, and that no task has answered since. Oldest first, at
    /// most a thousand.
    async fn held_requests(&self) -> Result<Vec<Held>, StoreError>;
}
