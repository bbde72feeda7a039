//! One suite for both databases: each fact is a function of a [`World`], run once for each.
//!
//! Postgres gets a database of its own per test, made by `connect` itself and dropped at the end; SQLite
//! a file in a temporary folder. No test sleeps for a lease: they are of zero length, or awaited by the
//! database's own clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use agentmine_domain::*;
use agentmine_runtime::config::{self, Secret};
use async_trait::async_trait;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::*;

const MINUTE: Duration = Duration::from_secs(60);
const NONE: Duration = Duration::ZERO;

struct World {
    store: Arc<dyn Store>,
    config: config::StoreConfig,
}

impl World {
    async fn new_task(&self, number: u64) -> Task {
        match self.store.enqueue(&issue(number, "e1")).await.unwrap() {
            Enqueued::Created(task) => task,
            Enqueued::Known(task) => panic!("known: {task:?}"),
        }
    }

    async fn claim(&self, task: TaskId, lease: Duration) -> Option<Claim> {
        self.claim_of(task, lease, 3).await
    }

    async fn claim_of(&self, task: TaskId, lease: Duration, max: u32) -> Option<Claim> {
        let (worker, nonce) = (WorkerId("host/1/0".into()), Uuid::new_v4());
        let claim = self.store.claim(task, &worker, nonce, lease, max).await;
        claim.unwrap()
    }

    async fn leased(&self, number: u64) -> Lease {
        let task = self.new_task(number).await;
        self.claim(task.id, MINUTE).await.unwrap().lease
    }

    async fn task(&self, id: TaskId) -> Task {
        self.store.task(id).await.unwrap().unwrap()
    }

    async fn relay(&self) -> Vec<TaskId> {
        let outbox = Outbox::default();
        self.store.relay_outbox(100, &outbox).await.unwrap();
        outbox.sent()
    }

    async fn sweep(&self, wakeup_after: Duration) -> SweepReport {
        let policy = SweepPolicy {
            max_attempts: 3,
            wakeup_after,
        };
        self.store.sweep(&policy).await.unwrap()
    }
}

/// A publisher that records, and fails when told to.
#[derive(Default)]
struct Outbox {
    sent: Mutex<Vec<WakeUp>>,
    fail_after: Option<usize>,
}

impl Outbox {
    fn sent(&self) -> Vec<TaskId> {
        self.sent.lock().unwrap().iter().map(|w| w.task).collect()
    }
}

#[async_trait]
impl Publish for Outbox {
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), String> {
        // Lets the other relay in between.
        tokio::task::yield_now().await;
        let mut sent = self.sent.lock().unwrap();
        if self.fail_after.is_some_and(|n| sent.len() >= n) {
            return Err("no broker".into());
        }
        sent.push(wake_up.clone());
        Ok(())
    }
}

fn issue(number: u64, trigger: &str) -> NewTask {
    NewTask {
        item: ItemRef {
            tracker: TrackerKind::GitHub,
            host: "github.com".into(),
            repo_id: "42".into(),
            repo_path: "acme/shop".into(),
            kind: ItemKind::Issue,
            number,
        },
        trigger: trigger.into(),
        title: format!("Issue {number}"),
        url: format!("https://github.com/acme/shop/issues/{number}"),
        priority: Priority::Medium,
    }
}

fn note(text: &str) -> NewStep {
    NewStep {
        kind: StepKind::Note,
        payload: StepPayload::encode(&json!({ "text": text })).unwrap(),
        duration_ms: 7,
    }
}

fn done() -> LeaseEnd {
    LeaseEnd::Finish {
        state: EndState::Done,
        reason: None,
        pull_request_url: Some("https://github.com/acme/shop/pull/9".into()),
    }
}

fn release(attempt: Attempt, delay: Duration) -> LeaseEnd {
    LeaseEnd::Release {
        reason: "draining".into(),
        delay,
        attempt,
    }
}

fn is_fenced<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Fenced(_)))
}

/// Every write that a lease guards is refused.
async fn every_write_is_fenced(world: &World, late: &Lease) {
    let store = &world.store;
    let before = store.steps(late.task).await.unwrap().len();
    assert!(is_fenced(store.heartbeat(late, MINUTE).await));
    assert!(is_fenced(store.check(late).await));
    assert!(is_fenced(store.set_phase(late, Phase::Running).await));
    assert!(is_fenced(store.append_step(late, &note("late")).await));
    let usage = Usage::default();
    assert!(is_fenced(store.record_usage(late, "m", &usage).await));
    let checkpoint = Checkpoint {
        seq: Seq(1),
        commit: "abc".into(),
        bundle: vec![1],
    };
    assert!(is_fenced(store.save_checkpoint(late, &checkpoint).await));
    let key = EffectKey::pull_request("late");
    let begun = store.effect_begin(late.task, Some(late), &key).await;
    assert!(is_fenced(begun));
    assert!(is_fenced(store.end_lease(late, &done()).await));
    assert_eq!(store.steps(late.task).await.unwrap().len(), before);
    assert_eq!(store.checkpoints(late.task).await.unwrap(), []);
}

