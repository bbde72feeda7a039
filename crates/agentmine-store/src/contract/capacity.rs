//! Tasks that wait until a producer admits them.

use agentmine_runtime::config::RetentionConfig;

use super::*;

facts! {
    a_waiting_task_costs_no_message_and_no_claim_until_it_is_admitted,
    a_task_is_admitted_once_and_only_where_there_is_room,
    a_person_admits_a_task_whatever_its_repository_has,
    two_producers_at_once_exceed_no_limit,
    the_next_tasks_are_those_of_the_highest_priority_and_of_every_kind,
    what_a_repository_has_is_counted,
    a_change_of_a_task_that_is_over_makes_no_new_pull_request_of_it,
    a_task_that_was_given_back_for_a_time_keeps_no_other_one_from_its_turn,
    pull_requests_of_tasks_without_a_result_are_counted,
    a_pause_a_stop_and_another_request_wake_no_waiting_task,
    ten_thousand_waiting_tasks_cost_no_message_and_are_not_read_for_others,
    a_task_that_waits_for_its_turn_is_not_among_the_admitted,
}

const HOUR: Duration = Duration::from_secs(3600);

/// Another repository than that of [`issue`].
fn elsewhere(number: u64) -> NewTask {
    let mut new = issue(number, "e1");
    new.item.repo_id = "43".into();
    new.item.repo_path = "acme/other".into();
    new
}

fn pull(number: u64) -> NewTask {
    let mut new = issue(number, "e1");
    new.item.kind = ItemKind::PullRequest;
    new
}

impl World {
    async fn waiting(&self, new: NewTask) -> Task {
        match self.store.enqueue_waiting(&new).await.unwrap() {
            Enqueued::Created(task) => task,
            Enqueued::Known(task) => panic!("known: {task:?}"),
        }
    }

    async fn room(&self, tasks: u64, on_issues: u64) -> Room {
        Room {
            tasks: Some(tasks),
            on_issues: Some(on_issues),
            since: self.store.scan_time().await.unwrap(),
        }
    }

    /// As a session does that opens a pull request before its work.
    async fn opens_draft(&self, task: TaskId, number: u64) {
        let key = EffectKey::pull_request_draft(&format!("agentmine/{number}"));
        let url = format!("https://github.com/acme/shop/pull/{number}");
        let record = json!({"number": number, "url": url});
        self.store.effect_done(task, &key, &record).await.unwrap();
    }

    async fn admit(&self, task: &Task) -> Admitted {
        let room = self.room(9, 9).await;
        self.store.admit(task, &room).await.unwrap()
    }
}

async fn a_waiting_task_costs_no_message_and_no_claim_until_it_is_admitted(world: World) {
    let task = world.waiting(issue(1, "e1")).await;
    assert_eq!(task.card.waits_for, Some(WaitsFor::Turn));
    assert!(world.relay().await.is_empty());
    world.sweep(NONE).await;
    assert!(world.relay().await.is_empty());
    assert!(world.claimable(NONE, 9).await.is_empty());
    assert!(world.claim(task.id, MINUTE).await.is_none());
    let figures = world.store.figures().await.unwrap();
    assert_eq!(figures.slots, 0);
    let waiting = figures
        .tasks
        .iter()
        .find(|it| it.standing == TaskStanding::Waiting && it.priority == Priority::Medium);
    assert_eq!(waiting.unwrap().backlog.count, 1);

    assert_eq!(world.admit(&task).await, Admitted::Yes);
    assert_eq!(world.relay().await, [task.id]);
    assert_eq!(world.task(task.id).await.card.waits_for, None);
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    // It does not wait again after it was given back.
    let given_back = release(Attempt::Refunded, NONE);
    world.store.end_lease(&lease, &given_back).await.unwrap();
    assert_eq!(world.relay().await, [task.id]);
    assert!(world.claim(task.id, MINUTE).await.is_some());
}

