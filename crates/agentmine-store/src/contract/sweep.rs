//! Repairs after a worker died or a message was lost.

use super::*;

facts! {
    a_sweep_requeues_expired_leases_and_fails_tasks_without_attempts,
    a_queued_row_without_a_recent_wake_up_is_rewoken,
    sweeps_at_once_requeue_once,
    a_sweep_returns_the_time_until_the_next_lease_runs_out,
    a_clock_that_is_set_back_does_not_stretch_a_dead_lease,
    the_fate_of_a_sandbox_follows_its_lease,
    only_a_queued_row_fails_by_dead_letter,
}

async fn a_sweep_requeues_expired_leases_and_fails_tasks_without_attempts(world: World) {
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
    let again = world.sweep(MINUTE).await;
    assert_eq!((again.requeued.len(), again.failed.len()), (0, 0));
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

async fn a_sweep_returns_the_time_until_the_next_lease_runs_out(world: World) {
    assert_eq!(world.sweep(MINUTE).await.next_expiry, None);
    world.leased(1).await;
    let later = world.new_task(2).await.id;
    world.claim(later, 2 * MINUTE).await.unwrap();
    let left = world.sweep(MINUTE).await.next_expiry.unwrap();
    assert!(left > MINUTE / 2 && left <= MINUTE, "{left:?}");
}

/// A clock that is set back by an hour leaves a lease that runs out in an hour.
async fn a_clock_that_is_set_back_does_not_stretch_a_dead_lease(world: World) {
    let dead = world.new_task(1).await.id;
    world.claim(dead, 60 * MINUTE).await.unwrap();
    let held = world.leased(2).await;
    let policy = SweepPolicy {
        max_attempts: 3,
        wakeup_after: MINUTE,
        lease: Duration::from_millis(100),
    };
    let begun = std::time::Instant::now();
    loop {
        world.store.heartbeat(&held, MINUTE).await.unwrap();
        let report = world.store.sweep(&policy).await.unwrap();
        if report.requeued.contains(&dead) {
            break;
        }
        assert!(begun.elapsed() < MINUTE / 6, "{:?}", report.next_expiry);
    }
    assert_eq!(world.task(held.task).await.state.as_str(), "leased");
}

async fn the_fate_of_a_sandbox_follows_its_lease(world: World) {
    let fate = async |task, epoch| world.store.sandbox_fate(task, epoch).await.unwrap();
    assert_eq!(fate(TaskId::new(), Epoch(1)).await, SandboxFate::Unknown);
    let task = world.new_task(1).await.id;
    assert_eq!(fate(task, Epoch(0)).await, SandboxFate::Dead);
    let out = world.claim(task, NONE).await.unwrap().lease;
    assert_eq!(
        fate(task, out.epoch).await,
        SandboxFate::Alive,
        "nobody took the expired lease"
    );
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
    let key = EffectKey::pull_request("branch");
    let store = &world.store;
    store
        .effect_begin(lease.task, Some(&lease), &key)
        .await
        .unwrap();
    let end = release(Attempt::Charged, NONE);
    store.end_lease(&lease, &end).await.unwrap();
    assert!(!store.fail_queued(lease.task, "x").await.unwrap());
}
