//! Requests whose tasks wait for their turn.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agentmine_domain::{AskedBy, ItemRef, NewTask, Priority};
use agentmine_store::WaitingRequest;
use agentmine_trackers::{Skipped, Tracker};
use anyhow::Result;

use crate::deps::ProducerDeps;
use crate::waits;

/// Items of waiting tasks that one scan looks at because it does not find them any more.
const MOST_WITHDRAWN: usize = 20;

/// The requests whose tasks wait for their turn. They need no look, since there may be thousands, and each scan finds them
/// again.
pub(super) struct Waiting {
    requests: HashMap<String, WaitingRequest>,
}

impl Waiting {
    pub(super) async fn read(deps: &ProducerDeps) -> Result<Self> {
        let requests = deps.store.waiting_requests().await?.into_iter();
        let known = requests.map(|request| (request.dedup_key.clone(), request));
        Ok(Self {
            requests: known.collect(),
        })
    }

    /// Whether the task of a request waits. A label of a priority that its item got meanwhile counts; what people set
    /// otherwise stays.
    pub(super) async fn knows(
        &self,
        deps: &ProducerDeps,
        new: &NewTask,
        by_label: Option<Priority>,
    ) -> Result<bool> {
        let Some(request) = self.requests.get(&new.dedup_key()) else {
            return Ok(false);
        };
        if let Some(priority) = by_label.filter(|priority| *priority != request.priority) {
            deps.store.prioritize(request.task, priority).await?;
        }
        Ok(true)
    }

    /// Ends the tasks of items that a whole scan does not find any more, since nobody wants the work: some in each scan,
    /// for each of these items costs a request.
    pub(super) async fn end_withdrawn(
        &self,
        deps: &ProducerDeps,
        tracker: &Arc<dyn Tracker>,
        found: &HashSet<String>,
    ) -> Result<()> {
        // A scan finds labels. Whether work without one is still wanted is seen at its turn.
        let by_label = |request: &WaitingRequest| AskedBy::of(request.trigger()) == AskedBy::Label;
        // Of what cannot be read at present nothing is known, and asking for each item would take the others' turns.
        let skipped = tracker.skipped();
        let gone = self.requests.values().filter(|request| {
            let found = found.contains(&request.item.key());
            let is_unread = skipped.iter().any(|it| concerns(it, &request.item));
            tracker.serves(&request.item) && !found && !is_unread && by_label(request)
        });
        for request in gone.take(MOST_WITHDRAWN) {
            let Ok(item) = tracker.item(&request.item).await else {
                continue;
            };
            let asked_by = AskedBy::Label;
            let of_task = (request.task, &item);
            if let Some(reason) =
                waits::withdrawn(deps, tracker.as_ref(), of_task, asked_by).await?
                && waits::stop(deps, request.task, &reason).await?
            {
                tracing::info!(task.id = %request.task, item = %request.item, reason, "a task that waited for its turn ends");
            }
        }
        Ok(())
    }
}

/// Whether what cannot be read is the repository of an item, or its owner's, or a group above it. Neither forge reports names
/// apart by their case.
fn concerns(skipped: &Skipped, item: &ItemRef) -> bool {
    let path = item.repo_path.to_lowercase();
    let is_above = |name: &str| {
        let rest = path.strip_prefix(&name.to_lowercase());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    skipped.what.split_whitespace().any(is_above)
}
