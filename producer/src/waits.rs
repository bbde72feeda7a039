//! What the item of a waiting task waits for: open items that block it, and open pull requests that close it.
//!
//! Such a task is checked again once a minute, and keeps no other one from its turn. Only issues of the same repository are
//! followed to find a cycle, [`MOST_FOLLOWED`] in one look at a repository.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use agentmine_domain::{AskedBy, ItemKind, ItemRef, Task, TaskId};
use agentmine_runtime::config::{Labels, has_label};
use agentmine_store::{OpenedPullRequest, StoreError};
use agentmine_trackers::{Blocker, Item, OpenPullRequest, Tracker, TrackerError};
use anyhow::Result;

use crate::deps::ProducerDeps;

/// Items that are checked to find a cycle.
const MOST_FOLLOWED: usize = 20;

/// The pull requests of one repository.
pub(crate) struct Pulls {
    /// The open ones, of anybody.
    pub(crate) open: Vec<OpenPullRequest>,
    /// The fleet's, open or not.
    pub(crate) ours: Vec<OpenedPullRequest>,
}

impl Pulls {
    /// How many of the open ones are the fleet's. They are compared by number: a repository may be renamed.
    pub(crate) fn of_ours(&self) -> u64 {
        let ours: HashSet<u64> = self.ours.iter().filter_map(number).collect();
        let open = self.open.iter().filter(|pull| ours.contains(&pull.number));
        open.count() as u64
    }

    /// An open one that closes an issue. Not that of an earlier task on the same issue: who asks for more work on it knows
    /// that one.
    fn that_closes(&self, issue: u64) -> Option<&OpenPullRequest> {
        let own = self.ours.iter().filter(|ours| ours.issue == issue);
        let own: HashSet<u64> = own.filter_map(number).collect();
        let mut open = self.open.iter();
        open.find(|pull| pull.closes.contains(&issue) && !own.contains(&pull.number))
    }
}

fn number(pull: &OpenedPullRequest) -> Option<u64> {
    ItemRef::number_at(&pull.url)
}

/// What a look at the item of a waiting task found.
#[derive(Debug)]
pub(crate) enum Looked {
    /// It waits for nothing.
    Free,
    /// It waits.
    Waits(String),
    /// Nobody wants the work any more.
    Withdrawn(String),
}

/// Looks at items of one repository.
pub(crate) struct Items<'a> {
    deps: &'a ProducerDeps,
    tracker: &'a Arc<dyn Tracker>,
    pulls: Pulls,
    /// What each issue waits for, of those that were checked.
    blockers: HashMap<u64, Vec<Blocker>>,
    followed: usize,
}

impl<'a> Items<'a> {
    pub(crate) fn new(deps: &'a ProducerDeps, tracker: &'a Arc<dyn Tracker>, pulls: Pulls) -> Self {
        Self {
            deps,
            tracker,
            pulls,
            blockers: HashMap::new(),
            followed: 0,
        }
    }

    pub(crate) async fn look(&mut self, task: &Task) -> Looked {
        let item = match self.tracker.item(&task.item).await {
            Ok(item) => item,
            Err(error) => return unseen(&error),
        };
        let asked_by = AskedBy::of(&task.trigger);
        match withdrawn(self.deps, self.tracker.as_ref(), (task.id, &item), asked_by).await {
            Ok(Some(reason)) => return Looked::Withdrawn(reason),
            Ok(None) => {}
            Err(error) => {
                return Looked::Waits(format!("its labels cannot be checked: {error}"));
            }
        }
        let number = task.item.number;
        if task.item.kind == ItemKind::Issue
            && let Some(pull) = self.pulls.that_closes(number)
        {
            let reason = format!("an open pull request closes its issue: {}", pull.url);
            return Looked::Waits(reason);
        }
        let blockers = match self.tracker.blockers(&item).await {
            Ok(blockers) => blockers,
            Err(error) => return unseen(&error),
        };
        if blockers.is_empty() {
            return Looked::Free;
        }
        let names: Vec<&str> = blockers.iter().map(|it| it.name.as_str()).collect();
        let reason = format!("it is blocked by {}", names.join(", "));
        if task.item.kind != ItemKind::Issue {
            return Looked::Waits(reason);
        }
        self.blockers.insert(number, blockers);
        Looked::Waits(match self.cycle(&task.item).await {
            Some(circle) => format!(
                "it is blocked in a cycle, {}; remove one of these dependencies",
                circle.join(" by ")
            ),
            None => reason,
        })
    }

