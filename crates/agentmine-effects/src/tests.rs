//! Tests of effects with a real store and a tracker in memory.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use agentmine_domain::{
    EffectKey, EndState, ItemKind, ItemRef, NewTask, Priority, RepositoryRef, Task, TaskId,
    TaskLabel, TaskNumber, TrackerKind, WorkerId,
};
use agentmine_runtime::config::{Labels, Secret, StoreConfig, has_label};
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::{Attempt, Claim, EffectState, Enqueued, LeaseEnd, Store, StoreError};
use agentmine_trackers::{
    Candidate, Comment, CommentKind, FLEET_MARKER, Item, LabelRequest, Marker, NewPullRequest,
    Person, PullRequest, Repository, Tracker, TrackerError,
};
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::Notify;
use uuid::Uuid;

use super::*;

/// The content of the tracker, and the number of writes.
#[derive(Debug, Default)]
struct Forge {
    labels: Vec<String>,
    /// What put the request label on the item.
    trigger: String,
    since: Option<DateTime<Utc>>,
    comments: Vec<(String, String)>,
    /// What is found when the comments are listed.
    found: Vec<Comment>,
    pulls: Vec<(PullRequest, NewPullRequest)>,
    /// Pull requests cannot be listed.
    hides_pulls: bool,
    writes: u32,
    /// Errors that the next writes return.
    refusals: Vec<TrackerError>,
    /// The next write of labels is slow.
    slow: Option<Slow>,
}

/// A write of labels that signals that it has arrived, and waits until it may continue.
#[derive(Debug, Clone, Default)]
struct Slow {
    arrived: Arc<Notify>,
    may_go_on: Arc<Notify>,
}

#[derive(Debug, Default)]
struct FakeTracker(Mutex<Forge>);

impl FakeTracker {
    fn forge(&self) -> MutexGuard<'_, Forge> {
        self.0.lock().unwrap()
    }

    fn write(&self, permit: &Permit) -> Result<MutexGuard<'_, Forge>, TrackerError> {
        let tracker = self.kind();
        permit
            .check()
            .map_err(|lapsed| TrackerError::NotPermitted { tracker, lapsed })?;
        let mut forge = self.forge();
        forge.writes += 1;
        match forge.refusals.pop() {
            Some(refusal) => Err(refusal),
            None => Ok(forge),
        }
    }
}

#[async_trait]
impl Tracker for FakeTracker {
    fn kind(&self) -> TrackerKind {
        TrackerKind::GitHub
    }

    fn host(&self) -> &str {
        "forge.example"
    }

    async fn find(&self, _: &str) -> Result<Option<ItemRef>, TrackerError> {
        Ok(None)
    }

    async fn find_repository(&self, _: &str) -> Result<Option<RepositoryRef>, TrackerError> {
        Ok(None)
    }

    async fn candidates(&self, _: &str) -> Result<Vec<Candidate>, TrackerError> {
        Ok(Vec::new())
    }

    async fn label_request(&self, _: &ItemRef, label: &str) -> Result<LabelRequest, TrackerError> {
        let forge = self.forge();
        Ok(match has_label(&forge.labels, label) {
            true => LabelRequest::By {
                trigger: forge.trigger.clone(),
                since: forge.since,
            },
            false => LabelRequest::Absent,
        })
    }

