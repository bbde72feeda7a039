//! The repositories with a dashboard, and what is to be shown on each.

use std::collections::{HashMap, HashSet};

use agentmine_domain::{ItemKind, ItemRef, PublicStatus, RepositoryKey, RepositoryRef, Task};
use agentmine_store::{Held, StoreError, TaskFilter};
use agentmine_trackers::Tracker;

use crate::deps::ProducerDeps;

/// Tasks that wait, of all repositories.
const MOST_OPEN: u32 = 500;
/// The newest tasks, among which are those that ended lately.
const NEWEST: u32 = 100;
/// Waiting tasks that are next in turn, however old they are.
const IN_TURN: u32 = 40;

/// A repository with a dashboard, and what is to be shown there.
pub(super) struct Place {
    pub(super) repository: RepositoryRef,
    pub(super) tasks: Vec<Task>,
    /// How many wait for their turn, those among `tasks` included.
    pub(super) waiting: usize,
    pub(super) held: Vec<Held>,
}

impl Place {
    fn of(item: &ItemRef) -> Self {
        Self {
            repository: RepositoryRef {
                tracker: item.tracker,
                host: item.host.clone(),
                repo_id: item.repo_id.clone(),
                repo_path: item.repo_path.clone(),
            },
            tasks: Vec::new(),
            waiting: 0,
            held: Vec::new(),
        }
    }

    pub(super) fn key(&self) -> RepositoryKey {
        RepositoryKey {
            tracker: self.repository.tracker,
            host: self.repository.host.clone(),
            repo_id: self.repository.repo_id.clone(),
        }
    }
}

/// The repositories of a tracker that have a dashboard or get one: those that are scanned and have, or had, a task or a
/// request that is held.
pub(super) async fn places(
    deps: &ProducerDeps,
    tracker: &dyn Tracker,
    only: Option<&str>,
) -> Result<Vec<Place>, StoreError> {
    let store = &deps.store;
    let list = async |status, limit| {
        let filter = TaskFilter {
            status,
            limit,
            ..TaskFilter::default()
        };
        store.tasks(&filter).await
    };
    let mut tasks = list(Some(PublicStatus::InProgress), 0).await?;
    tasks.extend(list(Some(PublicStatus::Open), MOST_OPEN).await?);
    tasks.extend(list(None, NEWEST).await?);
    let is_here = |item: &ItemRef| {
        let is_wanted = only.is_none_or(|path| item.repo_path.eq_ignore_ascii_case(path));
        // A repository that was renamed is scanned by its former name.
        let is_scanned =
            || tracker.scans(&item.repo_path) || tracker.scanned_as(&item.repo_id).is_some();
        is_wanted && tracker.serves(item) && is_scanned()
    };
    let mut places: HashMap<RepositoryKey, Place> = HashMap::new();
    let mut seen = HashSet::new();
    for task in tasks {
        if is_here(&task.item) && seen.insert(task.id) {
            let place = places.entry(task.item.repository());
            let place = place.or_insert_with(|| Place::of(&task.item));
            place.tasks.push(task);
        }
    }
    // Of many that wait, the newest are listed above, and these are next.
    for load in store.loads().await? {
        let RepositoryKey {
            tracker,
            host,
            repo_id,
        } = load.repository.clone();
        let item = ItemRef {
            tracker,
            host,
            repo_id,
            repo_path: load.repo_path,
            kind: ItemKind::Issue,
            number: 0,
        };
        if !is_here(&item) {
            continue;
        }
        let place = places.entry(load.repository.clone());
        let place = place.or_insert_with(|| Place::of(&item));
        place.waiting = usize::try_from(load.waiting).unwrap_or(usize::MAX);
        let next = store.next_waiting(&load.repository, IN_TURN).await?;
        let unlisted = next.into_iter().filter(|task| seen.insert(task.id));
        place.tasks.extend(unlisted);
    }
    for held in store.held_requests().await? {
        if is_here(&held.request.item) {
            let place = places.entry(held.request.item.repository());
            let place = place.or_insert_with(|| Place::of(&held.request.item));
            place.held.push(held);
        }
    }
    for dashboard in store.dashboards().await? {
        let item = dashboard.item();
        if is_here(&item) {
            let place = places.entry(item.repository());
            place.or_insert_with(|| Place::of(&item));
        }
    }
    Ok(places.into_values().collect())
}