async fn a_task_is_admitted_once_and_only_where_there_is_room(world: World) {
    let store = &world.store;
    let mut tasks = Vec::new();
    for number in 1..=4 {
        tasks.push(world.waiting(issue(number, "e1")).await);
    }
    let admit = async |task: &Task, tasks, on_issues| {
        let room = world.room(tasks, on_issues).await;
        store.admit(task, &room).await.unwrap()
    };
    assert_eq!(admit(&tasks[0], 0, 9).await, Admitted::Full);
    assert_eq!(admit(&tasks[0], 9, 0).await, Admitted::Full);
    let room = world.room(9, 1).await;
    assert_eq!(admit(&tasks[0], 9, 9).await, Admitted::Yes);
    // One is ahead of a worker, and no worker has one.
    assert_eq!(admit(&tasks[1], 9, 9).await, Admitted::Full);
    let lease = world.claim(tasks[0].id, MINUTE).await.unwrap().lease;
    assert_eq!(admit(&tasks[0], 9, 9).await, Admitted::NotWaiting);
    assert_eq!(admit(&tasks[1], 1, 9).await, Admitted::Full);
    assert_eq!(admit(&tasks[1], 9, 1).await, Admitted::Full);
    // One on a pull request opens none.
    let other = world.waiting(pull(9)).await;
    assert_eq!(admit(&other, 9, 1).await, Admitted::Yes);
    world.claim(other.id, MINUTE).await.unwrap();
    // What ended after the numbers were read still counts.
    store.end_lease(&lease, &done()).await.unwrap();
    assert_eq!(store.admit(&tasks[1], &room).await.unwrap(), Admitted::Full);
    assert_eq!(admit(&tasks[1], 2, 1).await, Admitted::Yes);
    // Another repository has its own.
    let there = world.waiting(elsewhere(1)).await;
    assert_eq!(admit(&there, 1, 1).await, Admitted::Yes);
    // One that waits for a person is nobody's turn.
    let for_person = "UPDATE tasks SET assignee_type = 'human' WHERE repo_id = '43'";
    world.database.execute(for_person).await;
    let there = world.waiting(elsewhere(2)).await;
    assert_eq!(admit(&there, 1, 1).await, Admitted::Yes);
}

async fn two_producers_at_once_exceed_no_limit(world: World) {
    let store = &world.store;
    let lease = world.leased(99).await;
    world.leased(98).await;
    let mut tasks = Vec::new();
    for number in 1..=6 {
        tasks.push(world.waiting(issue(number, "e1")).await);
    }
    let room = world.room(3, 9).await;
    let admissions = tasks.iter().map(|task| store.admit(task, &room));
    let outcomes = futures::future::join_all(admissions).await;
    let admitted = outcomes.iter().filter(|it| matches!(it, Ok(Admitted::Yes)));
    assert_eq!(admitted.count(), 1, "{outcomes:?}");
    store.check(&lease).await.unwrap();
}

async fn the_next_tasks_are_those_of_the_highest_priority_and_of_every_kind(world: World) {
    let store = &world.store;
    let mut ids = Vec::new();
    for number in 1..=4 {
        ids.push(world.waiting(issue(number, "e1")).await.id);
    }
    store.prioritize(ids[3], Priority::High).await.unwrap();
    let on_pull = world.waiting(pull(9)).await;
    let place = on_pull.item.repository();
    let next = async |each| {
        let found = store.next_waiting(&place, each).await.unwrap();
        found.iter().map(|task| task.id).collect::<Vec<_>>()
    };
    assert_eq!(next(2).await, [ids[3], ids[0], on_pull.id]);
    // What an item waits for is checked again after a time, and does not keep others from their turn.
    store.hold_task(ids[3], "it is odd", HOUR).await.unwrap();
    assert_eq!(next(2).await, [ids[0], ids[1], on_pull.id]);
    store.hold_task(ids[3], "it is odd", NONE).await.unwrap();
    assert_eq!(next(2).await, [ids[3], ids[0], ids[1], on_pull.id]);
    let held = world.task(ids[3]).await;
    assert_eq!(
        held.card.waits_for,
        Some(WaitsFor::Item("it is odd".into()))
    );

    store.hold_task(ids[3], "", HOUR).await.unwrap();
    assert_eq!(next(2).await, [ids[3], ids[0], on_pull.id]);
    let held = world.task(ids[3]).await;
    assert_eq!(held.card.waits_for, Some(WaitsFor::Turn));

    let turn = store.turn(&world.task(ids[1]).await).await.unwrap();
    assert_eq!((turn.reason, turn.before), (None, 2));
    for reason in ["full", "full", "too late"] {
        store.hold_repository(&place, reason).await.unwrap();
    }
    let turn = store.turn(&world.task(ids[2]).await).await.unwrap();
    assert_eq!((turn.reason.as_deref(), turn.before), (Some("too late"), 3));
    let requests = store.waiting_requests().await.unwrap();
    assert_eq!(requests.len(), 5);
    let first = requests.iter().find(|it| it.task == ids[3]).unwrap();
    assert_eq!(first.dedup_key, issue(4, "e1").dedup_key());
    assert_eq!(first.priority, Priority::High);
}