    async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
        Ok(Item {
            item: item.clone(),
            title: String::new(),
            body: String::new(),
            author: "ann".into(),
            open: true,
            withdrawn: None,
            labels: self.forge().labels.clone(),
            assignees: Vec::new(),
            url: String::new(),
            branches: None,
        })
    }

    async fn comments(&self, _: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let forge = self.forge();
        let written = forge.comments.iter().map(|(marker, body)| Comment {
            id: "1".into(),
            author: Person {
                login: "bot".into(),
                id: None,
                is_bot: false,
            },
            ours: true,
            kind: CommentKind::Plain,
            body: format!("{body}\n\n{marker}"),
            created_at: Utc::now(),
        });
        Ok(match forge.found.as_slice() {
            [] => written.collect(),
            found => found.to_vec(),
        })
    }

    async fn set_labels(
        &self,
        _: &ItemRef,
        add: &[String],
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let slow = self.forge().slow.take();
        if let Some(slow) = slow {
            slow.arrived.notify_one();
            slow.may_go_on.notified().await;
        }
        let mut forge = self.write(permit)?;
        // As GitHub: names that differ by case alone are one label, and a removal comes after the additions.
        forge.labels.retain(|label| !has_label(add, label));
        forge.labels.extend_from_slice(add);
        forge.labels.retain(|label| !has_label(remove, label));
        Ok(())
    }

    async fn write_comment(
        &self,
        _: &ItemRef,
        marker: &Marker,
        body: &str,
        permit: &Permit,
    ) -> Result<String, TrackerError> {
        let mut forge = self.write(permit)?;
        if forge.comments.iter().any(|it| marker.yields_to(&it.0)) {
            return Ok("1".into());
        }
        forge.comments.retain(|(known, _)| !marker.is_in(known));
        let text = marker.append("").trim().to_owned();
        forge.comments.push((text, body.to_owned()));
        Ok("1".into())
    }

    async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError> {
        Err(TrackerError::NotFound {
            tracker: self.kind(),
            what: item.to_string(),
        })
    }

    async fn file(&self, _: &ItemRef, _: &str, _: &str) -> Result<Option<String>, TrackerError> {
        Ok(None)
    }

    async fn find_pull_request(
        &self,
        _: &ItemRef,
        head: &str,
    ) -> Result<Option<PullRequest>, TrackerError> {
        let forge = self.forge();
        if forge.hides_pulls {
            return Err(unavailable());
        }
        let found = forge.pulls.iter().find(|(_, new)| new.head == head);
        Ok(found.map(|(pull, _)| pull.clone()))
    }

    async fn create_pull_request(
        &self,
        _: &ItemRef,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<PullRequest, TrackerError> {
        let mut forge = self.write(permit)?;
        let number = forge.pulls.len() as u64 + 1;
        let pull = PullRequest {
            number,
            url: format!("https://forge.example/pull/{number}"),
            open: true,
            merged: false,
        };
        forge.pulls.push((pull.clone(), new.clone()));
        Ok(pull)
    }

    async fn update_pull_request(
        &self,
        _: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let mut forge = self.write(permit)?;
        for (_, known) in forge
            .pulls
            .iter_mut()
            .filter(|(pull, _)| pull.number == number)
        {
            *known = new.clone();
        }
        Ok(())
    }

    async fn login(&self) -> Result<String, TrackerError> {
        Ok("bot".into())
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// A permit that lasts for the whole test.
fn permit() -> Permit {
    Permit::of(BootInstant::now(), 10 * MINUTE)
}

/// A request for work on the one item.
fn requested_by(trigger: &str) -> NewTask {
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

struct World {
    store: Arc<dyn Store>,
    tracker: Arc<FakeTracker>,
    task: Task,
    _folder: tempfile::TempDir,
}

impl World {
    /// A queued task whose item has the request label and one foreign label.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let config = StoreConfig {
            url: Secret::new(url),
            ..StoreConfig::default()
        };
        let store = agentmine_store::connect(&config).await.unwrap();
        let new = requested_by("event-1");
        let (Enqueued::Created(task) | Enqueued::Known(task)) = store.enqueue(&new).await.unwrap();
        let tracker = Arc::new(FakeTracker::default());
        tracker.forge().labels = vec![Labels::default().request, "bug".into()];
        tracker.forge().trigger = "event-1".into();
        Self {
            store,
            tracker,
            task,
            _folder: folder,
        }
    }

    /// A later task of the same item.
    async fn later_task(&self) -> Task {
        let again = self.store.enqueue(&requested_by("event-2")).await.unwrap();
        let Enqueued::Created(later) = again else {
            panic!("{again:?}");
        };
        later
    }

    async fn claim(&self) -> Claim {
        let (worker, lease) = (WorkerId("w".into()), Duration::from_secs(60));
        let claim = self
            .store
            .claim(self.task.id, &worker, Uuid::new_v4(), lease, 3);
        claim.await.unwrap().unwrap()
    }

    async fn end(&self, end: LeaseEnd) {
        let claim = self.claim().await;
        self.store.end_lease(&claim.lease, &end).await.unwrap();
    }

    /// Effects of a producer or sweep that has just read the task.
    async fn reconciler(&self) -> Effects {
        let task = self.store.task(self.task.id).await.unwrap().unwrap();
        self.reconciler_of(task)
    }

    /// The same under another configuration of the labels.
    async fn relabelled(&self, labels: Labels) -> Effects {
        Effects {
            labels,
            ..self.reconciler().await
        }
    }

    fn reconciler_of(&self, task: Task) -> Effects {
        let tracker = Arc::clone(&self.tracker) as Arc<dyn Tracker>;
        Effects::of_reconciler(Arc::clone(&self.store), tracker, Labels::default(), task)
    }

    /// The sweeps of one process, until one of them gets the report.
    async fn report_end(&self) -> Result<EndReport, EffectError> {
        let hold = Duration::from_secs(2);
        let begun = BootInstant::now();
        loop {
            match self.report_end_for(hold).await {
                // The claim of an earlier report runs out by the database's clock.
                Ok(EndReport::NotOurs) if begun.elapsed() < 2 * hold => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                report => return report,
            }
        }
    }

    async fn unreported(&self) -> Vec<Task> {
        let all = self.store.unreported(Duration::ZERO, TaskNumber(0), 10);
        all.await.unwrap()
    }

    async fn report_end_for(&self, hold: Duration) -> Result<EndReport, EffectError> {
        let task = self.store.task(self.task.id).await.unwrap().unwrap();
        let reporter = Reporter {
            store: Arc::clone(&self.store),
            tracker: Arc::clone(&self.tracker) as Arc<dyn Tracker>,
            labels: Labels::default(),
            hold,
        };
        reporter.report_end(&task).await
    }

    fn session(&self, Claim { task, lease }: Claim) -> Effects {
        let tracker = Arc::clone(&self.tracker) as Arc<dyn Tracker>;
        Effects::of_session(
            Arc::clone(&self.store),
            tracker,
            Labels::default(),
            task,
            lease,
            permit(),
        )
    }

    fn writes(&self) -> u32 {
        self.tracker.forge().writes
    }

    fn labels(&self) -> Vec<String> {
        self.tracker.forge().labels.clone()
    }

    fn comment(&self) -> String {
        let forge = self.tracker.forge();
        let [(marker, body)] = forge.comments.as_slice() else {
            panic!("{:?}", forge.comments);
        };
        assert!(marker.contains("progress"), "{marker}");
        body.clone()
    }
}

fn finish(state: EndState, reason: &str) -> LeaseEnd {
    LeaseEnd::Finish {
        state,
        reason: Some(reason.into()),
        pull_request_url: None,
    }
}

fn unavailable() -> TrackerError {
    TrackerError::Unavailable {
        tracker: TrackerKind::GitHub,
        detail: "503".into(),
        until: None,
    }
}

fn refused() -> TrackerError {
    TrackerError::Refused {
        tracker: TrackerKind::GitHub,
        detail: "archived".into(),
    }
}

fn pull(title: &str) -> NewPullRequest {
    NewPullRequest {
        head: "agentmine/issue-7".into(),
        base: "main".into(),
        title: title.into(),
        body: String::new(),
        draft: false,
    }
}

#[tokio::test]
async fn a_label_replaces_the_fleets_labels_and_keeps_foreign_ones() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    for label in TaskLabel::ALL {
        effects.label(*label).await.unwrap();
        let expected = [
            "bug".to_owned(),
            item_labels::name(*label, &Labels::default()).clone(),
        ];
        assert_eq!(world.labels(), expected);
    }
}

