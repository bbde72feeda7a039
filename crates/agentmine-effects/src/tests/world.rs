//! A real store, a forge in memory, and one task.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{
    AssigneeType, EndState, ItemKind, ItemRef, NewTask, Priority, RepositoryRef, Task, TaskNumber,
    TaskType, TrackerKind, WorkerId, WriteScope,
};
use agentmine_runtime::config::{Labels, Secret, StoreConfig};
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::{Claim, Edited, Enqueued, LeaseEnd, NewPersonTask, Store};
use agentmine_trackers::{NewPullRequest, Tracker};
use tempfile::TempDir;
use uuid::Uuid;

use super::forge::{FakeTracker, PULL};
use crate::{EffectError, Effects, EndReport, Pushers, ReportedCommit, Reporter};

pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// No requests, or no comments.
pub(super) const NONE: [&str; 0] = [];

/// A permit that lasts for the whole test.
pub(super) fn permit() -> Permit {
    Permit::of(BootInstant::now(), 10 * MINUTE)
}

/// One that has lapsed.
pub(super) fn lapsed() -> Permit {
    Permit::of(BootInstant::now(), Duration::ZERO)
}

/// A test that waits for an event which never comes has failed.
pub(super) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(MINUTE / 3, what);
    done.await.expect("it comes to an end")
}

/// A result of the task, on a branch to which nobody else has pushed.
pub(super) fn ours(commit: &str) -> ReportedCommit {
    ReportedCommit {
        commit: commit.to_owned(),
        pushers: Pushers::Us,
        heard: None,
    }
}

/// A request for work on the one item.
pub(super) fn requested_by(trigger: &str) -> NewTask {
    NewTask {
        item: ItemRef {
            tracker: TrackerKind::GitHub,
            host: "forge.example".into(),
            repo_id: "1".into(),
            repo_path: "octo/demo".into(),
            kind: ItemKind::Issue,
            number: 7,
        },
        trigger: trigger.into(),
        title: "Greet".into(),
        url: "https://forge.example/issues/7".into(),
        priority: Priority::Medium,
    }
}

/// The second round on the first pull request.
pub(super) fn second_round() -> NewTask {
    NewTask {
        item: pull_item(),
        url: format!("https://forge.example/pull/{PULL}"),
        ..requested_by("round-2")
    }
}

/// The first pull request, as an item.
pub(super) fn pull_item() -> ItemRef {
    ItemRef {
        kind: ItemKind::PullRequest,
        number: PULL,
        ..requested_by("").item
    }
}

pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) tracker: Arc<FakeTracker>,
    pub(super) task: Task,
    _folder: TempDir,
}

async fn empty_store() -> (Arc<dyn Store>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let config = StoreConfig {
        url: Secret::new(url),
        ..StoreConfig::default()
    };
    (agentmine_store::connect(&config).await.unwrap(), folder)
}

impl World {
    /// A queued task whose item has the request label and one foreign label.
    pub(super) async fn new() -> Self {
        Self::of(&requested_by("event-1")).await
    }

    /// The same for another request.
    pub(super) async fn of(new: &NewTask) -> Self {
        let (store, folder) = empty_store().await;
        let enqueued = store.enqueue(new).await.unwrap();
        Self::with(store, folder, created(enqueued), &new.trigger)
    }

    /// A task that waits for its turn.
    pub(super) async fn waiting() -> Self {
        let (store, folder) = empty_store().await;
        let new = requested_by("event-1");
        let enqueued = store.enqueue_waiting(&new).await.unwrap();
        Self::with(store, folder, created(enqueued), &new.trigger)
    }

    /// A task that a person made for the repository. It has no item.
    pub(super) async fn of_person() -> Self {
        let (store, folder) = empty_store().await;
        let ItemRef {
            tracker,
            host,
            repo_id,
            repo_path,
            ..
        } = requested_by("").item;
        let new = NewPersonTask {
            title: "Greet".into(),
            description: "Greet everybody.".into(),
            priority: Priority::Medium,
            kind: TaskType::Task,
            assignee: None,
            assignee_type: AssigneeType::Ai,
            agent: None,
            depends_on: Vec::new(),
            write_scope: WriteScope::default(),
            repository: Some(RepositoryRef {
                tracker,
                host,
                repo_id,
                repo_path,
            }),
            retries: None,
        };
        let Edited::Done(task) = store.create_task(&new).await.unwrap() else {
            panic!("the task was not made");
        };
        Self::with(store, folder, *task, "")
    }

    fn with(store: Arc<dyn Store>, folder: TempDir, task: Task, trigger: &str) -> Self {
        let tracker = Arc::new(FakeTracker::default());
        tracker.forge().labels = vec![Labels::default().request, "bug".into()];
        tracker.forge().trigger = trigger.into();
        Self {
            store,
            tracker,
            task,
            _folder: folder,
        }
    }

    /// A later task of the same item.
    pub(super) async fn later_task(&self) -> Task {
        created(self.store.enqueue(&requested_by("event-2")).await.unwrap())
    }

    pub(super) async fn claim(&self) -> Claim {
        self.claim_of(&self.task).await
    }

    pub(super) async fn claim_of(&self, task: &Task) -> Claim {
        let worker = WorkerId("w".into());
        let claim = self
            .store
            .claim(task.id, &worker, Uuid::new_v4(), MINUTE, 3);
        claim.await.unwrap().unwrap()
    }

