//! How many tasks and pull requests a repository gets at once.
//!
//! A task is recorded as waiting when its request is found, and is admitted when its repository has room for it: only
//! then does it have a wake-up, and only then does the label of its item move. Of the tasks of a repository, no more are
//! admitted ahead of a worker than workers have already, so that a thousand of them delay those of another repository by
//! one. The store counts again under a lock when it admits one, so that several producers exceed no limit.
//!
//! What waits costs one statement in [`EVERY`], and a look at its repository when what that has of the fleet changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{ItemKind, RepositoryKey, Task, TrackerKind, WaitsFor};
use agentmine_runtime::config::Capacity;
use agentmine_runtime::permit::BootInstant;
use agentmine_store::{Admitted, RepositoryLoad, Room, ScanTime};
use agentmine_trackers::Tracker;
use anyhow::Result;
use chrono::{DateTime, Utc};
use futures::StreamExt as _;

use crate::deps::ProducerDeps;
use crate::waits::{self, Items, Looked, Pulls};

/// Time between two passes over the repositories with waiting tasks.
pub(crate) const EVERY: Duration = Duration::from_secs(2);
/// A repository that has what it had is checked again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// Waiting tasks of each kind that one look considers.
const LOOKS: u32 = 4;
/// Repositories that are checked at once.
const AT_ONCE: usize = 8;
/// For what counts per day.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Whether new tasks of this tracker wait at first.
pub(crate) fn applies(capacity: &Capacity, tracker: TrackerKind) -> bool {
    match tracker {
        TrackerKind::GitHub | TrackerKind::GitLab => capacity.limits_anything(),
        TrackerKind::Local => false,
    }
}

/// Tasks that were admitted, with their trackers.
pub(crate) type AdmittedTasks = Vec<(Arc<dyn Tracker>, Task)>;

/// What one producer saw of a tracker's repositories with waiting tasks when it last looked at them.
pub(crate) struct Turns {
    tracker: Arc<dyn Tracker>,
    /// Whether it also looks at repositories whose tracker is not configured.
    is_first: bool,
    seen: HashMap<RepositoryKey, (RepositoryLoad, BootInstant)>,
}

impl Turns {
    /// Before the first look.
    pub(crate) fn of(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>) -> Self {
        let first = deps.trackers.first();
        Self {
            tracker: Arc::clone(tracker),
            is_first: first.is_some_and(|first| Arc::ptr_eq(first, tracker)),
            seen: HashMap::new(),
        }
    }

    /// Admits waiting tasks as far as there is room. A fault of one repository delays no other.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn pass(&mut self, deps: &ProducerDeps) -> Result<AdmittedTasks> {
        let mut loads = deps.store.loads().await?;
        loads.retain(|load| match tracker_of(deps, &load.repository) {
            Some(tracker) => Arc::ptr_eq(tracker, &self.tracker),
            None => self.is_first,
        });
        let now = BootInstant::now();
        let mut seen = HashMap::new();
        let mut due = Vec::new();
        for load in loads {
            let before = self.seen.remove(&load.repository);
            let before = before.filter(|(old, at)| *old == load && at.elapsed() < AGAIN);
            let at = before.map_or(now, |(_, at)| at);
            if at == now {
                due.push(load.clone());
            }
            seen.insert(load.repository.clone(), (load, at));
        }
        self.seen = seen;
        let admitted = admit(deps, due).await;
        if admitted.is_err() {
            self.seen.clear();
        }
        admitted
    }
}

/// The tracker of a repository; `None`: it is not configured.
fn tracker_of<'a>(
    deps: &'a ProducerDeps,
    repository: &RepositoryKey,
) -> Option<&'a Arc<dyn Tracker>> {
    let mut trackers = deps.trackers.iter();
    trackers.find(|it| it.kind() == repository.tracker && it.host() == repository.host)
}

/// Admits waiting tasks of the repositories of a tracker with this path.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn admit_in(
    deps: &ProducerDeps,
    tracker: &dyn Tracker,
    path: &str,
) -> Result<AdmittedTasks> {
    let (kind, host) = (tracker.kind(), tracker.host());
    let mut loads = deps.store.loads().await?;
    loads.retain(
        |RepositoryLoad {
             repository,
             repo_path,
             ..
         }| {
            repository.tracker == kind
                && repository.host == host
                && repo_path.eq_ignore_ascii_case(path)
        },
    );
    admit(deps, loads).await
}