#[tokio::test]
async fn a_label_is_moved_once_in_each_epoch() {
    let world = World::new().await;
    let first = world.session(world.claim().await);
    first.label(TaskLabel::Paused).await.unwrap();
    first.label(TaskLabel::Paused).await.unwrap();
    assert_eq!(world.writes(), 1);
    let release = LeaseEnd::Release {
        reason: "drain".into(),
        delay: Duration::ZERO,
        attempt: Attempt::Refunded,
    };
    let lease = first.lease.clone().unwrap();
    world.store.end_lease(&lease, &release).await.unwrap();
    let second = world.session(world.claim().await);
    second.label(TaskLabel::Paused).await.unwrap();
    assert_eq!(world.writes(), 2);
}

#[tokio::test]
async fn a_label_that_failed_is_set_by_the_next_call() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    world.tracker.forge().refusals.push(unavailable());
    let error = effects.label(TaskLabel::Done).await.unwrap_err();
    assert!(matches!(error, EffectError::Tracker(_)), "{error}");
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().done]);
}

#[tokio::test]
async fn a_request_that_was_made_during_the_work_stays_on_the_item() {
    let world = World::new().await;
    let Labels { request, done, .. } = Labels::default();
    let effects = world.session(world.claim().await);
    effects.label(TaskLabel::Processing).await.unwrap();
    assert!(!world.labels().contains(&request));
    // A person adds the label again.
    world.tracker.forge().labels.push(request.clone());
    world.tracker.forge().trigger = "event-2".into();
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.labels(), ["bug", &request, &done]);
}