async fn a_task_is_recorded_once_for_its_trigger_and_item(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await;
    assert_eq!(task.number, TaskNumber(1));
    assert_eq!(task.state, TaskState::Queued);
    assert_eq!((task.epoch, task.attempt), (Epoch(0), 0));
    assert_eq!(store.task(task.id).await.unwrap().unwrap(), task);

    let again = store.enqueue(&issue(1, "e1")).await.unwrap();
    assert_eq!(again, Enqueued::Known(task.clone()));
    // Another trigger of an item whose task is not over.
    let other = store.enqueue(&issue(1, "e2")).await.unwrap();
    assert_eq!(other, Enqueued::Known(task.clone()));

    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    store.end_lease(&lease, &done()).await.unwrap();
    // A stale scan reports the old trigger: still known. A new trigger makes a new task.
    let stale = store.enqueue(&issue(1, "e1")).await.unwrap();
    assert!(matches!(stale, Enqueued::Known(t) if t.id == task.id));
    let new = store.enqueue(&issue(1, "e2")).await.unwrap();
    assert!(matches!(&new, Enqueued::Created(t) if t.number == TaskNumber(2)));
    let by_item = store.task_by_item(&issue(1, "x").item).await.unwrap();
    assert_eq!(Enqueued::Created(by_item.unwrap()), new);
    let nobody = store.task_by_item(&issue(9, "x").item).await.unwrap();
    assert_eq!(nobody, None);
    let by_number = store.task_by_number(TaskNumber(1)).await.unwrap();
    assert_eq!(by_number.unwrap().id, task.id);
}

async fn enqueues_of_one_trigger_at_once_make_one_row_and_no_gap(world: World) {
    let mut scans = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = world.store.clone();
        scans.spawn(async move {
            let mut made = 0;
            for _ in 0..5 {
                if let Enqueued::Created(_) = store.enqueue(&issue(1, "e1")).await.unwrap() {
                    made += 1;
                }
            }
            made
        });
    }
    let made: i32 = scans.join_all().await.into_iter().sum();
    assert_eq!(made, 1);
    assert_eq!(world.relay().await.len(), 1);
    assert_eq!(world.new_task(2).await.number, TaskNumber(2));
}

async fn one_of_many_claimers_gets_the_lease(world: World) {
    let task = world.new_task(1).await;
    let mut claimers = tokio::task::JoinSet::new();
    for slot in 0..8 {
        let store = world.store.clone();
        claimers.spawn(async move {
            let worker = WorkerId(format!("host/1/{slot}"));
            store
                .claim(task.id, &worker, Uuid::new_v4(), MINUTE, 3)
                .await
                .unwrap()
        });
    }
    let claims: Vec<Claim> = claimers.join_all().await.into_iter().flatten().collect();
    let [claim] = claims.as_slice() else {
        panic!("{} claims", claims.len());
    };
    assert_eq!(claim.task.state, TaskState::Leased(Phase::Preparing));
    assert_eq!((claim.lease.epoch, claim.task.attempt), (Epoch(1), 1));
    assert_eq!(claim.task.owner.as_ref(), Some(&claim.lease.worker));
    assert!(claim.task.lease_until.is_some());
    let sessions = world.store.sessions(Some(task.id), 0).await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].id, claim.lease.session);
    assert!(world.claim(TaskId::new(), MINUTE).await.is_none());
}

async fn a_claim_repeated_with_its_nonce_finds_itself(world: World) {
    let task = world.new_task(1).await;
    let (worker, nonce) = (WorkerId("a".into()), Uuid::new_v4());
    let claim = || world.store.claim(task.id, &worker, nonce, MINUTE, 3);
    let first = claim().await.unwrap().unwrap();
    let second = claim().await.unwrap().unwrap();
    assert_eq!(first.lease, second.lease);
    assert_eq!(second.task.attempt, 1);
    world.store.end_lease(&first.lease, &done()).await.unwrap();
    assert!(claim().await.unwrap().is_none());
}

async fn an_expired_lease_is_taken_and_the_late_writer_fenced(world: World) {
    let task = world.new_task(1).await;
    let late = world.claim(task.id, NONE).await.unwrap().lease;
    let claim = world.claim(task.id, MINUTE).await.unwrap();
    assert_eq!((claim.lease.epoch, claim.task.attempt), (Epoch(2), 2));
    every_write_is_fenced(&world, &late).await;

    let old = world.store.session(late.session).await.unwrap().unwrap();
    assert_eq!(old.end, Some(SessionEnd::Expired));
    assert!(old.ended_at.is_some());
    let new = world.store.session(claim.lease.session).await.unwrap();
    assert_eq!(new.unwrap().end, None);
    world.store.check(&claim.lease).await.unwrap();
}

async fn a_lease_that_ran_out_untaken_may_be_extended(world: World) {
    let task = world.new_task(1).await;
    let lease = world.claim(task.id, NONE).await.unwrap().lease;
    // The gateway's check is stricter than the fence: no push on a lease that ran out.
    assert!(is_fenced(world.store.check(&lease).await));
    world.store.append_step(&lease, &note("x")).await.unwrap();
    let request = world.store.heartbeat(&lease, MINUTE).await.unwrap();
    assert_eq!(request, LeaseRequest::Continue);
    world.store.check(&lease).await.unwrap();
    assert!(world.claim(task.id, MINUTE).await.is_none());
}

async fn a_lease_runs_out_by_the_databases_clock(world: World) {
    let task = world.new_task(1).await;
    let short = Duration::from_millis(50);
    let lease = world.claim(task.id, short).await.unwrap().lease;
    let fate = || world.store.sandbox_fate(task.id, lease.epoch);
    while fate().await.unwrap() == SandboxFate::Alive {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        world.claim(task.id, MINUTE).await.unwrap().lease.epoch,
        Epoch(2)
    );
}

