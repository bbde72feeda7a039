//! Repairs after a worker died or a message was lost.

use super::*;

facts! {
    a_sweep_requeues_expired_leases_and_fails_tasks_without_attempts,
    a_queued_row_without_a_recent_wake_up_is_rewoken,
    a_row_that_has_waited_for_long_is_rewoken_more_rarely,
    sweeps_at_once_requeue_once,
    the_end_of_a_dead_workers_task_wakes_those_that_wait_for_its_files,
    a_sweep_returns_the_time_until_the_next_lease_runs_out,
    a_clock_that_is_set_back_does_not_stretch_a_dead_lease,
    a_clock_that_is_set_back_delays_no_wake_up_and_no_report,
    a_lease_that_is_longer_than_those_of_the_sweeper_keeps_its_length,
    a_sweep_reads_no_task_that_is_over,
    the_leases_of_a_dead_process_end_early_and_no_others,
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

async fn a_row_that_has_waited_for_long_is_rewoken_more_rarely(world: World) {
    let task = world.new_task(1).await.id;
    let minutes_ago = |minutes: u32| match *world.database {
        Database::Sqlite(_) => format!("unixepoch() * 1000 - {minutes} * 60000"),
        Database::Postgres { .. } => format!("now() - interval '{minutes} minutes'"),
    };
    let rewoken = async |waited, sent| {
        world.relay().await;
        let (waited, sent) = (minutes_ago(waited), minutes_ago(sent));
        let rows =
            format!("UPDATE tasks SET updated_at = {waited}; UPDATE outbox SET sent_at = {sent}");
        world.database.execute(&rows).await;
        world.sweep(MINUTE).await.rewoken
    };
    assert_eq!(rewoken(1, 2).await, 1);
    assert_eq!(rewoken(10, 4).await, 0, "it has waited for 10 minutes");
    assert_eq!(rewoken(10, 6).await, 1);
    assert_eq!(rewoken(600, 59).await, 0);
    assert_eq!(rewoken(600, 61).await, 1, "each hour at the latest");
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

async fn the_end_of_a_dead_workers_task_wakes_those_that_wait_for_its_files(world: World) {
    let mut ids = Vec::new();
    for number in [1, 2] {
        let task = world.new_task(number).await;
        let edit = TaskEdit {
            write_scope: Some(WriteScope::new(vec!["src".into()]).unwrap()),
            ..TaskEdit::default()
        };
        ids.push(world.edited(task.id, edit).await.id);
    }
    world.relay().await;
    world.claim_of(ids[0], NONE, 1).await.unwrap();
    assert!(world.claim(ids[1], MINUTE).await.is_none());
    let policy = SweepPolicy {
        max_attempts: 1,
        wakeup_after: MINUTE,
        lease: MINUTE,
    };
    let report = world.store.sweep(&policy).await.unwrap();
    assert_eq!(report.failed, [ids[0]]);
    assert_eq!(world.relay().await, [ids[1]]);
    assert!(world.claim(ids[1], MINUTE).await.is_some());
}

async fn a_sweep_returns_the_time_until_the_next_lease_runs_out(world: World) {
    assert_eq!(world.sweep(MINUTE).await.next_expiry, None);
    world.leased(1).await;
    let later = world.new_task(2).await.id;
    world.claim(later, 2 * MINUTE).await.unwrap();
    let left = world.sweep(MINUTE).await.next_expiry.unwrap();
    assert!(left > MINUTE / 2 && left <= MINUTE, "{left:?}");
}

/// A clock that is set back by an hour leaves rows whose times are in an hour.
async fn a_clock_that_is_set_back_does_not_stretch_a_dead_lease(world: World) {
    let dead = world.new_task(1).await.id;
    world.claim(dead, Duration::from_millis(100)).await.unwrap();
    let held = world.leased(2).await;
    let set_back = match *world.database {
        Database::Sqlite(_) => HOUR_LATER.replace("HOUR", "3600000"),
        Database::Postgres { .. } => HOUR_LATER.replace("HOUR", "interval '1 hour'"),
    };
    world.database.execute(&set_back).await;
    let begun = std::time::Instant::now();
    while !world.sweep(MINUTE).await.requeued.contains(&dead) {
        assert!(begun.elapsed() < MINUTE / 6, "a dead lease lasts on");
    }
    assert_eq!(world.task(held.task).await.state.as_str(), "leased");
    let left = world.sweep(MINUTE).await.next_expiry.unwrap();
    assert!(left > MINUTE / 2 && left <= MINUTE, "{left:?}");
}

async fn a_clock_that_is_set_back_delays_no_wake_up_and_no_report(world: World) {
    let hour = match *world.database {
        Database::Sqlite(_) => "3600000",
        Database::Postgres { .. } => "interval '1 hour'",
    };
    let released = world.leased(1).await;
    let delay = Duration::from_secs(20);
    let end = release(Attempt::Refunded, delay);
    world.store.end_lease(&released, &end).await.unwrap();
    world.relay().await;
    let new = world.new_task(2).await.id;
    let ended = world.leased(3).await;
    world.store.end_lease(&ended, &done()).await.unwrap();
    let other = world.new_task(4).await.id;
    let later = format!(
        "UPDATE tasks SET updated_at = updated_at + {hour}, report_until = updated_at + {hour};
         UPDATE outbox SET due_at = due_at + {hour} WHERE sent_at IS NULL"
    );
    world.database.execute(&later).await;
    assert_eq!(world.relay().await, []);
    world.sweep(MINUTE).await;
    let mut announced = world.relay().await;
    announced.sort();
    let mut expected = [new, other];
    expected.sort();
    assert_eq!(announced, expected);
    let due = world.store.due_at(released.task).await.unwrap().unwrap();
    let left = (due - chrono::Utc::now()).to_std().unwrap();
    // Two clocks, which round.
    let most = delay + Duration::from_secs(1);
    assert!(left <= most && left > delay / 2, "{left:?}");
    let unreported = world
        .store
        .unreported(NONE, TaskNumber(0), 9)
        .await
        .unwrap();
    assert_eq!(
        unreported.iter().map(|it| it.id).collect::<Vec<_>>(),
        [ended.task]
    );
    let claim = world
        .store
        .claim_report(&unreported[0], Uuid::new_v4(), MINUTE);
    assert!(claim.await.unwrap().is_some());
    world.sweep(MINUTE).await;
    assert_eq!(world.relay().await, [], "once");
}

const HOUR_LATER: &str = "UPDATE tasks SET lease_until = lease_until + HOUR,
    lease_since = lease_since + HOUR WHERE state = 'leased'";

/// As while a changed `consumer.lease_seconds` is rolled out.
async fn a_lease_that_is_longer_than_those_of_the_sweeper_keeps_its_length(world: World) {
    let longer = world.new_task(1).await.id;
    world.claim(longer, 60 * MINUTE).await.unwrap();
    let left = world.sweep(MINUTE).await.next_expiry.unwrap();
    assert!(left > 59 * MINUTE, "it was cut to {left:?}");
}

async fn the_leases_of_a_dead_process_end_early_and_no_others(world: World) {
    let died = |process| {
        let store = &world.store;
        async move {
            store
                .worker_died(process, Duration::from_millis(50))
                .await
                .unwrap()
        }
    };
    // By `host/1/0`.
    let dead = world.leased(1).await.task;
    let lives = world.new_task(2).await.id;
    let (worker, nonce) = (WorkerId("host/10/0".into()), Uuid::new_v4());
    let claim = world.store.claim(lives, &worker, nonce, MINUTE, 3).await;
    claim.unwrap().unwrap();
    assert_eq!(died("host/1").await, 1);
    assert_eq!(died("host/1").await, 0, "a lease that ends sooner stays");
    assert_eq!(died("other").await, 0);
    let begun = std::time::Instant::now();
    while !world.sweep(MINUTE).await.requeued.contains(&dead) {
        assert!(
            begun.elapsed() < MINUTE / 6,
            "the lease of a dead worker lasts on"
        );
    }
    assert_eq!(world.task(lives).await.state.as_str(), "leased");
    let left = world.sweep(MINUTE).await.next_expiry.unwrap();
    assert!(
        left > MINUTE / 2,
        "the lease of another process ends in {left:?}"
    );
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

/// What the sweep waits for must not grow with all the tasks that there ever were.
async fn a_sweep_reads_no_task_that_is_over(world: World) {
    let is_sqlite = matches!(*world.database, Database::Sqlite(_));
    let uuid = if is_sqlite { "n" } else { "md5('' || n)::uuid" };
    let long_ago = match is_sqlite {
        true => "0",
        false => "now() - interval '9 days'",
    };
    let text = "CAST(n AS text)";
    let analyze = if is_sqlite { "" } else { "ANALYZE;" };
    let rows = format!(
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 5000)
         INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key,
             trigger_event, dedup_key, title, url, priority, state, created_at, updated_at, end_reported)
         SELECT {uuid}, n, 'github', 'h', '1', 'a/b', 'issue', n, {text}, 'e', {text}, 't', 'u', 1,
             'done', {long_ago}, {long_ago}, true FROM numbers;
         INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
         SELECT id, 'label', 'done', epoch, '{{}}', {long_ago}, {long_ago} FROM tasks;
         {analyze}"
    );
    world.database.execute(&rows).await;
    trace::start();
    world.sweep(MINUTE).await;
    let none = TaskNumber(0);
    world.store.unconfirmed(MINUTE, DAY, none, 9).await.unwrap();
    world.store.unreported(MINUTE, none, 9).await.unwrap();
    world.store.figures().await.unwrap();
    let statements = trace::take();
    assert!(statements.len() >= 6, "{statements:?}");
    for statement in statements {
        for line in world.database.plan(&statement).await {
            assert!(!is_over_all_tasks(&line), "{line}: {statement}");
        }
    }
}

/// Whether a line of a plan reads a whole table, or all of an index of a whole table.
fn is_over_all_tasks(line: &str) -> bool {
    const FEW: [&str; 6] = [
        "effects_unfinished",
        "tasks_leased",
        "tasks_queued",
        "tasks_waiting",
        "tasks_at_rest",
        "tasks_unreported",
    ];
    const WHOLE: [&str; 8] = [
        "SCAN tasks",
        "SCAN t",
        "SCAN effects",
        "SCAN e",
        "Seq Scan on tasks",
        "Seq Scan on effects",
        "tasks_number_key",
        "(number>?)",
    ];
    let is_of = |name: &&str| {
        let rest = line.split_once(*name).map(|(_, rest)| rest);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    WHOLE.iter().any(is_of) && !FEW.iter().any(|name| line.contains(name))
}