#[tokio::test]
async fn no_effect_begins_under_a_lost_lease() {
    let world = World::new().await;
    let claim = world.claim().await;
    let release = finish(EndState::Stopped, "enough");
    world.store.end_lease(&claim.lease, &release).await.unwrap();
    let effects = world.session(claim);
    let fenced = |error: EffectError| matches!(error, EffectError::Store(StoreError::Fenced(_)));
    assert!(fenced(effects.label(TaskLabel::Done).await.unwrap_err()));
    assert!(fenced(effects.comment("x").await.unwrap_err()));
    assert!(fenced(
        effects
            .pull_request(&pull("x"), "c", None)
            .await
            .unwrap_err()
    ));
    assert_eq!(world.writes(), 0);
}

#[tokio::test]
async fn a_queued_task_is_labelled_once_and_a_claimed_one_is_not() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    effects.label_queued().await.unwrap();
    effects.label_queued().await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
    assert_eq!(world.writes(), 1);

    let world = World::new().await;
    world.claim().await;
    world.reconciler().await.label_queued().await.unwrap();
    assert_eq!(world.writes(), 0);
}

#[tokio::test]
async fn a_task_that_ended_since_it_was_read_does_not_stay_labelled_as_processing() {
    let world = World::new().await;
    let read_before = world.reconciler().await;
    world.end(finish(EndState::Done, "")).await;
    world
        .tracker
        .forge()
        .labels
        .push(Labels::default().processing);
    read_before.label_queued().await.unwrap();
    assert!(!world.labels().contains(&Labels::default().processing));
}

#[tokio::test]
async fn a_task_that_was_claimed_since_it_was_read_keeps_the_label_of_its_worker() {
    let world = World::new().await;
    let read_before = world.reconciler().await;
    let worker = world.session(world.claim().await);
    worker.label(TaskLabel::Processing).await.unwrap();
    let writes = world.writes();
    read_before.label_queued().await.unwrap();
    assert_eq!(world.writes(), writes);
}

#[tokio::test]
async fn the_comment_is_edited_in_place() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.comment("first").await.unwrap();
    effects.comment("second").await.unwrap();
    assert_eq!(world.comment(), "second");
}

#[tokio::test]
async fn a_pull_request_whose_response_was_lost_is_not_opened_again() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    // The first attempt was killed between the tracker's write and the record of it.
    let key = EffectKey::pull_request("agentmine/issue-7");
    effects.begin(&key).await.unwrap();
    let item = &world.task.item;
    world
        .tracker
        .create_pull_request(item, &pull("old"), &permit())
        .await
        .unwrap();
    let opened = effects
        .pull_request(&pull("new"), "commit-1", None)
        .await
        .unwrap();
    assert_eq!(opened.number, 1);
    let forge = world.tracker.forge();
    assert_eq!(forge.pulls.len(), 1);
    assert_eq!(forge.pulls[0].1.title, "new");
}

#[tokio::test]
async fn an_open_pull_request_is_updated_only_for_another_commit() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects
        .pull_request(&pull("one"), "commit-1", None)
        .await
        .unwrap();
    effects
        .pull_request(&pull("same"), "commit-1", None)
        .await
        .unwrap();
    assert_eq!(world.writes(), 1);
    effects
        .pull_request(&pull("two"), "commit-2", None)
        .await
        .unwrap();
    assert_eq!(world.tracker.forge().pulls[0].1.title, "two");
    assert_eq!(world.writes(), 2);
    world.tracker.forge().pulls[0].0.open = false;
    let closed = effects
        .pull_request(&pull("three"), "commit-3", None)
        .await
        .unwrap();
    assert!(!closed.open);
    assert_eq!(world.writes(), 2);
}

#[tokio::test]
async fn what_a_pull_request_was_about_to_say_of_another_commit_is_not_taken_for_said() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = NewPullRequest {
        head: world.task.branch(),
        ..pull("one")
    };
    effects.pull_request(&new, "commit-1", None).await.unwrap();
    world.tracker.forge().refusals.push(unavailable());
    let update = effects.pull_request(&new, "commit-2", Some("the check failed"));
    update.await.unwrap_err();
    let earlier = effects.earlier_pull_request().await.unwrap().unwrap();
    assert_eq!(earlier.missing, None, "the text reports on commit-1");
}