async fn a_lease_ends_once_and_the_same_close_again_is_no_fault(world: World) {
    let lease = world.leased(1).await;
    world.store.end_lease(&lease, &done()).await.unwrap();
    world.store.end_lease(&lease, &done()).await.unwrap();
    let task = world.task(lease.task).await;
    assert_eq!(task.state, TaskState::Ended(EndState::Done));
    assert!(task.pull_request_url.unwrap().ends_with("/pull/9"));
    assert_eq!(task.lease_until, None);
    let session = world.store.session(lease.session).await.unwrap().unwrap();
    assert_eq!(session.end, Some(SessionEnd::Done));
    let other = release(Attempt::Charged, NONE);
    assert!(is_fenced(world.store.end_lease(&lease, &other).await));
    assert!(is_fenced(world.store.append_step(&lease, &note("x")).await));
    assert!(world.claim(lease.task, MINUTE).await.is_none());
}

async fn a_release_wakes_after_its_delay_and_may_not_count(world: World) {
    let lease = world.leased(1).await;
    assert_eq!(world.relay().await.len(), 1);
    let close = release(Attempt::Refunded, NONE);
    world.store.end_lease(&lease, &close).await.unwrap();
    let task = world.task(lease.task).await;
    assert_eq!((task.state, task.attempt), (TaskState::Queued, 0));
    assert_eq!(world.relay().await, [lease.task]);
    let session = world.store.session(lease.session).await.unwrap().unwrap();
    assert_eq!(session.end, Some(SessionEnd::Released));
    assert_eq!(session.reason.as_deref(), Some("draining"));

    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    assert_eq!(lease.epoch, Epoch(2));
    let close = release(Attempt::Charged, MINUTE);
    world.store.end_lease(&lease, &close).await.unwrap();
    assert_eq!(world.task(task.id).await.attempt, 1);
    // Not due, so not sent, not polled, and not rewoken.
    assert_eq!(world.relay().await, []);
    assert_eq!(world.store.claimable(NONE, 9).await.unwrap(), []);
    assert_eq!(world.sweep(NONE).await.rewoken, 0);
}

async fn attempts_run_out(world: World) {
    let task = world.new_task(1).await;
    for _ in 0..2 {
        assert!(world.claim_of(task.id, NONE, 2).await.is_some());
    }
    assert!(world.claim_of(task.id, MINUTE, 2).await.is_none());
    let task = world.task(task.id).await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed));
    let reason = task.reason.unwrap();
    assert_eq!(
        reason,
        "gave up after 2 attempts; the last one: the lease ran out"
    );
    let open = world.store.sessions(Some(task.id), 0).await.unwrap();
    assert!(open.iter().all(|s| s.end == Some(SessionEnd::Expired)));

    // The same for a row that was given back.
    let lease = world.leased(2).await;
    let close = release(Attempt::Charged, NONE);
    world.store.end_lease(&lease, &close).await.unwrap();
    assert!(world.claim_of(lease.task, MINUTE, 1).await.is_none());
    let reason = world.task(lease.task).await.reason.unwrap();
    assert!(reason.ends_with("the last one: draining"), "{reason}");
}

async fn two_relays_send_each_entry_once(world: World) {
    for number in 1..=20 {
        world.new_task(number).await;
    }
    let (one, other) = (Outbox::default(), Outbox::default());
    let (a, b) = tokio::join!(
        async {
            let mut n = world.store.relay_outbox(3, &one).await.unwrap();
            while n < 20 {
                match world.store.relay_outbox(3, &one).await.unwrap() {
                    0 => break,
                    more => n += more,
                }
            }
            n
        },
        world.store.relay_outbox(100, &other),
    );
    let mut sent = one.sent();
    sent.extend(other.sent());
    assert_eq!(a + b.unwrap(), sent.len() as u64);
    let mut times = BTreeMap::new();
    for id in sent.into_iter().chain(world.relay().await) {
        *times.entry(id).or_insert(0) += 1;
    }
    assert_eq!(times.len(), 20);
    assert!(times.values().all(|n| *n == 1), "{times:?}");
    assert_eq!(world.relay().await, []);
}