async fn admit(deps: &ProducerDeps, loads: Vec<RepositoryLoad>) -> Result<AdmittedTasks> {
    let looks = loads
        .into_iter()
        .map(|load| Box::pin(in_repository(deps, load)));
    let mut looks = futures::stream::iter(looks).buffer_unordered(AT_ONCE);
    let mut admitted = Vec::new();
    while let Some(found) = looks.next().await {
        admitted.extend(found?);
    }
    Ok(admitted)
}

async fn in_repository(deps: &ProducerDeps, load: RepositoryLoad) -> Result<AdmittedTasks> {
    let (store, capacity) = (deps.store.as_ref(), &deps.config.capacity);
    let repository = load.repository.clone();
    // What ends after this moment is counted by the store.
    let since = store.scan_time().await?;
    let mut fleet = Fleet {
        load,
        open: 0,
        opened: 0,
    };
    let hold = async |reason: &str| store.hold_repository(&repository, reason).await;
    if let Some(reason) = fleet.objection(capacity, ItemKind::PullRequest, Utc::now()) {
        hold(&reason).await?;
        return Ok(Vec::new());
    }
    let tasks = store.next_waiting(&repository, LOOKS).await?;
    let Some(first) = tasks.first() else {
        return Ok(Vec::new());
    };
    let Some(tracker) = tracker_of(deps, &repository) else {
        hold("its tracker is not configured").await?;
        return Ok(Vec::new());
    };
    let open = match tracker.open_pull_requests(&first.item).await {
        Ok(open) => open,
        Err(error) => {
            hold(&format!("its repository cannot be checked: {error}")).await?;
            return Ok(Vec::new());
        }
    };
    let pulls = Pulls {
        open,
        ours: store.pull_requests_of(&repository).await?,
    };
    fleet.open = pulls.of_ours();
    if capacity.pull_requests_per_day > 0 {
        fleet.opened = store.opened_within(&repository, DAY).await?;
    }
    let mut items = Items::new(deps, tracker, pulls);
    let mut admitted = Vec::new();
    let mut full = None;
    for mut task in tasks {
        if let Some(reason) = fleet.objection(capacity, task.item.kind, Utc::now()) {
            full.get_or_insert(reason);
            continue;
        }
        match items.look(&task).await {
            Looked::Free => {}
            Looked::Waits(reason) => {
                store.hold_task(task.id, &reason, AGAIN).await?;
                continue;
            }
            Looked::Withdrawn(reason) => {
                waits::stop(deps, task.id, &reason).await?;
                continue;
            }
        }
        match store.admit(&task, &fleet.room(capacity, since)).await? {
            Admitted::Yes => {
                tracing::info!(task.id = %task.id, task.number = %task.number, item = %task.item, "the task is admitted");
                fleet.admitted(task.item.kind);
                task.card.waits_for = None;
                admitted.push((Arc::clone(tracker), task));
            }
            Admitted::NotWaiting => {}
            Admitted::Full => {
                full.get_or_insert_with(|| "other tasks took its slot".to_owned());
                if let Some(WaitsFor::Item(_)) = task.card.waits_for {
                    store.hold_task(task.id, "", AGAIN).await?;
                }
            }
        }
    }
    hold(
        full.as_deref()
            .unwrap_or("other tasks of its repository go first"),
    )
    .await?;
    Ok(admitted)
}

/// What a repository has of the fleet.
struct Fleet {
    load: RepositoryLoad,
    /// Open pull requests.
    open: u64,
    /// Pull requests of the last day.
    opened: u64,
}

impl Fleet {
    /// Why no task on an item of this kind is admitted now. Tasks on issues will open pull requests, those on pull requests
    /// will not.
    fn objection(&self, capacity: &Capacity, kind: ItemKind, now: DateTime<Utc>) -> Option<String> {
        let RepositoryLoad {
            queued,
            delayed,
            leased,
            on_issues,
            ..
        } = self.load;
        if let Some(until) = capacity.quiet_until(now) {
            return Some(format!(
                "quiet hours last until {until} (capacity.quiet_hours)"
            ));
        }
        let tasks = u64::from(capacity.running_tasks);
        if tasks > 0 && queued + leased >= tasks {
            return Some(format!(
                "{} of its repository are running or next, and capacity.running_tasks is {tasks}",
                counted(queued + leased, "task")
            ));
        }
        // A worker passes over those that are delayed.
        let ahead = queued.saturating_sub(delayed);
        if ahead >= leased.max(1) {
            return Some(format!(
                "{} of its repository wait for a free worker",
                counted(ahead, "task")
            ));
        }
        if kind == ItemKind::PullRequest {
            return None;
        }
        let most = u64::from(capacity.open_pull_requests);
        if most > 0 && self.open + on_issues >= most {
            return Some(format!(
                "its repository has {} of the fleet and {} on issues running or next, and capacity.open_pull_requests is {most}",
                counted(self.open, "open pull request"),
                counted(on_issues, "task")
            ));
        }
        let daily = u64::from(capacity.pull_requests_per_day);
        (daily > 0 && self.opened + on_issues >= daily).then(|| {
            format!(
                "its repository got {} in 24 hours and has {} on issues running or next, and capacity.pull_requests_per_day is {daily}",
                counted(self.opened, "pull request"),
                counted(on_issues, "task")
            )
        })
    }