#[tokio::test]
async fn the_comment_on_the_editor_survives_the_end() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.editor_comment("no editor").await.unwrap();
    effects.comment("done").await.unwrap();
    let text = world.comment();
    assert_eq!(text, "done\n\n<!-- agentmine:notice -->\nno editor");
    // An answer is below it, and each is there once.
    effects.answer("An answer.").await.unwrap();
    effects.answer("Another one.").await.unwrap();
    let notice = "\n\n<!-- agentmine:notice -->\n";
    assert_eq!(world.comment(), format!("{text}{notice}Another one."));
}

/// Whatever the order of their writes.
#[tokio::test]
async fn the_tasks_of_an_item_share_one_comment_that_shows_the_newest() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.comment("first").await.unwrap();
    let done = LeaseEnd::Finish {
        state: EndState::Done,
        reason: None,
        pull_request_url: Some("https://forge.example/pull/1".into()),
    };
    let lease = effects.lease.clone().unwrap();
    world.store.end_lease(&lease, &done).await.unwrap();
    let later = world.reconciler_of(world.later_task().await);
    let earlier = world.reconciler().await;
    // The later task has said nothing yet.
    earlier.comment("first again").await.unwrap();
    assert_eq!(world.comment(), "first again");
    later.comment("second").await.unwrap();
    let folded = "\n\n<!-- agentmine:earlier -->\n<details><summary>Earlier</summary>\n\n- Task 1: done, https://forge.example/pull/1\n\n</details>";
    assert_eq!(world.comment(), format!("second{folded}"));
    earlier.comment("late").await.unwrap();
    assert_eq!(world.comment(), format!("second{folded}"));
    // What a person asked about the earlier task is answered all the same.
    earlier.answer("It is done.").await.unwrap();
    let answer = "\n\n<!-- agentmine:notice -->\nAbout task 1: It is done.";
    assert_eq!(world.comment(), format!("second{answer}{folded}"));
}

#[tokio::test]
async fn the_earlier_tasks_of_an_item_are_bounded() {
    let world = World::new().await;
    let mut task = world.task.clone();
    for at in 0..24 {
        world.store.request_stop(task.id, "enough").await.unwrap();
        let again = requested_by(&format!("again-{at}"));
        let Enqueued::Created(next) = world.store.enqueue(&again).await.unwrap() else {
            panic!("known");
        };
        task = next;
    }
    world.reconciler_of(task).comment("newest").await.unwrap();
    let text = world.comment();
    assert_eq!(text.matches("\n- Task ").count(), 20, "{text}");
    assert!(text.contains("\n- Task 24: stopped\n"), "{text}");
    assert!(
        text.contains("\n- Task 5: stopped\n- and earlier ones\n"),
        "{text}"
    );
}

#[tokio::test]
async fn each_end_is_reported_with_its_comment_and_label() {
    let labels = Labels::default();
    let done = |missing: Option<&str>| LeaseEnd::Finish {
        state: EndState::Done,
        reason: missing.map(str::to_owned),
        pull_request_url: Some("https://forge.example/pull/1".into()),
    };
    for (end, label, text) in [
        (done(None), &labels.done, "with the measured results"),
        (
            done(Some("partial: the check failed")),
            &labels.done,
            "**a partial result**: https://forge.example/pull/1\n\nNot done:\n\n```text\nthe check failed\n```",
        ),
        (
            finish(EndState::Failed, "no disk"),
            &labels.failed,
            "```text\nno disk\n```",
        ),
        (
            finish(EndState::Stopped, "enough"),
            &labels.stopped,
            "stopped: enough.",
        ),
    ] {
        let world = World::new().await;
        world.end(end).await;
        world.report_end().await.unwrap();
        assert!(world.comment().contains(text), "{}", world.comment());
        assert!(
            world
                .comment()
                .ends_with("<sub>AgentMine, session ended</sub>")
        );
        assert_eq!(world.labels(), ["bug", label]);
        let left = world.unreported().await;
        assert_eq!(left, [], "nothing is left to report");
    }
}

#[tokio::test]
async fn a_pause_is_reported_by_its_label_and_a_queued_task_is_not_reported() {
    let world = World::new().await;
    let queued = world.report_end_for(MINUTE).await.unwrap();
    assert_eq!((queued, world.writes()), (EndReport::NotOurs, 0));
    world
        .end(LeaseEnd::Pause {
            reason: "later".into(),
        })
        .await;
    world.report_end().await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().paused]);
    assert!(world.tracker.forge().comments.is_empty());
}

#[tokio::test]
async fn a_refused_report_is_given_up_and_a_temporary_failure_is_retried() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    world.tracker.forge().refusals.push(unavailable());
    world.report_end().await.unwrap_err();
    let left = world.unreported().await;
    assert_eq!(left.len(), 1, "it is retried");
    world.tracker.forge().refusals.push(refused());
    world.report_end().await.unwrap();
    let left = world.unreported().await;
    assert_eq!(left, [], "it is not retried forever");
}

