//! Ends that are not yet reported, and which process reports them.

use super::*;

facts! {
    a_task_is_unreported_until_the_label_of_its_end_is_recorded,
    a_label_of_an_earlier_epoch_does_not_count,
    unreported_tasks_are_listed_page_by_page,
    one_of_many_processes_gets_a_report,
    a_report_that_nobody_finished_can_be_claimed_again,
    a_task_that_was_resumed_is_not_reported,
    a_reported_end_is_looked_at_once_more_after_a_lease,
    a_second_look_reads_only_what_ended_within_its_time,
    the_newest_task_of_an_item_is_found,
    a_second_pause_in_one_epoch_is_reported_too,
    a_failed_task_whose_result_was_found_is_done,
    an_end_that_is_reported_is_noted_and_a_pause_is_not,
    an_end_that_cannot_be_reported_for_a_month_is_given_up,
}

/// As where the tracker of a task was removed from the configuration.
async fn an_end_that_cannot_be_reported_for_a_month_is_given_up(world: World) {
    let store = &world.store;
    let stopped = world.new_task(1).await.id;
    store.request_stop(stopped, "no").await.unwrap();
    let paused = world.new_task(2).await.id;
    store.request_pause(paused, "later").await.unwrap();
    let pass = async |days: u64| {
        let ago = match *world.database {
            Database::Sqlite(_) => (days * 86_400_000).to_string(),
            Database::Postgres { .. } => format!("interval '{} hours'", days * 24),
        };
        let sql = format!("UPDATE tasks SET updated_at = updated_at - {ago}");
        world.database.execute(&sql).await;
        world.sweep(MINUTE).await;
    };
    pass(29).await;
    assert_eq!(world.unreported().await, [stopped, paused]);
    pass(1).await;
    assert_eq!(world.unreported().await, [paused], "it may end again");
    store.request_stop(paused, "no").await.unwrap();
    world.sweep(MINUTE).await;
    assert_eq!(world.unreported().await, [paused]);
}

async fn an_end_that_is_reported_is_noted_and_a_pause_is_not(world: World) {
    let store = &world.store;
    let failed = world.leased(1).await;
    let end = LeaseEnd::Finish {
        state: EndState::Failed,
        reason: None,
        pull_request_url: None,
    };
    store.end_lease(&failed, &end).await.unwrap();
    let paused = world.leased(2).await;
    let end = LeaseEnd::Pause {
        reason: "later".into(),
    };
    store.end_lease(&paused, &end).await.unwrap();
    let unreported = async || {
        let tasks = store.unreported(NONE, TaskNumber(0), 9).await.unwrap();
        tasks.iter().map(|it| it.id).collect::<Vec<_>>()
    };
    world.sweep(MINUTE).await;
    assert_eq!(unreported().await, [failed.task, paused.task]);
    for (lease, label) in [(&failed, TaskLabel::Failed), (&paused, TaskLabel::Paused)] {
        let key = EffectKey::label(label, lease.epoch);
        store
            .effect_done(lease.task, &key, &json!({}))
            .await
            .unwrap();
    }
    world.sweep(MINUTE).await;
    assert_eq!(unreported().await, []);
    // Nobody reads the effects of a task whose end is noted.
    world.database.execute("DELETE FROM effects").await;
    assert_eq!(
        unreported().await,
        [paused.task],
        "a paused task may end again"
    );
    let found = store.found_result(failed.task, "u", None).await.unwrap();
    assert!(found.is_some());
    world.sweep(MINUTE).await;
    assert_eq!(
        unreported().await,
        [failed.task, paused.task],
        "another end"
    );
}

async fn a_failed_task_whose_result_was_found_is_done(world: World) {
    let store = &world.store;
    let failed = world.leased(1).await;
    let end = LeaseEnd::Finish {
        state: EndState::Failed,
        reason: Some("nobody knows".into()),
        pull_request_url: None,
    };
    store.end_lease(&failed, &end).await.unwrap();
    for _ in 0..2 {
        let found = store.found_result(failed.task, "u", Some("partial: tests"));
        let found = found.await.unwrap().unwrap();
        assert_eq!(found.state, TaskState::Ended(EndState::Done));
        assert_eq!(found.pull_request_url.as_deref(), Some("u"));
        assert_eq!(found.missing(), Some("tests"));
    }
    let unreported = store.unreported(NONE, TaskNumber(0), 9).await.unwrap();
    assert_eq!(unreported.len(), 1, "it is reported as done");
    let other = store.found_result(failed.task, "another", None).await;
    assert_eq!(other.unwrap(), None);
    let queued = world.new_task(2).await.id;
    let other = store.found_result(queued, "u", None).await;
    assert_eq!(other.unwrap(), None);
}