async fn a_task_that_was_given_back_for_a_time_keeps_no_other_one_from_its_turn(world: World) {
    let store = &world.store;
    let next = world.waiting(issue(2, "e1")).await;
    let lease = world.leased(1).await;
    let given_back = release(Attempt::Refunded, HOUR);
    store.end_lease(&lease, &given_back).await.unwrap();
    let loads = store.loads().await.unwrap();
    let counts = (loads[0].queued, loads[0].delayed, loads[0].leased);
    assert_eq!(counts, (1, 1, 0));
    // It has its place all the same, and will open a pull request.
    let admit = async |tasks, on_issues| {
        let room = world.room(tasks, on_issues).await;
        store.admit(&next, &room).await.unwrap()
    };
    assert_eq!(admit(1, 9).await, Admitted::Full);
    assert_eq!(admit(9, 1).await, Admitted::Full);
    assert_eq!(admit(9, 9).await, Admitted::Yes);
    let loads = store.loads().await.unwrap();
    assert!(loads.is_empty(), "{loads:?}");
    // One that is due is ahead of the next.
    let last = world.waiting(issue(3, "e1")).await;
    assert_eq!(world.admit(&last).await, Admitted::Full);
}

async fn what_a_repository_has_is_counted(world: World) {
    let store = &world.store;
    assert!(store.loads().await.unwrap().is_empty());
    let lease = world.leased(1).await;
    world.new_task(2).await;
    assert!(store.loads().await.unwrap().is_empty(), "nothing waits");
    let place = world.waiting(pull(3)).await.item.repository();
    world.waiting(elsewhere(1)).await;
    let loads = store.loads().await.unwrap();
    let numbers = loads.iter().map(|load| {
        let counts = (load.waiting, load.queued, load.leased, load.on_issues);
        (load.repo_path.as_str(), counts)
    });
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(
        numbers,
        [("acme/shop", (1, 1, 1, 2)), ("acme/other", (1, 0, 0, 0))]
    );
    assert_eq!(loads[0].repository, place);
    store.end_lease(&lease, &done()).await.unwrap();
    let ours = store.pull_requests_of(&place).await.unwrap();
    let expected = OpenedPullRequest {
        issue: 1,
        url: "https://github.com/acme/shop/pull/9".into(),
    };
    assert_eq!(ours, [expected]);
    assert_eq!(store.opened_within(&place, HOUR).await.unwrap(), 1);
    a_day_passes(&world).await;
    assert_eq!(store.opened_within(&place, 24 * HOUR).await.unwrap(), 0);
    assert_eq!(store.pull_requests_of(&place).await.unwrap().len(), 1);
}

/// All tasks changed a day earlier.
async fn a_day_passes(world: &World) {
    let yesterday = match *world.database {
        Database::Sqlite(_) => "UPDATE tasks SET updated_at = updated_at - 90000000",
        Database::Postgres { .. } => "UPDATE tasks SET updated_at = updated_at - interval '25 h'",
    };
    world.database.execute(yesterday).await;
}

