//! Looks for items that are marked as worked on without a task, and corrects them.
//!
//! An item counts as such only if each look finds it so, for three leases: by then no write of an earlier worker
//! is under way, and a task that was made a moment ago is in the database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::ItemRef;
use agentmine_effects::{EffectError, Orphan, Reporter, is_live};
use agentmine_runtime::permit::BootInstant;
use agentmine_trackers::Tracker;

use crate::deps::ProducerDeps;

/// Leases between two looks while no item is without one.
const QUIET: u32 = 10;
/// How many leases an item must be without a live task.
const LEASES: u32 = 3;

/// What the looks of one producer at a tracker have found so far.
pub(crate) struct Orphans {
    /// Since when each item has been without a live task.
    since: HashMap<String, BootInstant>,
    /// Not everything could be checked.
    is_partial: bool,
    last_look: BootInstant,
    /// There was no look yet.
    is_new: bool,
}

impl Orphans {
    /// The first look is a lease later, so that it does not add to the cost of the first scan.
    pub(crate) fn new() -> Self {
        Self {
            since: HashMap::new(),
            is_partial: false,
            last_look: BootInstant::now(),
            is_new: true,
        }
    }

    /// Looks at most once in each lease, and less often while nothing is to be watched: a look costs one more list of items
    /// in each repository.
    pub(crate) async fn reconcile(&mut self, deps: &ProducerDeps, tracker: &Arc<dyn Tracker>) {
        if !tracker.requests_by_label() {
            return;
        }
        let lease = Duration::from_secs(deps.config.consumer.lease_seconds);
        let is_quiet = self.since.is_empty() && !self.is_partial && !self.is_new;
        let every = match is_quiet {
            true => lease * QUIET,
            false => lease,
        };
        if self.last_look.elapsed() < every {
            return;
        }
        self.last_look = BootInstant::now();
        (self.is_partial, self.is_new) = (false, false);
        let mut seen = HashMap::new();
        let label = &deps.config.labels.processing;
        let items = tracker.candidates(label).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the items that are worked on cannot be listed");
            self.is_partial = true;
            Vec::new()
        });
        for candidate in items {
            let item = candidate.item;
            let since = self.since.get(&item.key()).copied();
            let since = since.unwrap_or_else(BootInstant::now);
            match self.one(deps, tracker, &item, since).await {
                Ok(true) => {
                    seen.insert(item.key(), since);
                }
                Ok(false) => {}
                Err(error) => {
                    self.is_partial = true;
                    tracing::warn!(%item, %error, "an item without a task could not be corrected");
                }
            }
        }
        self.since = seen;
    }

    /// Whether the item still has to be watched.
    async fn one(
        &self,
        deps: &ProducerDeps,
        tracker: &Arc<dyn Tracker>,
        item: &ItemRef,
        since: BootInstant,
    ) -> Result<bool, EffectError> {
        let lease = Duration::from_secs(deps.config.consumer.lease_seconds);
        if is_live(deps.store.as_ref(), item).await? {
            return Ok(false);
        }
        if since.elapsed() < lease * LEASES {
            return Ok(true);
        }
        let reporter = Reporter {
            store: Arc::clone(&deps.store),
            tracker: Arc::clone(tracker),
            labels: deps.config.labels.clone(),
            hold: lease,
        };
        match reporter.put_orphan_right(item).await? {
            Orphan::PutRight => {
                tracing::warn!(%item, "the item was marked as worked on, but has no task; it was corrected");
            }
            Orphan::Live => {}
            Orphan::Foreign => {
                tracing::debug!(%item, "another fleet may be working on the item; it is not changed");
            }
        }
        Ok(false)
    }
}