async fn unreported_of(store: &Arc<dyn Store>, older_than: Duration) -> Vec<Task> {
    let all = store.unreported(older_than, TaskNumber(0), 9);
    all.await.unwrap()
}

async fn a_task_is_unreported_until_the_label_of_its_end_is_recorded(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    assert_eq!(unreported_of(store, NONE).await, []);
    let end = LeaseEnd::Finish {
        state: EndState::Failed,
        reason: None,
        pull_request_url: None,
    };
    store.end_lease(&lease, &end).await.unwrap();
    let unreported = unreported_of(store, NONE).await;
    assert_eq!(
        unreported.iter().map(|t| t.id).collect::<Vec<_>>(),
        [lease.task]
    );
    assert_eq!(unreported_of(store, MINUTE).await, []);
    let key = EffectKey::label(TaskLabel::Failed, lease.epoch);
    store.effect_begin(lease.task, None, &key).await.unwrap();
    assert_eq!(
        unreported_of(store, NONE).await.len(),
        1,
        "begun is not done"
    );
    store
        .effect_done(lease.task, &key, &json!({}))
        .await
        .unwrap();
    assert_eq!(unreported_of(store, NONE).await, []);
}

async fn a_label_of_an_earlier_epoch_does_not_count(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await.id;
    for epoch in [Epoch(1), Epoch(2)] {
        let lease = world.claim(task, MINUTE).await.unwrap().lease;
        assert_eq!(lease.epoch, epoch);
        let end = LeaseEnd::Pause {
            reason: "later".into(),
        };
        store.end_lease(&lease, &end).await.unwrap();
        let unreported = unreported_of(store, NONE).await;
        assert_eq!(unreported.len(), 1, "epoch {epoch}");
        assert_eq!(unreported[0].id, task);
        for label in [TaskLabel::Done, TaskLabel::Paused] {
            assert_eq!(unreported_of(store, NONE).await.len(), 1);
            let key = EffectKey::label(label, epoch);
            store.effect_done(task, &key, &json!({})).await.unwrap();
        }
        assert_eq!(unreported_of(store, NONE).await, []);
        assert!(store.resume(task).await.unwrap());
    }
}