async fn a_change_of_a_task_that_is_over_makes_no_new_pull_request_of_it(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    store.end_lease(&lease, &done()).await.unwrap();
    a_day_passes(&world).await;
    let edit = TaskEdit {
        priority: Some(Priority::Low),
        ..TaskEdit::default()
    };
    let changed = world.edited(lease.task, edit).await;
    assert_eq!((changed.priority, changed.card.version), (Priority::Low, 2));
    let place = issue(1, "e1").item.repository();
    assert_eq!(store.opened_within(&place, 24 * HOUR).await.unwrap(), 0);
}

async fn pull_requests_of_tasks_without_a_result_are_counted(world: World) {
    let store = &world.store;
    let place = issue(1, "e1").item.repository();
    let before = world.room(9, 1).await;
    for (number, state) in [(1, EndState::Failed), (2, EndState::Stopped)] {
        let lease = world.leased(number).await;
        world.opens_draft(lease.task, number).await;
        let url = None;
        let reason = Some("no idea".into());
        let end = LeaseEnd::Finish {
            state,
            reason,
            pull_request_url: url,
        };
        store.end_lease(&lease, &end).await.unwrap();
    }
    // At work it counts as a task.
    let lease = world.leased(3).await;
    world.opens_draft(lease.task, 3).await;
    // Without one, and in another repository, nothing counts.
    let without = world.new_task(4).await;
    store.request_stop(without.id, "no").await.unwrap();
    let ours = async || {
        let mut ours = store.pull_requests_of(&place).await.unwrap();
        ours.sort_by_key(|pull| pull.issue);
        let numbers = ours.into_iter().map(|pull| (pull.issue, pull.url));
        numbers.collect::<Vec<_>>()
    };
    let url = |number: u64| {
        (
            number,
            format!("https://github.com/acme/shop/pull/{number}"),
        )
    };
    assert_eq!(ours().await, [url(1), url(2)]);
    assert_eq!(store.opened_within(&place, HOUR).await.unwrap(), 2);
    let there = elsewhere(1).item.repository();
    assert_eq!(store.opened_within(&there, HOUR).await.unwrap(), 0);
    assert!(store.pull_requests_of(&there).await.unwrap().is_empty());
    let waiting = world.waiting(issue(5, "e1")).await;
    assert_eq!(
        store.admit(&waiting, &before).await.unwrap(),
        Admitted::Full
    );

    store.request_pause(lease.task, "lunch").await.unwrap();
    let paused = LeaseEnd::Pause {
        reason: "lunch".into(),
    };
    store.end_lease(&lease, &paused).await.unwrap();
    assert_eq!(ours().await, [url(1), url(2), url(3)]);
    assert_eq!(store.opened_within(&place, HOUR).await.unwrap(), 3);

    // They stay open for longer than a day and than effects are kept.
    let old = match *world.database {
        Database::Sqlite(_) => [
            "tasks SET updated_at = updated_at",
            "effects SET done_at = done_at",
        ]
        .map(|set| format!("UPDATE {set} - 34560000000")),
        Database::Postgres { .. } => [
            "tasks SET updated_at = updated_at",
            "effects SET done_at = done_at",
        ]
        .map(|set| format!("UPDATE {set} - interval '400 days'")),
    };
    for sql in old {
        world.database.execute(&sql).await;
    }
    let reported = "UPDATE tasks SET end_reported = true WHERE state <> 'paused'";
    world.database.execute(reported).await;
    let policy = RetentionConfig::default();
    while store.prune(&policy).await.unwrap().found_any() {}
    assert_eq!(store.opened_within(&place, 24 * HOUR).await.unwrap(), 0);
    assert_eq!(ours().await, [url(1), url(2), url(3)]);
}