#[tokio::test]
async fn a_long_reason_is_truncated_in_the_comment() {
    let world = World::new().await;
    world
        .end(finish(EndState::Failed, &"x".repeat(20_000)))
        .await;
    world.report_end().await.unwrap();
    let comment = world.comment();
    assert!(comment.len() < 9_000 && comment.contains('…'));
}

#[tokio::test]
async fn an_end_is_reported_by_one_of_many_processes() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    let reports = (0..8).map(|_| world.report_end_for(MINUTE));
    let reports = futures::future::join_all(reports).await;
    let written = reports
        .into_iter()
        .filter(|report| matches!(report, Ok(EndReport::Written)));
    assert_eq!(written.count(), 1);
    assert_eq!(world.writes(), 2, "one comment and one label");
}

#[tokio::test]
async fn a_report_that_was_listed_before_another_process_wrote_it_is_not_written_again() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    world.report_end().await.unwrap();
    let writes = world.writes();
    world.report_end().await.unwrap();
    assert_eq!(world.writes(), writes);
}

/// Adding a label and removing the others are several requests on GitHub.
#[tokio::test]
async fn a_request_that_an_interrupted_write_left_on_the_item_is_removed() {
    let labels = Labels::default();
    let left = vec!["bug".into(), labels.request.clone(), labels.stopped.clone()];
    let world = World::new().await;
    world.end(finish(EndState::Stopped, "enough")).await;
    let effects = world.reconciler().await;
    let key = EffectKey::label(TaskLabel::Stopped, effects.task.epoch);
    effects.begin(&key).await.unwrap();
    world.tracker.forge().labels = left.clone();
    world.report_end().await.unwrap();
    assert_eq!(world.labels(), ["bug", &labels.stopped]);
    // Nor is it left if it comes back after the report.
    world.tracker.forge().labels = left;
    let effects = world.reconciler().await;
    effects.put_right(TaskLabel::Stopped).await.unwrap();
    assert_eq!(world.labels(), ["bug", &labels.stopped]);
}

#[tokio::test]
async fn a_label_that_was_set_before_a_kill_is_not_set_again() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.label(TaskLabel::Processing).await.unwrap();
    let key = EffectKey::label(TaskLabel::Done, effects.task.epoch);
    effects.begin(&key).await.unwrap();
    // The writer was killed between the tracker's write and the record of it.
    let Labels {
        processing, done, ..
    } = Labels::default();
    let item = &world.task.item;
    let (add, remove) = ([done], [processing]);
    let permit = permit();
    let moved = world.tracker.set_labels(item, &add, &remove, &permit);
    moved.await.unwrap();
    let writes = world.writes();
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.writes(), writes, "it is looked up first");
    assert!(matches!(
        effects.begin(&key).await.unwrap(),
        EffectState::Done(_)
    ));
}

#[tokio::test]
async fn nothing_is_written_once_the_permit_of_a_session_has_lapsed() {
    let world = World::new().await;
    let effects = Effects {
        permit: Permit::of(BootInstant::now(), Duration::ZERO),
        ..world.session(world.claim().await)
    };
    let refused = |error: EffectError| {
        matches!(
            error,
            EffectError::Tracker(TrackerError::NotPermitted { .. })
        )
    };
    assert!(refused(effects.label(TaskLabel::Done).await.unwrap_err()));
    assert!(refused(effects.comment("x").await.unwrap_err()));
    let pull_request = effects.pull_request(&pull("x"), "c", None).await;
    assert!(refused(pull_request.unwrap_err()));
}

#[tokio::test]
async fn a_stop_after_the_pull_request_was_opened_mentions_it() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = NewPullRequest {
        head: world.task.branch(),
        ..pull("one")
    };
    let opened = effects.pull_request(&new, "commit-1", None).await.unwrap();
    effects.report_stopped("enough", "1").await.unwrap();
    let said = format!("Its pull request stays open: {}.", opened.url);
    assert!(world.comment().contains(&said), "{}", world.comment());
}

#[tokio::test]
async fn a_label_under_an_earlier_name_is_replaced_too() {
    let world = World::new().await;
    world.reconciler().await.label_queued().await.unwrap();
    let labels = Labels {
        request: "robot".into(),
        processing: "robot busy".into(),
        stopped: "robot stopped".into(),
        ..Labels::default()
    };
    world.end(finish(EndState::Stopped, "enough")).await;
    let effects = world.relabelled(labels).await;
    effects.label(TaskLabel::Stopped).await.unwrap();
    assert_eq!(world.labels(), ["bug", "robot stopped"]);
}