    pub(super) async fn end(&self, end: LeaseEnd) {
        let claim = self.claim().await;
        self.store.end_lease(&claim.lease, &end).await.unwrap();
    }

    /// The row as it is now.
    pub(super) async fn row(&self) -> Task {
        self.store.task(self.task.id).await.unwrap().unwrap()
    }

    /// Effects of a producer or sweep that has just read the task.
    pub(super) async fn reconciler(&self) -> Effects {
        self.reconciler_of(self.row().await)
    }

    /// The same under another configuration of the labels.
    pub(super) async fn relabelled(&self, labels: Labels) -> Effects {
        Effects {
            labels,
            ..self.reconciler().await
        }
    }

    pub(super) fn reconciler_of(&self, task: Task) -> Effects {
        let tracker = Arc::clone(&self.tracker) as Arc<dyn Tracker>;
        Effects::of_reconciler(Arc::clone(&self.store), tracker, Labels::default(), task)
    }

    pub(super) fn session(&self, claim: Claim) -> Effects {
        self.session_until(claim, permit())
    }

    pub(super) fn session_until(&self, Claim { task, lease }: Claim, permit: Permit) -> Effects {
        let tracker = Arc::clone(&self.tracker) as Arc<dyn Tracker>;
        let store = Arc::clone(&self.store);
        Effects::of_session(store, tracker, Labels::default(), task, lease, permit)
    }

    pub(super) fn reporter(&self, hold: Duration) -> Reporter {
        Reporter {
            store: Arc::clone(&self.store),
            tracker: Arc::clone(&self.tracker) as Arc<dyn Tracker>,
            labels: Labels::default(),
            hold,
        }
    }

    /// The sweeps of one process, until one of them gets the report.
    pub(super) async fn report_end(&self) -> Result<EndReport, EffectError> {
        self.until_ours(async |reporter: &Reporter, task: &Task| reporter.report_end(task).await)
            .await
    }

    /// The same for the second look.
    pub(super) async fn confirm_end(&self) -> Result<EndReport, EffectError> {
        self.until_ours(async |reporter: &Reporter, task: &Task| reporter.confirm_end(task).await)
            .await
    }

    async fn until_ours(
        &self,
        report: impl AsyncFn(&Reporter, &Task) -> Result<EndReport, EffectError>,
    ) -> Result<EndReport, EffectError> {
        // The permit of a report is shorter than that.
        let hold = Duration::from_secs(2);
        let reporter = self.reporter(hold);
        let begun = BootInstant::now();
        loop {
            match report(&reporter, &self.row().await).await {
                // The claim of an earlier report runs out by the database's clock.
                Ok(EndReport::NotOurs) if begun.elapsed() < 2 * hold => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                report => return report,
            }
        }
    }

    pub(super) async fn report_end_for(&self, hold: Duration) -> Result<EndReport, EffectError> {
        self.reporter(hold).report_end(&self.row().await).await
    }

    pub(super) async fn unreported(&self) -> Vec<Task> {
        let all = self.store.unreported(Duration::ZERO, TaskNumber(0), 10);
        all.await.unwrap()
    }

    pub(super) async fn unconfirmed(&self) -> Vec<Task> {
        let day = Duration::from_secs(24 * 3600);
        let none = TaskNumber(0);
        let all = self.store.unconfirmed(Duration::ZERO, day, none, 10);
        all.await.unwrap()
    }

    pub(super) fn writes(&self) -> usize {
        self.tracker.forge().requests.len()
    }

    /// The requests since the last call that would change something.
    pub(super) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.tracker.forge().requests)
    }

    pub(super) fn labels(&self) -> Vec<String> {
        self.tracker.forge().labels.clone()
    }

    /// The one comment.
    pub(super) fn comment(&self) -> String {
        let forge = self.tracker.forge();
        let [posted] = forge.comments.as_slice() else {
            panic!("{:?}", forge.comments);
        };
        assert!(posted.marker.contains("progress"), "{posted:?}");
        posted.body.clone()
    }

    /// The texts of the comments on an item: see [`super::forge::named`].
    pub(super) fn comments_on(&self, on: &str) -> Vec<String> {
        let forge = self.tracker.forge();
        let comments = forge.comments.iter().filter(|it| it.on == on);
        comments.map(|it| it.body.clone()).collect()
    }
}

fn created(enqueued: Enqueued) -> Task {
    match enqueued {
        Enqueued::Created(task) | Enqueued::Known(task) => task,
    }
}

pub(super) fn finish(state: EndState, reason: &str) -> LeaseEnd {
    LeaseEnd::Finish {
        state,
        reason: Some(reason.into()),
        pull_request_url: None,
    }
}

/// A result, which is partial if the reason says so.
pub(super) fn done(reason: Option<&str>) -> LeaseEnd {
    LeaseEnd::Finish {
        state: EndState::Done,
        reason: reason.map(str::to_owned),
        pull_request_url: Some(format!("https://forge.example/pull/{PULL}")),
    }
}

pub(super) fn pause() -> LeaseEnd {
    LeaseEnd::Pause {
        reason: "lunch".into(),
    }
}

/// A pull request whose text is its title.
pub(super) fn pull(title: &str) -> NewPullRequest {
    NewPullRequest {
        head: "agentmine/issue-7".into(),
        base: "main".into(),
        title: title.into(),
        body: title.into(),
        draft: false,
    }
}