async fn a_failed_publish_keeps_its_entry(world: World) {
    for number in 1..=3 {
        world.new_task(number).await;
    }
    let broken = Outbox {
        fail_after: Some(1),
        ..Outbox::default()
    };
    let outcome = world.store.relay_outbox(10, &broken).await;
    let Err(StoreError::Unavailable(why)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(why.contains("no broker"), "{why}");
    assert_eq!(broken.sent().len(), 1);
    let rest = world.relay().await;
    assert_eq!(rest.len(), 2);
    assert!(!rest.contains(&broken.sent()[0]));
}

async fn the_outbox_carries_the_priority(world: World) {
    let mut new = issue(1, "e1");
    new.priority = Priority::Critical;
    world.store.enqueue(&new).await.unwrap();
    let outbox = Outbox::default();
    world.store.relay_outbox(9, &outbox).await.unwrap();
    assert_eq!(outbox.sent.lock().unwrap()[0].priority, Priority::Critical);
}

async fn polling_finds_the_highest_and_oldest_first(world: World) {
    let first = world.new_task(1).await.id;
    let second = world.new_task(2).await.id;
    let mut new = issue(3, "e1");
    new.priority = Priority::High;
    let Enqueued::Created(high) = world.store.enqueue(&new).await.unwrap() else {
        panic!("known");
    };
    world.leased(4).await;
    let found = world.store.claimable(NONE, 9).await.unwrap();
    assert_eq!(found, [high.id, first, second]);
    assert_eq!(world.store.claimable(NONE, 1).await.unwrap(), [high.id]);
    assert_eq!(world.store.claimable(MINUTE, 9).await.unwrap(), []);
    world.claim(high.id, NONE).await.unwrap();
    let found = world.store.claimable(NONE, 1).await.unwrap();
    assert_eq!(found, [high.id], "a lease that ran out");
}

async fn a_task_is_unreported_until_the_label_of_its_end_is_recorded(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    assert_eq!(store.unreported(NONE, 9).await.unwrap(), []);
    let end = LeaseEnd::Finish {
        state: EndState::Failed,
        reason: None,
        pull_request_url: None,
    };
    store.end_lease(&lease, &end).await.unwrap();
    let unreported = store.unreported(NONE, 9).await.unwrap();
    assert_eq!(
        unreported.iter().map(|t| t.id).collect::<Vec<_>>(),
        [lease.task]
    );
    assert_eq!(store.unreported(MINUTE, 9).await.unwrap(), []);
    let key = EffectKey::label(TaskLabel::Failed, lease.epoch);
    store.effect_begin(lease.task, None, &key).await.unwrap();
    assert_eq!(
        store.unreported(NONE, 9).await.unwrap().len(),
        1,
        "begun is not done"
    );
    store
        .effect_done(lease.task, &key, &json!({}))
        .await
        .unwrap();
    assert_eq!(store.unreported(NONE, 9).await.unwrap(), []);
}

async fn a_label_of_an_earlier_epoch_reports_nothing_of_this_one(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await.id;
    for epoch in [Epoch(1), Epoch(2)] {
        let lease = world.claim(task, MINUTE).await.unwrap().lease;
        assert_eq!(lease.epoch, epoch);
        let end = LeaseEnd::Pause {
            reason: "later".into(),
        };
        store.end_lease(&lease, &end).await.unwrap();
        let unreported = store.unreported(NONE, 9).await.unwrap();
        assert_eq!(unreported.len(), 1, "epoch {epoch}");
        assert_eq!(unreported[0].id, task);
        for label in [TaskLabel::Done, TaskLabel::Paused] {
            assert_eq!(store.unreported(NONE, 9).await.unwrap().len(), 1);
            let key = EffectKey::label(label, epoch);
            store.effect_done(task, &key, &json!({})).await.unwrap();
        }
        assert_eq!(store.unreported(NONE, 9).await.unwrap(), []);
        assert!(store.resume(task).await.unwrap());
    }
}

async fn effects_go_from_fresh_to_unsure_to_done(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    let key = EffectKey::pull_request("branch");
    let begin = async |lease| {
        store
            .effect_begin(lease_task(lease), Some(lease), &key)
            .await
            .unwrap()
    };
    fn lease_task(lease: &Lease) -> TaskId {
        lease.task
    }
    assert_eq!(begin(&lease).await, EffectState::Fresh);
    assert_eq!(begin(&lease).await, EffectState::Unsure);
    store
        .end_lease(&lease, &release(Attempt::Charged, NONE))
        .await
        .unwrap();

    // What happened, happened, whoever holds the row.
    let result = json!({"url": "u\u{0}"});
    store.effect_done(lease.task, &key, &result).await.unwrap();
    let state = store.effect_begin(lease.task, None, &key).await.unwrap();
    assert_eq!(state, EffectState::Done(result));

    let other = EffectKey::label(TaskLabel::Done, lease.epoch);
    store
        .effect_done(lease.task, &other, &json!(1))
        .await
        .unwrap();
    let state = store.effect_begin(lease.task, None, &other).await;
    assert_eq!(state.unwrap(), EffectState::Done(json!(1)));
    let nobody = store.effect_begin(TaskId::new(), None, &other).await;
    assert!(matches!(nobody, Err(StoreError::Fault(_))));
}

async fn one_of_two_begins_at_once_is_fresh(world: World) {
    let lease = world.leased(1).await;
    let key = EffectKey::progress_comment();
    let begin = || world.store.effect_begin(lease.task, Some(&lease), &key);
    let (a, b) = tokio::join!(begin(), begin());
    let states = [a.unwrap(), b.unwrap()];
    assert!(states.contains(&EffectState::Fresh), "{states:?}");
    assert!(states.contains(&EffectState::Unsure), "{states:?}");
}

async fn a_sweep_requeues_expired_leases_and_fails_worn_ones(world: World) {
    let tired = world.new_task(1).await.id;
    let worn = world.new_task(2).await.id;
    let held = world.leased(3).await.task;
    let over = world.leased(4).await;
    world.store.end_lease(&over, &done()).await.unwrap();
    world.relay().await;
    world.claim(tired, NONE).await.unwrap();
    for _ in 0..3 {
        world.claim(worn, NONE).await.unwrap();
    }
    let report = world.sweep(MINUTE).await;
    assert_eq!(report.requeued, [tired]);
    assert_eq!(report.failed, [worn]);
    assert_eq!(report.rewoken, 0);
    assert_eq!(world.task(tired).await.state, TaskState::Queued);
    assert_eq!(
        world.task(worn).await.state,
        TaskState::Ended(EndState::Failed)
    );
    assert_eq!(world.task(held).await.state.as_str(), "leased");
    assert_eq!(world.relay().await, [tired]);
    assert_eq!(world.sweep(MINUTE).await, SweepReport::default());
    let session = &world.store.sessions(Some(tired), 0).await.unwrap()[0];
    assert_eq!(session.end, Some(SessionEnd::Expired));
    assert_eq!(world.task(tired).await.attempt, 1, "a crash counts");
}

async fn a_queued_row_without_a_recent_wake_up_is_rewoken(world: World) {
    let task = world.new_task(1).await.id;
    assert_eq!(
        world.sweep(NONE).await.rewoken,
        0,
        "its entry is not sent yet"
    );
    assert_eq!(world.relay().await, [task]);
    assert_eq!(world.sweep(MINUTE).await.rewoken, 0, "sent a moment ago");
    assert_eq!(world.sweep(NONE).await.rewoken, 1);
    assert_eq!(world.sweep(NONE).await.rewoken, 0, "not twice");
    assert_eq!(world.relay().await, [task]);
}

async fn sweeps_at_once_requeue_once(world: World) {
    let task = world.new_task(1).await.id;
    world.relay().await;
    world.claim(task, NONE).await.unwrap();
    let reports = futures::future::join_all((0..6).map(|_| world.sweep(MINUTE))).await;
    let requeued: usize = reports.iter().map(|r| r.requeued.len()).sum();
    assert_eq!(requeued, 1);
    assert_eq!(world.relay().await, [task]);
}

async fn the_fate_of_a_sandbox_follows_its_lease(world: World) {
    let fate = async |task, epoch| world.store.sandbox_fate(task, epoch).await.unwrap();
    assert_eq!(fate(TaskId::new(), Epoch(1)).await, SandboxFate::Unknown);
    let task = world.new_task(1).await.id;
    assert_eq!(fate(task, Epoch(0)).await, SandboxFate::Dead);
    let out = world.claim(task, NONE).await.unwrap().lease;
    assert_eq!(fate(task, out.epoch).await, SandboxFate::Dead);
    let lease = world.claim(task, MINUTE).await.unwrap().lease;
    assert_eq!(fate(task, lease.epoch).await, SandboxFate::Alive);
    assert_eq!(fate(task, out.epoch).await, SandboxFate::Dead);
    world.store.end_lease(&lease, &done()).await.unwrap();
    assert_eq!(fate(task, lease.epoch).await, SandboxFate::Dead);
}

async fn only_a_queued_row_fails_by_dead_letter(world: World) {
    let task = world.new_task(1).await.id;
    assert!(world.store.fail_queued(task, "given up").await.unwrap());
    let row = world.task(task).await;
    assert_eq!(row.state, TaskState::Ended(EndState::Failed));
    assert_eq!(row.reason.as_deref(), Some("given up"));
    assert!(!world.store.fail_queued(task, "again").await.unwrap());
    let lease = world.leased(2).await;
    assert!(!world.store.fail_queued(lease.task, "x").await.unwrap());
}

async fn a_cancel_ends_a_waiting_task_and_reaches_a_running_one(world: World) {
    let store = &world.store;
    let waiting = world.new_task(1).await.id;
    assert!(store.request_stop(waiting, "not needed").await.unwrap());
    let row = world.task(waiting).await;
    assert_eq!(row.state, TaskState::Ended(EndState::Stopped));
    assert_eq!(row.reason.as_deref(), Some("not needed"));
    assert!(!store.request_stop(waiting, "again").await.unwrap());
    assert!(!store.request_stop(TaskId::new(), "x").await.unwrap());

    let lease = world.leased(2).await;
    assert!(store.request_stop(lease.task, "enough").await.unwrap());
    // A pause does not weaken it.
    assert!(store.request_pause(lease.task, "wait").await.unwrap());
    assert_eq!(
        store.heartbeat(&lease, MINUTE).await.unwrap(),
        LeaseRequest::Stop
    );
    let close = LeaseEnd::Finish {
        state: EndState::Stopped,
        reason: None,
        pull_request_url: None,
    };
    store.end_lease(&lease, &close).await.unwrap();
    let row = world.task(lease.task).await;
    assert_eq!(row.state, TaskState::Ended(EndState::Stopped));
    assert_eq!(row.reason.as_deref(), Some("enough"));
}

async fn a_pause_sets_aside_until_somebody_resumes(world: World) {
    let store = &world.store;
    let waiting = world.new_task(1).await.id;
    world.relay().await;
    assert!(store.request_pause(waiting, "later").await.unwrap());
    assert_eq!(world.task(waiting).await.state, TaskState::Paused);
    assert!(store.request_pause(waiting, "twice").await.unwrap());
    assert_eq!(world.task(waiting).await.reason.as_deref(), Some("later"));
    assert!(world.claim(waiting, MINUTE).await.is_none());
    assert_eq!(world.sweep(NONE).await.rewoken, 0);
    assert!(store.resume(waiting).await.unwrap());
    assert!(!store.resume(waiting).await.unwrap());
    assert_eq!(world.relay().await, [waiting]);

    let lease = world.leased(2).await;
    assert!(store.request_pause(lease.task, "wait").await.unwrap());
    assert_eq!(
        store.heartbeat(&lease, MINUTE).await.unwrap(),
        LeaseRequest::Pause
    );
    let close = LeaseEnd::Pause {
        reason: "paused".into(),
    };
    store.end_lease(&lease, &close).await.unwrap();
    let row = world.task(lease.task).await;
    assert_eq!((row.state, row.attempt), (TaskState::Paused, 0));
    assert_eq!(row.reason.as_deref(), Some("wait"));
    assert!(store.request_stop(lease.task, "never mind").await.unwrap());
    assert_eq!(
        world.task(lease.task).await.state,
        TaskState::Ended(EndState::Stopped)
    );
}

async fn a_request_outlives_the_worker_it_was_meant_for(world: World) {
    let store = &world.store;
    let ids = [
        world.new_task(1).await.id,
        world.new_task(2).await.id,
        world.new_task(3).await.id,
    ];
    world.relay().await;
    for id in ids {
        world.claim(id, NONE).await.unwrap();
    }
    store.request_stop(ids[0], "enough").await.unwrap();
    store.request_pause(ids[1], "wait").await.unwrap();
    store.request_stop(ids[2], "enough").await.unwrap();
    // By the next claim, or by the sweep.
    assert!(world.claim(ids[2], MINUTE).await.is_none());
    let stopped = TaskState::Ended(EndState::Stopped);
    assert_eq!(world.task(ids[2]).await.state, stopped);
    assert_eq!(world.sweep(MINUTE).await, SweepReport::default());
    assert_eq!(world.task(ids[0]).await.state, stopped);
    assert_eq!(world.task(ids[1]).await.state, TaskState::Paused);
    assert_eq!(world.relay().await, []);

    // And a drain that did not see it.
    let lease = world.leased(4).await;
    store.request_stop(lease.task, "enough").await.unwrap();
    world.relay().await;
    let close = release(Attempt::Refunded, NONE);
    store.end_lease(&lease, &close).await.unwrap();
    assert_eq!(world.task(lease.task).await.state, stopped);
    assert_eq!(world.relay().await, []);
}

async fn the_journal_is_one_line_without_gaps_over_sessions(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await.id;
    let first = world.claim(task, NONE).await.unwrap().lease;
    let appended =
        futures::future::join_all((0..12).map(|_| store.append_step(&first, &STEP))).await;
    static STEP: std::sync::LazyLock<NewStep> = std::sync::LazyLock::new(|| note("together"));
    let mut seqs: Vec<i64> = appended.into_iter().map(|s| s.unwrap().0).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=12).collect::<Vec<_>>());
    let second = world.claim(task, MINUTE).await.unwrap().lease;
    assert!(is_fenced(store.append_step(&first, &note("late")).await));
    let wild = NewStep {
        kind: StepKind::ToolResult,
        payload: StepPayload::encode(&json!({"out": "nul \u{0} and \u{1f980}", "n": 1.5})).unwrap(),
        duration_ms: 12,
    };
    assert_eq!(store.append_step(&second, &wild).await.unwrap(), Seq(13));
    let steps = store.steps(task).await.unwrap();
    let seqs: Vec<i64> = steps.iter().map(|s| s.seq.0).collect();
    assert_eq!(seqs, (1..=13).collect::<Vec<_>>());
    let last = steps.last().unwrap();
    assert_eq!((last.epoch, last.kind), (second.epoch, wild.kind));
    assert_eq!(last.payload, wild.payload, "a NUL survives");
    assert_eq!(last.duration_ms, 12);
    assert_eq!(store.steps(TaskId::new()).await.unwrap(), []);
}