/// The former name and the one that is written are one label on GitHub.
#[tokio::test]
async fn a_label_whose_name_changed_by_case_alone_stays_on_the_item() {
    let world = World::new().await;
    let former = Labels {
        processing: "Coding Agent Processing".into(),
        ..Labels::default()
    };
    let before = world.relabelled(former).await;
    before.label_queued().await.unwrap();
    let now = world.reconciler().await;
    now.label_answered().await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
}

/// GitHub shows a label by the name that it was made with.
#[tokio::test]
async fn a_request_is_seen_whatever_the_case_of_its_label_is() {
    let labels = Labels::default();
    let world = World::new().await;
    world.end(finish(EndState::Stopped, "enough")).await;
    world.report_end().await.unwrap();
    let requested = vec!["bug".into(), labels.request.to_uppercase()];
    world.tracker.forge().labels = requested.clone();
    world.tracker.forge().trigger = "event-2".into();
    let effects = world.reconciler().await;
    effects.put_right(TaskLabel::Stopped).await.unwrap();
    assert_eq!(world.labels(), requested, "it asks for work again");
}

#[tokio::test]
async fn the_late_report_of_an_older_task_leaves_the_label_of_the_later_one() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    world.later_task().await;
    let processing = Labels::default().processing;
    world.tracker.forge().labels = vec!["bug".into(), processing.clone()];
    world.report_end().await.unwrap();
    assert_eq!(world.labels(), ["bug", &processing]);
    assert!(world.comment().contains("no disk"), "it is reported");
    let left = world.unreported().await;
    assert_eq!(left, [], "nothing is left to report");
}

/// What happens while a writer's first change of labels is under way.
async fn during<T>(
    world: &World,
    writer: impl Future<Output = Result<T, EffectError>>,
    meanwhile: impl Future<Output = ()>,
) {
    let slow = Slow::default();
    world.tracker.forge().slow = Some(slow.clone());
    let meanwhile = async {
        slow.arrived.notified().await;
        meanwhile.await;
        slow.may_go_on.notify_one();
    };
    let (written, ()) = tokio::join!(writer, meanwhile);
    written.map(drop).unwrap();
}

/// What happens while the label of an end is written.
async fn reported_while(world: &World, meanwhile: impl Future<Output = ()>) {
    during(world, world.report_end_for(MINUTE), meanwhile).await;
}

/// A producer that is stalled for so long that nobody looks at the labels again.
#[tokio::test]
async fn a_task_that_was_labelled_late_as_queued_keeps_the_label_of_its_end_or_pause() {
    let labels = Labels::default();
    let pause = LeaseEnd::Pause {
        reason: "lunch".into(),
    };
    for (end, label, name) in [
        (finish(EndState::Done, ""), TaskLabel::Done, &labels.done),
        (pause, TaskLabel::Paused, &labels.paused),
    ] {
        let world = World::new().await;
        let producer = world.reconciler().await;
        during(&world, producer.label_queued(), async {
            let claim = world.claim().await;
            let lease = claim.lease.clone();
            world.session(claim).label(label).await.unwrap();
            world.store.end_lease(&lease, &end).await.unwrap();
        })
        .await;
        assert_eq!(world.labels(), ["bug", name]);
    }
}

#[tokio::test]
async fn a_pause_that_is_reported_late_does_not_replace_the_label_of_the_resumed_task() {
    let world = World::new().await;
    let pause = LeaseEnd::Pause {
        reason: "lunch".into(),
    };
    world.end(pause).await;
    Box::pin(reported_while(&world, async {
        assert!(world.store.resume(world.task.id).await.unwrap());
        let worker = world.session(world.claim().await);
        worker.label(TaskLabel::Processing).await.unwrap();
    }))
    .await;
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
}

#[tokio::test]
async fn an_end_that_is_reported_late_does_not_replace_the_label_of_a_later_task() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    Box::pin(reported_while(&world, async {
        let later = world.later_task().await;
        world.tracker.forge().trigger = "event-2".into();
        world.reconciler_of(later).label_queued().await.unwrap();
    }))
    .await;
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
}

