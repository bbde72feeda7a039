//! Recording tasks and publishing their wake-ups.

use std::collections::BTreeMap;

use super::*;

facts! {
    a_task_is_recorded_once_for_its_trigger_and_item,
    enqueues_of_one_trigger_at_once_make_one_row_and_no_gap,
    a_waiting_task_answers_a_later_request_and_a_running_one_does_not,
    a_request_that_was_found_before_a_pause_is_not_answered,
    a_slow_scan_does_not_replace_a_later_answer,
    text_from_outside_may_hold_nul,
    two_relays_send_each_entry_once,
    a_failed_publish_keeps_its_entry,
    a_broken_queue_stops_the_wake_ups_of_no_other,
    the_wake_ups_of_a_broken_queue_take_the_turn_of_no_other,
    the_outbox_carries_the_priority,
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

async fn a_waiting_task_answers_a_later_request_and_a_running_one_does_not(world: World) {
    let store = &world.store;
    let id = world.new_task(1).await.id;
    world.relay().await;
    // Its own request is no later one.
    assert!(!world.answer(id, "e1").await);
    store.request_pause(id, "lunch").await.unwrap();
    assert!(world.answer(id, "e2").await);
    assert!(!world.answer(id, "e2").await);
    let task = world.task(id).await;
    assert_eq!((task.state, &task.reason), (TaskState::Queued, &None));
    assert!(task.answers("e1") && task.answers("e2") && !task.answers("e3"));
    assert_eq!(world.relay().await, [id]);

    // A queued task that waits for the end of a delay does not wait any longer.
    let lease = world.claim(id, MINUTE).await.unwrap().lease;
    store
        .end_lease(&lease, &release(Attempt::Refunded, MINUTE))
        .await
        .unwrap();
    assert_eq!(world.relay().await, []);
    assert!(world.answer(id, "e3").await);
    assert_eq!(world.relay().await, [id]);
    assert_eq!(world.claimable(NONE, 9).await, [id]);

    let lease = world.claim(id, MINUTE).await.unwrap().lease;
    assert!(!world.answer(id, "e4").await);
    store.end_lease(&lease, &done()).await.unwrap();
    // A stale scan reports the request that the task answered; the later one makes a separate task.
    let stale = store.enqueue(&issue(1, "e3")).await.unwrap();
    assert!(matches!(stale, Enqueued::Known(known) if known.id == id));
    let new = store.enqueue(&issue(1, "e4")).await.unwrap();
    assert!(matches!(new, Enqueued::Created(_)));
}

/// The time of a scan that begins now, once the clock shows a later time than its.
async fn a_moment_ago(world: &World) -> ScanTime {
    let scan = world.store.scan_time().await.unwrap();
    while world.store.scan_time().await.unwrap().millis <= scan.millis + 1 {
        tokio::task::yield_now().await;
    }
    scan
}

async fn a_request_that_was_found_before_a_pause_is_not_answered(world: World) {
    let store = &world.store;
    let running = world.leased(1).await;
    let waiting = world.new_task(2).await.id;
    let scan = a_moment_ago(&world).await;
    let pause = LeaseEnd::Pause {
        reason: "lunch".into(),
    };
    store.end_lease(&running, &pause).await.unwrap();
    store.request_pause(waiting, "lunch").await.unwrap();
    for id in [running.task, waiting] {
        assert!(!store.answer_request(id, "e2", scan).await.unwrap());
        assert_eq!(world.task(id).await.state, TaskState::Paused);
        assert!(world.answer(id, "e2").await, "a scan after the pause");
    }
}

async fn a_slow_scan_does_not_replace_a_later_answer(world: World) {
    let store = &world.store;
    let id = world.new_task(1).await.id;
    let slow = a_moment_ago(&world).await;
    assert!(world.answer(id, "e3").await);
    assert!(!store.answer_request(id, "e2", slow).await.unwrap());
    let task = world.task(id).await;
    assert!(task.answers("e3") && !task.answers("e2"));
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
    let Err(RelayError::Publish(why)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(why.contains("no broker"), "{why}");
    assert_eq!(broken.sent().len(), 1);
    let rest = world.relay().await;
    assert_eq!(rest.len(), 2);
    assert!(!rest.contains(&broken.sent()[0]));
}

/// Enqueues tasks of these priorities.
async fn enqueued(world: &World, priorities: &[Priority]) -> Vec<TaskId> {
    let mut tasks = Vec::new();
    for (number, priority) in (1..).zip(priorities) {
        let new = NewTask {
            priority: *priority,
            ..issue(number, "e1")
        };
        let Enqueued::Created(task) = world.store.enqueue(&new).await.unwrap() else {
            panic!("it is new");
        };
        tasks.push(task.id);
    }
    tasks
}

/// What is published, at most `limit` at once, while the queue of medium priority is broken.
async fn relayed_past_a_broken_queue(world: &World, limit: u32) -> Vec<TaskId> {
    let broken = Outbox {
        broken: Some(Priority::Medium),
        ..Outbox::default()
    };
    let outcome = world.store.relay_outbox(limit, &broken).await;
    assert!(
        matches!(outcome, Err(RelayError::Publish(_))),
        "{outcome:?}"
    );
    broken.sent()
}

async fn a_broken_queue_stops_the_wake_ups_of_no_other(world: World) {
    use Priority::{High, Medium};
    let waiting = enqueued(&world, &[Medium, Medium, High]).await;
    assert_eq!(relayed_past_a_broken_queue(&world, 10).await, waiting[2..]);
    assert_eq!(world.relay().await, waiting[..2]);
}

async fn the_wake_ups_of_a_broken_queue_take_the_turn_of_no_other(world: World) {
    use Priority::{High, Medium};
    let waiting = enqueued(&world, &[Medium, Medium, Medium, High]).await;
    assert_eq!(relayed_past_a_broken_queue(&world, 2).await, waiting[3..]);
    assert_eq!(world.relay().await, waiting[..3]);
}

async fn the_outbox_carries_the_priority(world: World) {
    let mut new = issue(1, "e1");
    new.priority = Priority::Critical;
    world.store.enqueue(&new).await.unwrap();
    let outbox = Outbox::default();
    world.store.relay_outbox(9, &outbox).await.unwrap();
    assert_eq!(outbox.sent.lock().unwrap()[0].priority, Priority::Critical);
}