async fn checkpoints_come_back_in_order(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    let checkpoint = |seq, byte| Checkpoint {
        seq: Seq(seq),
        commit: format!("commit-{byte}"),
        bundle: vec![byte; 70_000],
    };
    for c in [checkpoint(5, 5), checkpoint(2, 2), checkpoint(5, 6)] {
        store.save_checkpoint(&lease, &c).await.unwrap();
    }
    let found = store.checkpoints(lease.task).await.unwrap();
    assert_eq!(found, [checkpoint(2, 2), checkpoint(5, 6)]);
}

async fn phases_and_usage_are_recorded(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    store.set_phase(&lease, Phase::Verifying).await.unwrap();
    let state = world.task(lease.task).await.state;
    assert_eq!(state, TaskState::Leased(Phase::Verifying));
    let usage = Usage {
        model_calls: 1,
        tool_calls: 2,
        input_tokens: 3,
        cached_tokens: 4,
        output_tokens: 5,
        cost_micros: 6,
    };
    store.record_usage(&lease, "gpt", &usage).await.unwrap();
    let session = store.session(lease.session).await.unwrap().unwrap();
    assert_eq!(
        (session.usage, session.model.as_deref()),
        (usage, Some("gpt"))
    );
    assert_eq!(session.task_number, TaskNumber(1));
}