async fn unreported_tasks_are_listed_page_by_page(world: World) {
    let store = &world.store;
    for number in 1..=3 {
        let lease = world.leased(number).await;
        store.end_lease(&lease, &done()).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut after = TaskNumber(0);
    loop {
        let page = store.unreported(NONE, after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.number;
        seen.extend(page.iter().map(|task| task.number.0));
    }
    assert_eq!(seen, [1, 2, 3]);
}

async fn ended(world: &World, number: u64) -> Task {
    let lease = world.leased(number).await;
    world.store.end_lease(&lease, &done()).await.unwrap();
    world.task(lease.task).await
}

async fn one_of_many_processes_gets_a_report(world: World) {
    let task = ended(&world, 1).await;
    let claims = (0..8).map(|_| world.store.claim_report(&task, Uuid::new_v4(), MINUTE));
    let claims = futures::future::join_all(claims).await;
    let taken = claims.into_iter().filter_map(Result::unwrap);
    assert_eq!(taken.map(|it| it.id).collect::<Vec<_>>(), [task.id]);
}

async fn a_report_that_nobody_finished_can_be_claimed_again(world: World) {
    let task = ended(&world, 1).await;
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    let claim = |nonce, hold| world.store.claim_report(&task, nonce, hold);
    assert!(claim(first, MINUTE).await.unwrap().is_some());
    assert!(
        claim(first, NONE).await.unwrap().is_some(),
        "an answer that was lost"
    );
    assert!(claim(second, MINUTE).await.unwrap().is_some());
    assert!(claim(first, MINUTE).await.unwrap().is_none());
}

async fn a_task_that_was_resumed_is_not_reported(world: World) {
    let lease = world.leased(1).await;
    let pause = LeaseEnd::Pause {
        reason: "later".into(),
    };
    world.store.end_lease(&lease, &pause).await.unwrap();
    let paused = world.task(lease.task).await;
    assert!(world.store.resume(paused.id).await.unwrap());
    let claim = world.store.claim_report(&paused, Uuid::new_v4(), MINUTE);
    assert!(claim.await.unwrap().is_none());
}

async fn a_reported_end_is_looked_at_once_more_after_a_lease(world: World) {
    let store = &world.store;
    let unconfirmed = async |lease| {
        let tasks = store.unconfirmed(lease, DAY, TaskNumber(0), 9).await;
        let tasks = tasks.unwrap();
        tasks.iter().map(|task| task.id).collect::<Vec<_>>()
    };
    let task = ended(&world, 1).await;
    assert_eq!(unconfirmed(NONE).await, [], "it is not reported");
    let label = TaskLabel::of(task.state);
    let done = async |key| store.effect_done(task.id, &key, &json!({})).await.unwrap();
    done(EffectKey::label(label, task.epoch)).await;
    assert_eq!(
        unconfirmed(MINUTE).await,
        [],
        "a late writer may still write"
    );
    assert_eq!(unconfirmed(NONE).await, [task.id]);
    done(EffectKey::label_check(label, task.epoch)).await;
    assert_eq!(unconfirmed(NONE).await, []);

    let first = ended(&world, 2).await;
    let key = EffectKey::label(TaskLabel::of(first.state), first.epoch);
    store.effect_done(first.id, &key, &json!({})).await.unwrap();
    assert_eq!(unconfirmed(NONE).await, [first.id]);
    store.enqueue(&issue(2, "again")).await.unwrap();
    assert_eq!(
        unconfirmed(NONE).await,
        [],
        "the labels are the later task's"
    );
}

async fn a_second_look_reads_only_what_ended_within_its_time(world: World) {
    let store = &world.store;
    let mut tasks = Vec::new();
    for number in [1, 2, 3] {
        let task = ended(&world, number).await;
        let key = EffectKey::label(TaskLabel::of(task.state), task.epoch);
        store.effect_done(task.id, &key, &json!({})).await.unwrap();
        tasks.push(task.id);
    }
    for (number, minutes) in [(2, 30), (3, 25 * 60)] {
        let earlier = match *world.database {
            Database::Sqlite(_) => (minutes * 60_000).to_string(),
            Database::Postgres { .. } => format!("interval '{minutes} minutes'"),
        };
        let sql =
            format!("UPDATE tasks SET updated_at = updated_at - {earlier} WHERE number = {number}");
        world.database.execute(&sql).await;
    }
    let found = async |within| {
        let found = store.unconfirmed(NONE, within, TaskNumber(0), 9).await;
        let found = found.unwrap();
        found.iter().map(|task| task.id).collect::<Vec<_>>()
    };
    assert_eq!(found(15 * MINUTE).await, tasks[..1]);
    assert_eq!(found(DAY).await, tasks[..2]);
    assert_eq!(found(2 * DAY).await, tasks[..2]);
}

async fn the_newest_task_of_an_item_is_found(world: World) {
    let store = &world.store;
    let item = issue(1, "e1").item;
    assert_eq!(store.latest_task(&item).await.unwrap(), None);
    let first = ended(&world, 1).await;
    world.new_task(2).await;
    let latest = store.latest_task(&item).await.unwrap();
    assert_eq!(latest.map(|task| task.id), Some(first.id));
    let Enqueued::Created(second) = store.enqueue(&issue(1, "e2")).await.unwrap() else {
        panic!("known");
    };
    let latest = store.latest_task(&item).await.unwrap();
    assert_eq!(latest.map(|task| task.id), Some(second.id));
    let all = store.tasks_of_item(&item, 9).await.unwrap();
    let ids: Vec<TaskId> = all.iter().map(|task| task.id).collect();
    assert_eq!(ids, [second.id, first.id]);
}

async fn a_second_pause_in_one_epoch_is_reported_too(world: World) {
    let store = &world.store;
    let lease = world.leased(1).await;
    let pause = LeaseEnd::Pause {
        reason: "lunch".into(),
    };
    store.end_lease(&lease, &pause).await.unwrap();
    let task = lease.task;
    let paused = EffectKey::label(TaskLabel::Paused, lease.epoch);
    let looked_again = EffectKey::label_check(TaskLabel::Paused, lease.epoch);
    for trigger in ["e2", "e3"] {
        assert_eq!(world.unreported().await, [task]);
        let name = json!({ "name": trigger });
        store.effect_done(task, &paused, &name).await.unwrap();
        assert_eq!(world.unreported().await, []);
        store
            .effect_done(task, &looked_again, &json!(null))
            .await
            .unwrap();
        assert!(world.answer(task, trigger).await);
        assert!(store.request_pause(task, "lunch").await.unwrap());
        let begun = store.effect_begin(task, None, &looked_again).await;
        assert_eq!(begun.unwrap(), EffectState::Fresh);
        assert_eq!(store.label_names(task).await.unwrap(), [trigger]);
    }
    assert!(store.resume(task).await.unwrap());
    assert!(store.request_pause(task, "dinner").await.unwrap());
    assert_eq!(world.unreported().await, [task]);
}