    /// The same for the store, which counts again.
    fn room(&self, capacity: &Capacity, since: ScanTime) -> Room {
        let limit = |most: u32, used: u64| (most > 0).then(|| u64::from(most).saturating_sub(used));
        let by_open = limit(capacity.open_pull_requests, self.open);
        let by_day = limit(capacity.pull_requests_per_day, self.opened);
        Room {
            tasks: limit(capacity.running_tasks, 0),
            on_issues: by_open.into_iter().chain(by_day).min(),
            since,
        }
    }

    fn admitted(&mut self, kind: ItemKind) {
        self.load.queued += 1;
        if kind == ItemKind::Issue {
            self.load.on_issues += 1;
        }
    }
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn fleet(queued: u64, leased: u64, open: u64, opened: u64) -> Fleet {
        let load = RepositoryLoad {
            repository: RepositoryKey {
                tracker: TrackerKind::GitHub,
                host: "github.com".into(),
                repo_id: "1".into(),
            },
            repo_path: "octo/demo".into(),
            waiting: 9,
            queued,
            delayed: 0,
            leased,
            on_issues: queued + leased,
        };
        Fleet { load, open, opened }
    }

    fn objection(capacity: &Capacity, fleet: &Fleet, kind: ItemKind) -> Option<String> {
        let noon = DateTime::UNIX_EPOCH + TimeDelta::hours(12);
        fleet.objection(capacity, kind, noon)
    }

    #[test]
    fn the_reason_names_the_limit_that_is_reached() {
        let capacity = Capacity::default();
        let issue = |fleet: Fleet| objection(&capacity, &fleet, ItemKind::Issue);
        assert_eq!(issue(fleet(0, 1, 0, 0)), None);
        let reason = issue(fleet(1, 1, 0, 0)).unwrap();
        assert!(reason.contains("2 tasks") && reason.contains("running_tasks is 2"));
        let reason = issue(fleet(0, 1, 4, 0)).unwrap();
        assert!(reason.contains("4 open pull requests") && reason.contains("1 task on issues"));
        let reason = issue(fleet(0, 0, 0, 10)).unwrap();
        assert!(reason.contains("capacity.pull_requests_per_day is 10"));
        // A pull request is worked on however many there are.
        let full = fleet(0, 1, 9, 99);
        assert_eq!(objection(&capacity, &full, ItemKind::PullRequest), None);
        let quiet = Capacity {
            quiet_hours: vec!["11:00-13:30".into()],
            ..Capacity::default()
        };
        let reason = objection(&quiet, &fleet(0, 0, 0, 0), ItemKind::Issue).unwrap();
        assert!(reason.contains("until 13:30 UTC"), "{reason}");
    }

    #[test]
    fn without_limits_no_more_are_ahead_of_workers_than_they_have() {
        let unlimited = Capacity {
            running_tasks: 0,
            pull_requests_per_day: 0,
            open_pull_requests: 0,
            ..Capacity::default()
        };
        assert!(!unlimited.limits_anything());
        let waits = |queued, leased| {
            let fleet = fleet(queued, leased, 99, 99);
            objection(&unlimited, &fleet, ItemKind::Issue).is_some()
        };
        assert!(!waits(0, 0) && waits(1, 0) && waits(1, 1));
        assert!(!waits(1, 2) && waits(2, 2) && !waits(49, 50));
        // One that was given back for a time is ahead of nobody, and counts for the limits all the same.
        let mut delayed = fleet(1, 0, 0, 0);
        delayed.load.delayed = 1;
        assert_eq!(objection(&unlimited, &delayed, ItemKind::Issue), None);
        let one = Capacity {
            running_tasks: 1,
            ..Capacity::default()
        };
        let reason = objection(&one, &delayed, ItemKind::Issue).unwrap();
        assert!(reason.contains("running_tasks is 1"), "{reason}");
    }
}
