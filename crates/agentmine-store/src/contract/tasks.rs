//! What people ask of tasks, and what they see of them.

use super::*;

facts! {
    a_stop_request_ends_a_waiting_task_and_reaches_a_running_one,
    a_paused_task_waits_until_a_person_resumes_it,
    a_stop_request_is_stronger_than_the_pause_that_ends_a_session,
    a_person_who_pauses_a_task_that_waits_for_credentials_is_obeyed,
    a_request_outlives_its_worker,
    the_delay_of_a_waiting_task_can_be_skipped,
    a_command_is_obeyed_once,
    lists_are_newest_first_and_filtered,
}

async fn a_stop_request_ends_a_waiting_task_and_reaches_a_running_one(world: World) {
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

async fn a_paused_task_waits_until_a_person_resumes_it(world: World) {
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

/// The label and the comment of the pause are written first, which takes a moment.
async fn a_stop_request_is_stronger_than_the_pause_that_ends_a_session(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    store.request_pause(lease.task, "lunch").await.unwrap();
    store.request_stop(lease.task, "enough").await.unwrap();
    let pause = LeaseEnd::Pause {
        reason: "lunch".into(),
    };
    store.end_lease(&lease, &pause).await.unwrap();
    // After a lost answer.
    store.end_lease(&lease, &pause).await.unwrap();
    let row = world.task(lease.task).await;
    assert_eq!(row.state, TaskState::Ended(EndState::Stopped));
    assert_eq!(row.reason.as_deref(), Some("enough"));
    assert_eq!(world.unreported().await, [lease.task]);
    assert!(!store.resume(lease.task).await.unwrap());
}

/// A producer queues it again once the credentials are accepted, unless a person has paused it.
async fn a_person_who_pauses_a_task_that_waits_for_credentials_is_obeyed(world: World) {
    let store = &world.store;
    let pauses: [(u64, bool); 2] = [(1, false), (2, true)];
    for (number, by_comment) in pauses {
        let lease = world.leased(number).await;
        let pause = LeaseEnd::Pause {
            reason: credentials_reason("401"),
        };
        store.end_lease(&lease, &pause).await.unwrap();
        assert!(world.task(lease.task).await.waits_for_credentials());
        match by_comment {
            true => {
                let key = EffectKey::command("7");
                let obeyed = store.obey(lease.task, &key, Order::Pause("lunch"));
                assert_eq!(obeyed.await.unwrap(), Obeyed::Now { changed: true });
            }
            false => assert!(store.request_pause(lease.task, "lunch").await.unwrap()),
        }
        let row = world.task(lease.task).await;
        assert_eq!(row.state, TaskState::Paused);
        assert_eq!(row.reason.as_deref(), Some("lunch"));
        assert!(!row.waits_for_credentials());
    }
}

async fn a_request_outlives_its_worker(world: World) {
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

async fn a_command_is_obeyed_once(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await.id;
    let obey = async |task, comment: &str, order| {
        let key = EffectKey::command(comment);
        store.obey(task, &key, order).await.unwrap()
    };
    let now = |changed| Obeyed::Now { changed };
    assert_eq!(obey(task, "1", Order::Pause("lunch")).await, now(true));
    let row = world.task(task).await;
    assert_eq!(row.state, TaskState::Paused);
    assert_eq!(row.reason.as_deref(), Some("lunch"));
    assert!(store.resume(task).await.unwrap());
    let before = Obeyed::Before { changed: true };
    assert_eq!(obey(task, "1", Order::Pause("lunch")).await, before);
    assert_eq!(world.task(task).await.state, TaskState::Queued);
    assert_eq!(obey(task, "2", Order::Resume).await, now(false));
    assert_eq!(obey(task, "3", Order::Remember).await, now(false));

    // A worker gets it with its heartbeat, and the row says why.
    world.relay().await;
    let lease = world.claim(task, MINUTE).await.unwrap().lease;
    assert_eq!(store.request_reason(task).await.unwrap(), None);
    assert_eq!(obey(task, "4", Order::Stop("enough")).await, now(true));
    assert_eq!(
        store.heartbeat(&lease, MINUTE).await.unwrap(),
        LeaseRequest::Stop
    );
    let reason = store.request_reason(task).await.unwrap();
    assert_eq!(reason.as_deref(), Some("enough"));
    let close = LeaseEnd::Finish {
        state: EndState::Stopped,
        reason: None,
        pull_request_url: None,
    };
    store.end_lease(&lease, &close).await.unwrap();

    // A later task of the same item does not obey it again.
    let later = store.enqueue(&issue(1, "later")).await.unwrap();
    let Enqueued::Created(later) = later else {
        panic!("{later:?}");
    };
    let again = obey(later.id, "4", Order::Stop("enough")).await;
    assert_eq!(again, Obeyed::ByAnother);
    assert_eq!(world.task(later.id).await.state, TaskState::Queued);
}

async fn the_delay_of_a_waiting_task_can_be_skipped(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    assert!(!store.skip_delay(lease.task).await.unwrap());
    let close = release(Attempt::Refunded, MINUTE);
    store.end_lease(&lease, &close).await.unwrap();
    assert_eq!(world.claimable(NONE, 9).await, []);
    assert!(store.skip_delay(lease.task).await.unwrap());
    assert_eq!(world.claimable(NONE, 9).await, [lease.task]);
    assert!(!store.skip_delay(lease.task).await.unwrap());
    assert!(!store.skip_delay(TaskId::new()).await.unwrap());
}

async fn lists_are_newest_first_and_filtered(world: World) {
    let store = &world.store;
    for number in 1..=3 {
        world.new_task(number).await;
    }
    let lease = world.leased(4).await;
    let numbers = async |status, limit| -> Vec<i64> {
        let filter = TaskFilter {
            status,
            limit,
            ..TaskFilter::default()
        };
        let tasks = store.tasks(&filter).await.unwrap();
        tasks.iter().map(|t| t.number.0).collect()
    };
    assert_eq!(numbers(None, 0).await, [4, 3, 2, 1]);
    assert_eq!(numbers(None, 2).await, [4, 3]);
    assert_eq!(numbers(Some(PublicStatus::Open), 0).await, [3, 2, 1]);
    assert_eq!(numbers(Some(PublicStatus::InProgress), 0).await, [4]);
    store.request_stop(TaskId::default(), "x").await.unwrap();
    let sessions = store.sessions(None, 0).await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].id, lease.session);
    assert_eq!(store.session(SessionId(99)).await.unwrap(), None);
}