async fn lists_are_newest_first_and_filtered(world: World) {
    let store = &world.store;
    for number in 1..=3 {
        world.new_task(number).await;
    }
    let lease = world.leased(4).await;
    let numbers = async |status, limit| -> Vec<i64> {
        let filter = TaskFilter { status, limit };
        let tasks = store.tasks(&filter).await.unwrap();
        tasks.iter().map(|t| t.number.0).collect()
    };
    assert_eq!(numbers(None, 0).await, [4, 3, 2, 1]);
    assert_eq!(numbers(None, 2).await, [4, 3]);
    assert_eq!(numbers(Some(PublicStatus::Open), 0).await, [3, 2, 1]);
    assert_eq!(numbers(Some(PublicStatus::InProgress), 0).await, [4]);
    store.request_stop(TaskId::default(), "x").await.unwrap();
    let counts: BTreeMap<String, u64> = store.counts().await.unwrap().into_iter().collect();
    assert_eq!((counts["queued"], counts["leased"]), (3, 1));
    assert_eq!(counts["failed"], 0, "a gauge must come back to zero");
    let sessions = store.sessions(None, 0).await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].id, lease.session);
    assert_eq!(store.session(SessionId(99)).await.unwrap(), None);
}

async fn text_from_outside_may_hold_nul(world: World) {
    let mut new = issue(1, "e\u{0}1");
    new.title = "a\u{0}b".into();
    let Enqueued::Created(task) = world.store.enqueue(&new).await.unwrap() else {
        panic!("known");
    };
    assert_eq!(task.title, "a\u{fffd}b");
    assert!(matches!(
        world.store.enqueue(&new).await.unwrap(),
        Enqueued::Known(_)
    ));
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    let close = LeaseEnd::Finish {
        state: EndState::Failed,
        reason: Some("x\u{0}".into()),
        pull_request_url: None,
    };
    world.store.end_lease(&lease, &close).await.unwrap();
    world.store.end_lease(&lease, &close).await.unwrap();
}