async fn a_pause_a_stop_and_another_request_wake_no_waiting_task(world: World) {
    let store = &world.store;
    let task = world.waiting(issue(1, "e1")).await;
    assert!(world.answer(task.id, "e2").await);
    store.request_pause(task.id, "lunch").await.unwrap();
    assert_eq!(world.admit(&task).await, Admitted::NotWaiting);
    assert!(store.loads().await.unwrap().is_empty());
    store.resume(task.id).await.unwrap();
    assert!(world.relay().await.is_empty());
    assert_eq!(store.loads().await.unwrap().len(), 1);
    store.request_stop(task.id, "no").await.unwrap();
    assert_eq!(world.admit(&task).await, Admitted::NotWaiting);
    assert!(world.relay().await.is_empty());
}

async fn ten_thousand_waiting_tasks_cost_no_message_and_are_not_read_for_others(world: World) {
    let store = &world.store;
    world.crowded().await;
    world.relay().await;
    let waits = "UPDATE tasks SET waits_for = '' WHERE state = 'queued'; ANALYZE";
    let many = match *world.database {
        Database::Sqlite(_) => {
            "INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key,
                 trigger_event, dedup_key, title, url, priority, created_at, updated_at)
             SELECT printf('%08x-0000-7000-8000-%012x', 9, n), 100000 + n, 'github', 'github.com', '77', 'acme/many', 'issue',
                 n, 'many|' || n, 'e', 'many|' || n, 't', 'u', 1, n, n
             FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 10000) SELECT n FROM c)"
        }
        Database::Postgres { .. } => {
            "INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key,
                 trigger_event, dedup_key, title, url, priority)
             SELECT ('00000009-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 100000 + n, 'github', 'github.com',
                 '77', 'acme/many', 'issue', n, 'many|' || n, 'e', 'many|' || n, 't', 'u', 1
             FROM generate_series(1, 10000) AS n"
        }
    };
    world.database.execute(many).await;
    world.database.execute(waits).await;
    world.sweep(NONE).await;
    assert!(world.relay().await.is_empty());
    let load = store.loads().await.unwrap();
    let load = load.into_iter().find(|load| load.waiting == 10_000);
    let place = load.unwrap().repository;
    let admitted = store.admitted(TrackerKind::GitHub, "github.com").await;
    assert_eq!(admitted.unwrap(), []);

    trace::start();
    let task = world.new_task(200_000).await;
    store.claimable(NONE, 0, 20).await.unwrap();
    store.loads().await.unwrap();
    let next = store.next_waiting(&place, 4).await.unwrap();
    assert_eq!(world.admit(&next[0]).await, Admitted::Yes);
    store.pull_requests_of(&place).await.unwrap();
    store.opened_within(&place, HOUR).await.unwrap();
    world.claim(task.id, MINUTE).await.unwrap();
    world.sweep(NONE).await;
    let mut found = Vec::new();
    for statement in trace::take() {
        let plan = world.database.plan(&statement).await;
        let lines = plan.into_iter().filter(|line| plans::reads_all(line));
        found.extend(lines.map(|line| format!("{line}: {}", statement["sql"])));
    }
    assert!(found.is_empty(), "{found:#?}");
}

async fn a_task_that_waits_for_its_turn_is_not_among_the_admitted(world: World) {
    world.waiting(issue(1, "e1")).await;
    let older = world.new_task(2).await;
    world.leased(3).await;
    let mut foreign = issue(4, "e1");
    foreign.item.host = "github.example".into();
    world.store.enqueue(&foreign).await.unwrap();
    let newer = world.new_task(5).await;
    let admitted = world.store.admitted(TrackerKind::GitHub, "github.com");
    let admitted = admitted.await.unwrap();
    let ids: Vec<TaskId> = admitted.iter().map(|task| task.id).collect();
    assert_eq!(ids, [newer.id, older.id]);
}

async fn a_person_admits_a_task_whatever_its_repository_has(world: World) {
    for number in [1, 2] {
        world.new_task(number).await;
    }
    let waiting = world.waiting(issue(3, "e1")).await;
    let store = &world.store;
    assert!(store.admit_at_once(waiting.id).await.unwrap());
    assert_eq!(world.task(waiting.id).await.card.waits_for, None);
    assert!(world.relay().await.contains(&waiting.id));
    assert!(!store.admit_at_once(waiting.id).await.unwrap());
}
