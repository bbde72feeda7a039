//! Claiming, holding and ending a lease.

use super::*;

facts! {
    rows_of_others_hide_no_claimable_row,
    one_of_many_claimers_gets_the_lease,
    a_claim_repeated_with_its_nonce_finds_itself,
    an_expired_lease_is_taken_and_the_late_writer_fenced,
    two_claims_of_one_epoch_are_distinguished_by_their_nonce,
    a_lease_that_ran_out_untaken_may_be_extended,
    a_lease_runs_out_by_the_databases_clock,
    a_lease_ends_once_and_the_same_end_again_is_ok,
    a_release_wakes_after_its_delay_and_may_not_count,
    a_wake_up_that_is_left_does_not_end_a_delay,
    attempts_run_out,
    a_pull_request_that_was_begun_earns_one_more_claim,
    polling_finds_the_highest_and_oldest_first,
    a_task_that_lost_its_worker_goes_before_all_others,
    a_branch_is_named_once_and_belongs_to_one_task_of_its_repository,
}

/// Every write that a lease guards is refused.
async fn every_write_is_fenced(world: &World, late: &Lease) {
    let store = &world.store;
    let before = store.steps(late.task).await.unwrap().len();
    assert!(is_fenced(store.heartbeat(late, MINUTE).await));
    assert!(is_fenced(store.check(late).await));
    assert!(is_fenced(store.set_phase(late, Phase::Running).await));
    assert!(is_fenced(store.name_branch(late, "fix/late").await));
    assert!(is_fenced(store.append_step(late, &note("late")).await));
    let usage = Usage::default();
    assert!(is_fenced(store.record_usage(late, "m", &usage).await));
    let reply = note("late");
    let appended = store.append_step_with_usage(late, &reply, "m", &usage);
    assert!(is_fenced(appended.await));
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

/// A failover that loses the commit of the first claim leaves two workers with the same epoch.
async fn two_claims_of_one_epoch_are_distinguished_by_their_nonce(world: World) {
    let lease = world.leased(1).await;
    let lost = Lease {
        nonce: Uuid::new_v4(),
        ..lease.clone()
    };
    every_write_is_fenced(&world, &lost).await;
    let request = world.store.heartbeat(&lease, MINUTE).await.unwrap();
    assert_eq!(request, LeaseRequest::Continue);
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

/// As by a transaction of a person that was left open.
#[tokio::test]
async fn a_row_that_somebody_keeps_locked_holds_up_no_claim_for_long() {
    on(Database::postgres(), async |world: World| {
        let locked = world.new_task(1).await.id;
        let free = world.new_task(2).await.id;
        let mut other = PgConnection::connect(&world.database.url()).await.unwrap();
        let lock = "BEGIN; SELECT 1 FROM tasks WHERE number = 1 FOR UPDATE";
        sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
        let worker = WorkerId("w".into());
        let claim = async |task| {
            world
                .store
                .claim(task, &worker, Uuid::new_v4(), MINUTE, 3)
                .await
        };
        let begun = std::time::Instant::now();
        let refused = claim(locked).await;
        assert!(matches!(refused, Err(StoreError::Busy(_))), "{refused:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "{:?}",
            begun.elapsed()
        );
        assert!(claim(free).await.unwrap().is_some());
        other.close().await.unwrap();
        assert!(claim(locked).await.unwrap().is_some());
    })
    .await;
}

async fn a_lease_runs_out_by_the_databases_clock(world: World) {
    let task = world.new_task(1).await;
    let short = Duration::from_millis(50);
    let first = world.claim(task.id, short).await.unwrap();
    let next = loop {
        let ran_out = world.store.lease_ran_out_at(task.id).await.unwrap();
        if ran_out.is_some() {
            assert_eq!(ran_out, world.task(task.id).await.lease_until);
        }
        if let Some(claim) = world.claim(task.id, MINUTE).await {
            assert!(ran_out.is_some() || first.task.lease_until < claim.task.lease_until);
            break claim;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(next.lease.epoch, Epoch(2));
    let held = world.store.lease_ran_out_at(task.id).await.unwrap();
    assert_eq!(held, None);
}

async fn a_lease_ends_once_and_the_same_end_again_is_ok(world: World) {
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
    assert_eq!(world.claimable(NONE, 9).await, []);
    assert_eq!(world.sweep(NONE).await.rewoken, 0);
}

/// A task that waited for long has several messages in the broker. The first one leads to a session.
async fn a_wake_up_that_is_left_does_not_end_a_delay(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    world.relay().await;
    let later = release(Attempt::Charged, MINUTE);
    store.end_lease(&lease, &later).await.unwrap();
    assert!(world.claim(lease.task, MINUTE).await.is_none());
    let row = world.task(lease.task).await;
    assert_eq!((row.state, row.attempt), (TaskState::Queued, 1));
    // People end it.
    assert!(store.skip_delay(lease.task).await.unwrap());
    let lease = world.claim(lease.task, MINUTE).await.unwrap().lease;
    store.end_lease(&lease, &later).await.unwrap();
    store.request_pause(lease.task, "lunch").await.unwrap();
    assert!(store.resume(lease.task).await.unwrap());
    assert_eq!(world.claimable(NONE, 9).await, [lease.task]);
    assert!(world.claim(lease.task, MINUTE).await.is_some());
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

async fn a_pull_request_that_was_begun_earns_one_more_claim(world: World) {
    let store = &world.store;
    let key = EffectKey::pull_request("branch");
    // The sweep finds the first one, a claim the second, and a worker gave the third back.
    for number in 1..=3 {
        let task = world.new_task(number).await.id;
        let last = world.claim_of(task, MINUTE, 1).await.unwrap().lease;
        assert_eq!(store.effect(task, &key).await.unwrap(), None);
        store.effect_begin(task, Some(&last), &key).await.unwrap();
        assert_eq!(
            store.effect(task, &key).await.unwrap(),
            Some(EffectState::Unsure)
        );
        if number < 3 {
            store.heartbeat(&last, NONE).await.unwrap();
        }
        let policy = SweepPolicy {
            max_attempts: 1,
            wakeup_after: MINUTE,
            lease: MINUTE,
        };
        match number {
            1 => assert_eq!(store.sweep(&policy).await.unwrap().requeued, [task]),
            2 => {}
            _ => {
                let end = release(Attempt::Charged, NONE);
                store.end_lease(&last, &end).await.unwrap();
            }
        }
        let report = world.claim_of(task, NONE, 1).await.unwrap();
        assert_eq!(report.task.attempt, 2);
        let result = json!({"url": "u"});
        store.effect_done(task, &key, &result).await.unwrap();
        let done = Some(EffectState::Done(result));
        assert_eq!(store.effect(task, &key).await.unwrap(), done);
        // It is the only one.
        assert!(world.claim_of(task, MINUTE, 1).await.is_none());
        let row = world.task(task).await;
        assert_eq!(row.state, TaskState::Ended(EndState::Failed), "{number}");
    }
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
    let found = world.claimable(NONE, 9).await;
    assert_eq!(found, [high.id, first, second]);
    assert_eq!(world.claimable(NONE, 1).await, [high.id]);
    assert_eq!(world.claimable(MINUTE, 9).await, []);
    world.claim(high.id, NONE).await.unwrap();
    let found = world.claimable(NONE, 1).await;
    assert_eq!(found, [high.id], "a lease that ran out");
}

async fn a_task_that_lost_its_worker_goes_before_all_others(world: World) {
    let store = &world.store;
    let [dead, drained, given_back] = [1, 2, 3];
    let mut ids = Vec::new();
    for number in [dead, drained, given_back] {
        ids.push(world.new_task(number).await.id);
    }
    let mut new = issue(4, "e1");
    new.priority = Priority::Critical;
    let Enqueued::Created(critical) = store.enqueue(&new).await.unwrap() else {
        panic!("known");
    };
    assert_eq!(world.relay_takeovers().await, [], "new tasks");
    world.claim(ids[0], NONE).await.unwrap();
    let lease = world.claim(ids[1], MINUTE).await.unwrap().lease;
    let end = LeaseEnd::HandOver {
        reason: "the worker was shut down".into(),
    };
    store.end_lease(&lease, &end).await.unwrap();
    assert_eq!(world.task(ids[1]).await.attempt, 0);
    let lease = world.claim(ids[2], MINUTE).await.unwrap().lease;
    let end = release(Attempt::Charged, NONE);
    store.end_lease(&lease, &end).await.unwrap();

    let in_order = [ids[0], ids[1], critical.id, ids[2]];
    assert_eq!(world.claimable(NONE, 9).await, in_order);
    // These need no age: nobody else has seen a wake-up of theirs.
    assert_eq!(world.claimable(MINUTE, 9).await, ids[..2]);
    assert_eq!(world.sweep(MINUTE).await.requeued, [ids[0]]);
    assert_eq!(world.claimable(NONE, 9).await, in_order);
    let mut takeovers = world.relay_takeovers().await;
    takeovers.sort();
    assert_eq!(takeovers, ids[..2]);

    // Only until the next worker has it.
    let lease = world.claim(ids[0], MINUTE).await.unwrap().lease;
    let end = release(Attempt::Charged, NONE);
    store.end_lease(&lease, &end).await.unwrap();
    assert_eq!(world.relay_takeovers().await, []);
}

/// A worker without the tracker of the first rows looks at the next ones.
async fn rows_of_others_hide_no_claimable_row(world: World) {
    let mut expected = Vec::new();
    for number in 1..=5 {
        expected.push(world.new_task(number).await.id);
    }
    let mut found = Vec::new();
    for skip in [0, 2, 4, 6] {
        let page = world.store.claimable(NONE, skip, 2).await.unwrap();
        found.extend(page.iter().map(|task| task.id));
    }
    assert_eq!(found, expected);
}

async fn a_branch_is_named_once_and_belongs_to_one_task_of_its_repository(world: World) {
    let store = &world.store;
    let recorded = |name: &str| NamedBranch::Recorded(name.into());
    let first = world.leased(1).await;
    let name = async |lease: &Lease, name: &str| store.name_branch(lease, name).await.unwrap();
    assert_eq!(name(&first, "fix/bot-1").await, recorded("fix/bot-1"));
    assert_eq!(name(&first, "fix/bot-1").await, recorded("fix/bot-1"));
    assert_eq!(name(&first, "docs/other").await, recorded("fix/bot-1"));
    let task = store.task(first.task).await.unwrap().unwrap();
    assert_eq!(task.branch(), "fix/bot-1");
    // The next session of the task has it too.
    let later = release(Attempt::Refunded, NONE);
    store.end_lease(&first, &later).await.unwrap();
    let again = world.claim(first.task, MINUTE).await.unwrap();
    assert_eq!(again.task.branch(), "fix/bot-1");

    let second = world.leased(2).await;
    assert_eq!(name(&second, "fix/bot-1").await, NamedBranch::Taken);
    let task = store.task(second.task).await.unwrap().unwrap();
    assert_eq!(task.named_branch, None);
    assert_eq!(name(&second, "fix/bot-1-2").await, recorded("fix/bot-1-2"));

    let mut elsewhere = issue(1, "e1");
    elsewhere.item.repo_id = "another".into();
    let Enqueued::Created(task) = store.enqueue(&elsewhere).await.unwrap() else {
        panic!("it is known");
    };
    let third = world.claim(task.id, MINUTE).await.unwrap().lease;
    assert_eq!(name(&third, "fix/bot-1").await, recorded("fix/bot-1"));
}