async fn many_processes_may_start_at_once_and_heartbeats_have_their_own_pool(world: World) {
    let again = futures::future::join_all((0..4).map(|_| connect(&world.config))).await;
    for store in again {
        let store = store.unwrap();
        store.healthy().await.unwrap();
        store.close().await;
    }
    let lease = world.leased(1).await;
    let heart = connect_heartbeat(&world.config).await.unwrap();
    assert_eq!(
        heart.heartbeat(&lease, MINUTE).await.unwrap(),
        LeaseRequest::Continue
    );
    heart.close().await;
    assert!(matches!(
        heart.healthy().await,
        Err(StoreError::Unavailable(_))
    ));
}

/// Rows of the first schema, as a version wrote them that had no later one.
const FIRST_ROWS: &str = "
    INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key,
        trigger_event, dedup_key, title, url, priority, state, phase, epoch, attempt, owner, nonce,
        lease_until, wish, wish_reason, created_at, updated_at)
    VALUES ('018f0000-0000-7000-8000-000000000001', 1, 'github', 'github.com', '42', 'acme/shop', 'issue',
        1, 'i1', 'e1', 'd1', 'Issue 1', 'https://x', 1, 'leased', 'running', 2, 1, 'w',
        '018f0000-0000-7000-8000-00000000000a', NOW, 'cancel', 'enough', NOW, NOW),
        ('018f0000-0000-7000-8000-000000000002', 2, 'github', 'github.com', '42', 'acme/shop', 'issue',
        2, 'i2', 'e1', 'd2', 'Issue 2', 'https://x', 1, 'done', NULL, 3, 1, 'w', NULL, NULL, NULL, NULL,
        NOW, NOW);
    INSERT INTO sessions (task, epoch, worker, started_at)
    VALUES ('018f0000-0000-7000-8000-000000000001', 2, 'w', NOW);
    INSERT INTO effects (task, kind, key, epoch, intent, result, begun_at, done_at)
    VALUES ('018f0000-0000-7000-8000-000000000002', 'label', 'done:3', 3, '{}', '{}', NOW, NOW),
        ('018f0000-0000-7000-8000-000000000002', 'label', 'processing:0', NULL, '{}', '{}', NOW, NOW),
        ('018f0000-0000-7000-8000-000000000002', 'comment', 'progress', 3, '{}', '{\"comment\":7}', NOW,
        NOW);";

async fn rows_of_the_first_schema_are_carried_over(store: &dyn Store) {
    let id = |n: u8| -> TaskId {
        format!("018f0000-0000-7000-8000-00000000000{n}")
            .parse()
            .unwrap()
    };
    let leased = store.task(id(1)).await.unwrap().unwrap();
    assert_eq!(leased.state, TaskState::Leased(Phase::Running));
    let lease = Lease {
        task: id(1),
        session: store.sessions(Some(id(1)), 0).await.unwrap()[0].id,
        epoch: Epoch(2),
        worker: WorkerId("w".into()),
    };
    let request = store.heartbeat(&lease, MINUTE).await.unwrap();
    assert_eq!(request, LeaseRequest::Stop);
    let close = release(Attempt::Charged, NONE);
    store.end_lease(&lease, &close).await.unwrap();
    let stopped = store.task(id(1)).await.unwrap().unwrap();
    assert_eq!(stopped.reason.as_deref(), Some("enough"));

    let unreported = store.unreported(NONE, 9).await.unwrap();
    assert_eq!(unreported.iter().map(|t| t.id).collect::<Vec<_>>(), [id(1)]);
    let state = async |key| store.effect_begin(id(2), None, &key).await.unwrap();
    let comment = EffectState::Done(json!({"comment": 7}));
    assert_eq!(state(EffectKey::progress_comment()).await, comment);
    let processing = EffectKey::label(TaskLabel::Processing, Epoch(0));
    assert_eq!(state(processing).await, EffectState::Done(json!({})));
}

fn first_schema(migrations: sqlx::migrate::Migrator) -> sqlx::migrate::Migrator {
    sqlx::migrate::Migrator {
        migrations: vec![migrations.migrations[0].clone()].into(),
        ..sqlx::migrate::Migrator::DEFAULT
    }
}

