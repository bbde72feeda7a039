//! What a process remembers of dashboards between two looks.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use agentmine_domain::{RepositoryKey, TrackerKind};
use agentmine_effects::DashboardBox;
use agentmine_trackers::Tracker;
use tokio::sync::Notify;

/// What this process has seen of dashboards.
#[derive(Debug, Default)]
pub struct SeenDashboards {
    seen: Mutex<Seen>,
    /// Notified of each path in `Seen::hinted`.
    hint: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    faults: HashSet<RepositoryKey>,
    /// Until when none is opened, since the tracker refused it: looking for one reads the whole list of issues.
    refused: HashMap<RepositoryKey, Instant>,
    ticks: HashMap<RepositoryKey, SettledTicks>,
    /// The paths of repositories that a webhook named while their dashboards were held, by the hosts of their trackers.
    hinted: HashMap<(TrackerKind, String), HashSet<String>>,
}

/// The ticks of one dashboard that are settled, by the number of the text.
#[derive(Debug, Default)]
pub(super) struct SettledTicks {
    pub(super) revision: i64,
    pub(super) boxes: BTreeSet<DashboardBox>,
    /// How often nobody was known who set them.
    pub(super) unknown: u32,
}

impl SeenDashboards {
    /// Whether a fault of a repository is a new one.
    pub(super) fn fails(&self, repository: RepositoryKey) -> bool {
        self.lock().faults.insert(repository)
    }

    pub(super) fn works(&self, repository: &RepositoryKey) {
        self.lock().faults.remove(repository);
    }

    /// Whether the tracker refused to open one a short time ago.
    pub(super) fn is_refused(&self, repository: &RepositoryKey) -> bool {
        let until = self.lock().refused.get(repository).copied();
        until.is_some_and(|until| until > Instant::now())
    }

    pub(super) fn look_soon(&self, tracker: &dyn Tracker, path: &str) {
        let mut seen = self.lock();
        seen.hinted
            .entry(server(tracker))
            .or_default()
            .insert(path.to_owned());
        drop(seen);
        self.hint.notify_waiters();
    }

    /// Takes the paths that are to be checked soon.
    pub(super) fn take_hinted(&self, tracker: &dyn Tracker) -> HashSet<String> {
        self.lock()
            .hinted
            .remove(&server(tracker))
            .unwrap_or_default()
    }

    fn has_hinted(&self, tracker: &dyn Tracker) -> bool {
        self.lock().hinted.contains_key(&server(tracker))
    }

    /// Waits until a path is to be looked at soon. An interrupted wait leaves the paths there.
    pub(super) async fn until_hinted(&self, tracker: &dyn Tracker) {
        loop {
            // Made before the look: what is noted after it is heard.
            let more = self.hint.notified();
            if self.has_hinted(tracker) {
                return;
            }
            more.await;
        }
    }

    /// The tracker refused to open one. It is not asked again until this time.
    pub(super) fn refuse(&self, repository: RepositoryKey, until: Instant) {
        self.lock().refused.insert(repository, until);
    }

    /// Takes what is known of the ticks on one, which [`Self::keep_ticks`] puts back.
    pub(super) fn take_ticks(&self, repository: &RepositoryKey) -> SettledTicks {
        self.lock().ticks.remove(repository).unwrap_or_default()
    }

    pub(super) fn keep_ticks(&self, repository: RepositoryKey, settled: SettledTicks) {
        self.lock().ticks.insert(repository, settled);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What identifies one tracker.
fn server(tracker: &dyn Tracker) -> (TrackerKind, String) {
    (tracker.kind(), tracker.host().to_owned())
}