    /// The way from an issue back to itself, both ends named.
    async fn cycle(&mut self, from: &ItemRef) -> Option<Vec<String>> {
        let mut ways = VecDeque::from([vec![from.number]]);
        let mut seen = HashSet::new();
        while let Some(way) = ways.pop_front() {
            let last = *way.last()?;
            for next in self.blockers_of(from, last).await {
                let mut longer = way.clone();
                longer.push(next);
                if next == from.number {
                    return Some(longer.iter().map(|it| format!("#{it}")).collect());
                }
                if seen.insert(next) {
                    ways.push_back(longer);
                }
            }
        }
        None
    }

    /// The numbers of the issues of the same repository that block one.
    async fn blockers_of(&mut self, like: &ItemRef, number: u64) -> Vec<u64> {
        if !self.blockers.contains_key(&number) {
            if self.followed >= MOST_FOLLOWED {
                return Vec::new();
            }
            self.followed += 1;
            let other = ItemRef {
                number,
                ..like.clone()
            };
            let found = async {
                let item = self.tracker.item(&other).await?;
                self.tracker.blockers(&item).await
            };
            let found = found.await.unwrap_or_default();
            self.blockers.insert(number, found);
        }
        let found = self.blockers.get(&number).into_iter().flatten();
        found.filter_map(|blocker| blocker.number).collect()
    }
}

/// An item that cannot be checked: where that concerns it alone, the worker that looks at it reports it to people.
fn unseen(error: &TrackerError) -> Looked {
    match error {
        TrackerError::NotFound { .. }
        | TrackerError::Refused { .. }
        | TrackerError::Confidential { .. }
        | TrackerError::Invalid { .. } => Looked::Free,
        TrackerError::Forbidden { .. }
        | TrackerError::Archived { .. }
        | TrackerError::Unauthorized { .. }
        | TrackerError::RateLimited { .. }
        | TrackerError::Unavailable { .. }
        | TrackerError::NotPermitted { .. } => {
            Looked::Waits(format!("its item cannot be checked: {error}"))
        }
    }
}

/// Stops a task that waited for its turn, since nobody wants the work on its item any more. Returns whether it did.
///
/// Another loop or another producer may have admitted the task before the item was read; its worker has changed the labels
/// then. The label follows the row, so the row that is read after the item decides.
pub(crate) async fn stop(deps: &ProducerDeps, task: TaskId, reason: &str) -> Result<bool> {
    let now = deps.store.task(task).await?;
    let waits = now.is_some_and(|now| now.card.waits_for.is_some());
    Ok(waits && deps.store.request_stop(task, reason).await?)
}

/// Why nobody wants the work on the item of a waiting task any more.
///
/// A task that was paused while it waited keeps the label of the pause after it is resumed, until its turn comes. One whose
/// request label was already removed may have the label of a task at work instead, from an earlier task of its item or an
/// earlier version. In both cases AgentMine removed the request label, not a person.
pub(crate) async fn withdrawn(
    deps: &ProducerDeps,
    tracker: &dyn Tracker,
    (task, item): (TaskId, &Item),
    asked_by: AskedBy,
) -> Result<Option<String>, StoreError> {
    if let Some(reason) = item.closed() {
        return Ok(Some(reason.to_owned()));
    }
    let request = &deps.config.labels.request;
    let is_labelled = has_label(&item.labels, request);
    if asked_by == AskedBy::Other || !tracker.requests_by_label() || is_labelled {
        return Ok(None);
    }
    // Labels may be renamed in the configuration, and one may have been set without being recorded.
    let earlier = deps.store.label_names(task).await?;
    let Labels {
        paused, processing, ..
    } = &deps.config.labels;
    let mut ours = earlier.iter().chain([paused, processing]);
    let is_ours = ours.any(|name| has_label(&item.labels, name));
    Ok((!is_ours).then(|| format!("the label `{request}` was removed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(number: u64, closes: &[u64]) -> OpenPullRequest {
        OpenPullRequest {
            number,
            url: format!("https://h/new/name/pull/{number}"),
            closes: closes.to_vec(),
        }
    }

    fn ours(issue: u64, url: &str) -> OpenedPullRequest {
        OpenedPullRequest {
            issue,
            url: url.into(),
        }
    }

    #[test]
    fn pull_requests_of_ours_are_known_by_number() {
        let pulls = Pulls {
            open: vec![open(1, &[7]), open(2, &[8]), open(3, &[])],
            ours: vec![
                ours(8, "https://h/old/name/pull/2"),
                ours(9, "https://h/g/p/-/merge_requests/3"),
                ours(9, "folder/x"),
            ],
        };
        assert_eq!(pulls.of_ours(), 2);
        assert_eq!(pulls.that_closes(7).map(|it| it.number), Some(1));
        // More work is requested on an issue whose pull request is open.
        assert!(pulls.that_closes(8).is_none() && pulls.that_closes(9).is_none());
    }
}