#[tokio::test]
async fn rows_of_the_first_schema_are_carried_over_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("agentmine.db").display());
    let pool = sqlx::SqlitePool::connect(&format!("{url}?mode=rwc"))
        .await
        .unwrap();
    let first = first_schema(sqlx::migrate!("../../migrations/sqlite"));
    first.run(&pool).await.unwrap();
    let rows = FIRST_ROWS.replace("NOW", "1000");
    sqlx::raw_sql(sqlx::AssertSqlSafe(rows))
        .execute(&pool)
        .await
        .unwrap();
    pool.close().await;
    let config = config::StoreConfig {
        url: Secret::new(url),
        max_connections: 4,
    };
    let store = connect(&config).await.unwrap();
    rows_of_the_first_schema_are_carried_over(store.as_ref()).await;
    // Foreign keys are on again.
    let key = EffectKey::progress_comment();
    let nobody = store.effect_done(TaskId::new(), &key, &json!({})).await;
    assert!(matches!(nobody, Err(StoreError::Fault(_))), "{nobody:?}");
}

#[tokio::test]
async fn rows_of_the_first_schema_are_carried_over_on_postgres() {
    let server = postgres_server();
    let mut admin = PgConnection::connect(&server).await.unwrap();
    let name = format!("agentmine_test_{}", Uuid::new_v4().simple());
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE \"{name}\""));
    sqlx::query(create).execute(&mut admin).await.unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    let url = format!("{base}/{name}");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let first = first_schema(sqlx::migrate!("../../migrations/postgres"));
    first.run(&mut connection).await.unwrap();
    let rows = sqlx::AssertSqlSafe(FIRST_ROWS.replace("NOW", "now()"));
    sqlx::raw_sql(rows).execute(&mut connection).await.unwrap();
    let config = config::StoreConfig {
        url: Secret::new(url),
        max_connections: 4,
    };
    let store = connect(&config).await.unwrap();
    rows_of_the_first_schema_are_carried_over(store.as_ref()).await;
    store.close().await;
    let drop = sqlx::AssertSqlSafe(format!("DROP DATABASE \"{name}\" WITH (FORCE)"));
    sqlx::query(drop).execute(&mut admin).await.unwrap();
}

fn postgres_server() -> String {
    std::env::var("AGENTMINE_TEST_POSTGRES_URL")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:54329/postgres".into())
}

async fn on_sqlite<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new folder/agentmine.db");
    let config = config::StoreConfig {
        url: Secret::new(format!("sqlite:{}", file.display())),
        max_connections: 4,
    };
    let store = connect(&config).await.unwrap();
    test(World {
        store: store.clone(),
        config,
    })
    .await;
    store.close().await;
}

async fn on_postgres<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let server = postgres_server();
    let mut admin = match PgConnection::connect(&server).await {
        Ok(admin) => admin,
        Err(error) => panic!("no Postgres for the tests ({error}): run tests/run"),
    };
    let name = format!("agentmine_test_{}", Uuid::new_v4().simple());
    let (base, _) = server.rsplit_once('/').unwrap();
    let config = config::StoreConfig {
        url: Secret::new(format!("{base}/{name}")),
        max_connections: 4,
    };
    let store = connect(&config).await.unwrap();
    test(World {
        store: store.clone(),
        config,
    })
    .await;
    store.close().await;
    let drop = format!("DROP DATABASE \"{name}\" WITH (FORCE)");
    sqlx::query(sqlx::AssertSqlSafe(drop))
        .execute(&mut admin)
        .await
        .unwrap();
}

macro_rules! facts {
    ($($fact:ident,)+) => {
        mod sqlite_store {
            $(#[tokio::test] async fn $fact() { super::on_sqlite(super::$fact).await; })+
        }
        mod postgres_store {
            $(#[tokio::test] async fn $fact() { super::on_postgres(super::$fact).await; })+
        }
    };
}

facts! {
    a_task_is_recorded_once_for_its_trigger_and_item,
    enqueues_of_one_trigger_at_once_make_one_row_and_no_gap,
    one_of_many_claimers_gets_the_lease,
    a_claim_repeated_with_its_nonce_finds_itself,
    an_expired_lease_is_taken_and_the_late_writer_fenced,
    a_lease_that_ran_out_untaken_may_be_extended,
    a_lease_runs_out_by_the_databases_clock,
    a_lease_ends_once_and_the_same_close_again_is_no_fault,
    a_release_wakes_after_its_delay_and_may_not_count,
    attempts_run_out,
    two_relays_send_each_entry_once,
    a_failed_publish_keeps_its_entry,
    the_outbox_carries_the_priority,
    polling_finds_the_highest_and_oldest_first,
    a_task_is_unreported_until_the_label_of_its_end_is_recorded,
    a_label_of_an_earlier_epoch_reports_nothing_of_this_one,
    effects_go_from_fresh_to_unsure_to_done,
    one_of_two_begins_at_once_is_fresh,
    a_sweep_requeues_expired_leases_and_fails_worn_ones,
    a_queued_row_without_a_recent_wake_up_is_rewoken,
    sweeps_at_once_requeue_once,
    the_fate_of_a_sandbox_follows_its_lease,
    only_a_queued_row_fails_by_dead_letter,
    a_cancel_ends_a_waiting_task_and_reaches_a_running_one,
    a_pause_sets_aside_until_somebody_resumes,
    a_request_outlives_the_worker_it_was_meant_for,
    the_journal_is_one_line_without_gaps_over_sessions,
    checkpoints_come_back_in_order,
    phases_and_usage_are_recorded,
    lists_are_newest_first_and_filtered,
    text_from_outside_may_hold_nul,
    many_processes_may_start_at_once_and_heartbeats_have_their_own_pool,
}