#[tokio::test]
async fn a_pull_request_that_was_recorded_is_known_while_the_tracker_is_away() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let head = world.task.branch();
    let new = NewPullRequest {
        head: head.clone(),
        ..pull("one")
    };
    world.tracker.forge().hides_pulls = true;
    let key = EffectKey::pull_request(&head);
    effects.begin(&key).await.unwrap();
    let unsure = effects.earlier_pull_request().await.unwrap_err();
    assert!(matches!(unsure, EffectError::Tracker(_)), "{unsure}");
    world.tracker.forge().hides_pulls = false;
    let opened = effects.pull_request(&new, "commit-1", Some("tests"));
    let opened = opened.await.unwrap();
    world.tracker.forge().hides_pulls = true;
    let earlier = effects.earlier_pull_request().await.unwrap().unwrap();
    assert_eq!(earlier.pull, opened);
    assert_eq!(earlier.missing.as_deref(), Some("tests"));
}

#[tokio::test]
async fn a_request_that_was_made_after_a_pause_stays_and_one_before_it_does_not() {
    let Labels {
        request, paused, ..
    } = Labels::default();
    for (seconds, expected) in [
        (3, vec!["bug", &request, &paused]),
        (-3, vec!["bug", &paused]),
    ] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        effects.label(TaskLabel::Processing).await.unwrap();
        let pause = world.store.request_pause(world.task.id, "lunch");
        assert!(pause.await.unwrap());
        {
            let mut forge = world.tracker.forge();
            forge.labels.push(request.clone());
            forge.trigger = "event-2".into();
            forge.since = Some(Utc::now() + TimeDelta::seconds(seconds));
        }
        effects.label(TaskLabel::Paused).await.unwrap();
        assert_eq!(world.labels(), expected, "{seconds}");
    }
}

/// An item without a task, and what corrects its label.
fn orphan_of(world: &World) -> (ItemRef, Reporter) {
    let item = ItemRef {
        number: 8,
        ..world.task.item.clone()
    };
    let reporter = Reporter {
        store: Arc::clone(&world.store),
        tracker: Arc::clone(&world.tracker) as Arc<dyn Tracker>,
        labels: Labels::default(),
        hold: MINUTE,
    };
    (item, reporter)
}

#[tokio::test]
async fn an_item_of_another_fleet_is_left_alone_for_a_day() {
    let world = World::new().await;
    let (item, reporter) = orphan_of(&world);
    let look = async |hours: i64, task: TaskId, label: String| {
        let since = Utc::now() - TimeDelta::hours(hours);
        {
            let mut forge = world.tracker.forge();
            forge.labels = vec![label];
            forge.since = Some(since);
            forge.found = vec![Comment {
                id: "1".into(),
                author: Person {
                    login: "bot".into(),
                    id: None,
                    is_bot: false,
                },
                ours: true,
                kind: CommentKind::Plain,
                body: format!("At work.\n\n<!-- {FLEET_MARKER}{task}:progress -->"),
                created_at: since,
            }];
        }
        let orphan = reporter.put_orphan_right(&item).await.unwrap();
        (orphan, world.labels())
    };
    let (processing, stopped) = (Labels::default().processing, Labels::default().stopped);
    // As the forge spells it.
    let spelled = processing.to_uppercase();
    let foreign = look(23, TaskId::new(), spelled.clone()).await;
    assert_eq!(foreign, (Orphan::Foreign, vec![spelled]));
    let forgotten = look(25, TaskId::new(), processing.clone()).await;
    assert_eq!(forgotten, (Orphan::PutRight, vec![stopped.clone()]));
    let known = look(23, world.task.id, processing).await;
    assert_eq!(known, (Orphan::PutRight, vec![stopped]));
}

#[tokio::test]
async fn an_orphan_gets_the_label_of_a_task_that_is_made_meanwhile() {
    let world = World::new().await;
    let (item, reporter) = orphan_of(&world);
    let slow = Slow::default();
    {
        let mut forge = world.tracker.forge();
        forge.labels = vec![Labels::default().processing];
        forge.slow = Some(slow.clone());
    }
    let made = async {
        slow.arrived.notified().await;
        let new = NewTask {
            item: item.clone(),
            ..requested_by("event-3")
        };
        let Enqueued::Created(task) = world.store.enqueue(&new).await.unwrap() else {
            panic!("it is known");
        };
        assert!(world.store.request_pause(task.id, "lunch").await.unwrap());
        slow.may_go_on.notify_one();
    };
    let (orphan, ()) = tokio::join!(reporter.put_orphan_right(&item), made);
    assert_eq!(orphan.unwrap(), Orphan::Live);
    assert_eq!(world.labels(), [Labels::default().paused]);
}
