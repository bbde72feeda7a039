//! What is removed of tasks that are over, and what a restored database is protected from.

use super::people::{claim_here, wanted};
use super::*;
use agentmine_runtime::config::{KeepDays, RetentionConfig};

facts! {
    only_what_is_old_and_over_is_removed_by_kind_and_outcome,
    the_effects_of_a_watched_pull_request_stay_until_it_is_ended,
    an_old_trigger_makes_no_second_task_after_its_journal_is_gone,
    the_records_of_commands_stay_for_good,
    the_journal_of_a_task_that_a_person_made_is_removed_and_begins_anew,
    the_journal_of_a_task_that_is_not_over_cannot_be_deleted,
    prunes_at_once_remove_each_row_once,
    after_a_restore_no_lease_of_before_is_valid,
}

fn policy() -> RetentionConfig {
    RetentionConfig {
        journal_days: KeepDays {
            done: 30,
            failed: 60,
            stopped: 0,
        },
        effect_days: KeepDays {
            done: 60,
            failed: 60,
            stopped: 60,
        },
        ..RetentionConfig::default()
    }
}

/// A task with two steps and a reported end so many days ago.
async fn ended(world: &World, number: u64, state: EndState, days: u32) -> TaskId {
    let store = &world.store;
    let lease = world.leased(number).await;
    for text in ["one", "two"] {
        store.append_step(&lease, &note(text)).await.unwrap();
    }
    let usage = Usage {
        cost_micros: 7,
        ..Usage::default()
    };
    store.record_usage(&lease, "m", &usage).await.unwrap();
    let end = LeaseEnd::Finish {
        state,
        reason: None,
        pull_request_url: None,
    };
    store.end_lease(&lease, &end).await.unwrap();
    let label = match state {
        EndState::Done => TaskLabel::Done,
        EndState::Failed => TaskLabel::Failed,
        EndState::Stopped => TaskLabel::Stopped,
    };
    let label = EffectKey::label(label, lease.epoch);
    store
        .effect_done(lease.task, &label, &json!({}))
        .await
        .unwrap();
    world.sweep(MINUTE).await;
    age(
        world,
        lease.task,
        &format!("{days} days"),
        u64::from(days) * 86_400_000,
    )
    .await;
    lease.task
}

/// Lets the end of a task be so long ago.
async fn age(world: &World, task: TaskId, interval: &str, millis: u64) {
    let ago = match *world.database {
        Database::Sqlite(_) => format!("{millis}"),
        Database::Postgres { .. } => format!("interval '{interval}'"),
    };
    let reported = "end_reported = true";
    let sql =
        format!("UPDATE tasks SET updated_at = updated_at - {ago}, {reported} WHERE id = '{task}'");
    world.database.execute(&sql).await;
}

async fn prune(world: &World) -> Pruned {
    let mut all = Pruned::default();
    loop {
        let batch = world.store.prune(&policy()).await.unwrap();
        if !batch.found_any() {
            return all;
        }
        all.steps += batch.steps;
        all.effects += batch.effects;
        all.checkpoints += batch.checkpoints;
    }
}

async fn steps(world: &World, task: TaskId) -> usize {
    world.store.steps(task).await.unwrap().len()
}

async fn only_what_is_old_and_over_is_removed_by_kind_and_outcome(world: World) {
    let store = &world.store;
    let young = ended(&world, 1, EndState::Done, 29).await;
    let old = ended(&world, 2, EndState::Done, 31).await;
    let failed = ended(&world, 3, EndState::Failed, 31).await;
    let stopped = ended(&world, 4, EndState::Stopped, 3000).await;
    let running = world.leased(5).await;
    store.append_step(&running, &note("x")).await.unwrap();
    age(&world, running.task, "3000 days", 3000 * 86_400_000).await;
    // A task that was stopped while it waited keeps its checkpoints until the sweep.
    let waiting = world.leased(6).await;
    let checkpoint = Checkpoint {
        seq: Seq(1),
        commit: "c".into(),
        bundle: vec![1; 9],
    };
    store.save_checkpoint(&running, &checkpoint).await.unwrap();
    store.save_checkpoint(&waiting, &checkpoint).await.unwrap();
    let later = release(Attempt::Refunded, NONE);
    store.end_lease(&waiting, &later).await.unwrap();
    store.request_stop(waiting.task, "enough").await.unwrap();
    age(&world, waiting.task, "2 hours", 2 * 3_600_000).await;

    let due = store.prunable(&policy()).await.unwrap();
    let rows = |what, outcome| {
        let one = due
            .iter()
            .find(|it| it.what == what && it.outcome == outcome);
        one.map(|it| (it.tasks, it.rows))
    };
    assert_eq!(rows(RetentionKind::Journal, EndState::Done), Some((1, 2)));
    assert_eq!(rows(RetentionKind::Journal, EndState::Failed), Some((0, 0)));
    assert_eq!(
        rows(RetentionKind::Journal, EndState::Stopped),
        None,
        "kept for good"
    );
    assert_eq!(
        rows(RetentionKind::Effects, EndState::Stopped),
        Some((1, 1))
    );
    assert_eq!(
        rows(RetentionKind::Checkpoints, EndState::Stopped),
        Some((1, 1))
    );
    let of_journals = due
        .iter()
        .find(|it| it.what == RetentionKind::Journal && it.rows == 2);
    assert_eq!(
        of_journals.unwrap().bytes,
        2 * r#"{"text":"one"}"#.len() as u64
    );

    let pruned = prune(&world).await;
    assert_eq!(
        (pruned.steps, pruned.effects, pruned.checkpoints),
        (2, 1, 1)
    );
    assert_eq!(steps(&world, old).await, 0);
    for task in [young, failed, stopped] {
        assert_eq!(steps(&world, task).await, 2);
    }
    assert_eq!(steps(&world, running.task).await, 1);
    assert_eq!(store.checkpoints(running.task).await.unwrap().len(), 1);
    assert_eq!(store.checkpoints(waiting.task).await.unwrap().len(), 0);
    let session = &store.sessions(Some(old), 0).await.unwrap()[0];
    assert_eq!(session.usage.cost_micros, 7, "the sums stay");
    assert!(
        world
            .unreported()
            .await
            .iter()
            .all(|it| *it == waiting.task)
    );
    assert_eq!(prune(&world).await, Pruned::default());
}

async fn the_effects_of_a_watched_pull_request_stay_until_it_is_ended(world: World) {
    let store = &world.store;
    let opener = ended(&world, 1, EndState::Done, 61).await;
    ended(&world, 2, EndState::Done, 61).await;
    let url = "https://github.com/acme/shop/pull/9";
    let opened = format!("UPDATE tasks SET pull_request_url = '{url}' WHERE id = '{opener}'");
    world.database.execute(&opened).await;
    store.watch_pull(opener).await.unwrap();
    // A task of a person on it, a round on it whose repository was renamed since, and a task on another one.
    let [labelled, round, _other] = [
        ended(&world, 3, EndState::Done, 61).await,
        ended(&world, 9, EndState::Done, 61).await,
        ended(&world, 4, EndState::Done, 61).await,
    ];
    let on_pull = format!("UPDATE tasks SET url = '{url}' WHERE id = '{labelled}'");
    world.database.execute(&on_pull).await;
    let begun = Round {
        pull: world.task(round).await.item,
        number: 1,
        origin: opener,
        head: "abc".into(),
        cause: RoundCause::default(),
        result: None,
    };
    store.begin_round(&begun).await.unwrap();
    let due = store.prunable(&policy()).await.unwrap();
    let effects = due
        .iter()
        .find(|it| it.what == RetentionKind::Effects && it.outcome == EndState::Done);
    assert_eq!(effects.map(|it| (it.tasks, it.rows)), Some((2, 2)));
    assert_eq!(prune(&world).await.effects, 2);
    assert!(store.unwatch_pull(opener, "merged").await.unwrap());
    assert_eq!(prune(&world).await.effects, 3);
}

async fn an_old_trigger_makes_no_second_task_after_its_journal_is_gone(world: World) {
    let task = ended(&world, 1, EndState::Done, 400).await;
    prune(&world).await;
    assert_eq!(steps(&world, task).await, 0);
    match world.store.enqueue(&issue(1, "e1")).await.unwrap() {
        Enqueued::Known(known) => assert_eq!(known.id, task),
        Enqueued::Created(task) => panic!("a second task: {task:?}"),
    }
}

/// Trackers show comments for good, and a producer that was restarted reads them again.
async fn the_records_of_commands_stay_for_good(world: World) {
    let store = &world.store;
    let (command, reaction) = (EffectKey::command("7"), EffectKey::reaction("7"));
    let mut tasks = Vec::new();
    for (number, state) in [(1, EndState::Done), (2, EndState::Failed)] {
        let task = ended(&world, number, state, 61).await;
        store.obey(task, &command, Order::Remember).await.unwrap();
        store
            .effect_done(task, &reaction, &json!({}))
            .await
            .unwrap();
        tasks.push(task);
    }
    let due = store.prunable(&policy()).await.unwrap();
    let of_effects = due.iter().filter(|it| it.what == RetentionKind::Effects);
    // The labels.
    assert_eq!(of_effects.map(|it| it.rows).sum::<u64>(), 2);
    assert_eq!(prune(&world).await.effects, 2);
    for task in tasks {
        let obeyed = store.obey(task, &command, Order::Stop("enough"));
        assert_eq!(obeyed.await.unwrap(), Obeyed::Before { changed: false });
        let reaction = store.effect(task, &reaction).await.unwrap();
        assert!(matches!(reaction, Some(EffectState::Done(_))));
    }
}

async fn the_journal_of_a_task_that_a_person_made_is_removed_and_begins_anew(world: World) {
    let store = &world.store;
    let task = world.made(&wanted("It fails")).await.id;
    let work = async || {
        let nonce = Uuid::new_v4();
        let lease = claim_here(&world, task, nonce).await.unwrap().lease;
        store.append_step(&lease, &note("x")).await.unwrap();
        store.end_lease(&lease, &done()).await.unwrap();
    };
    work().await;
    age(&world, task, "31 days", 31 * 86_400_000).await;
    assert_eq!(prune(&world).await.steps, 1);
    let open = TaskEdit {
        status: Some((PublicStatus::Open, None)),
        ..TaskEdit::default()
    };
    world.edited(task, open).await;
    work().await;
    assert_eq!(steps(&world, task).await, 1);
    assert_eq!(prune(&world).await.steps, 0, "it is young");
    age(&world, task, "31 days", 31 * 86_400_000).await;
    assert_eq!(prune(&world).await.steps, 1);
}

async fn the_journal_of_a_task_that_is_not_over_cannot_be_deleted(world: World) {
    let over = ended(&world, 1, EndState::Done, 1).await;
    let lease = world.leased(2).await;
    world.store.append_step(&lease, &note("x")).await.unwrap();
    let marked = format!(
        "UPDATE tasks SET journal_removed = true WHERE id = '{}'",
        lease.task
    );
    world.database.execute(&marked).await;
    for task in [over, lease.task] {
        let delete = format!("DELETE FROM steps WHERE task = '{task}'");
        let database = Arc::clone(&world.database);
        let refused = tokio::spawn(async move { database.execute(&delete).await }).await;
        assert!(refused.is_err(), "a journal was deleted");
    }
    assert_eq!(steps(&world, over).await, 2);
    assert_eq!(steps(&world, lease.task).await, 1);
}

async fn prunes_at_once_remove_each_row_once(world: World) {
    for number in 1..=30 {
        ended(&world, number, EndState::Done, 61).await;
    }
    let all = futures::future::join_all((0..4).map(|_| prune(&world))).await;
    assert_eq!(all.iter().map(|it| it.steps).sum::<u64>(), 60);
    assert_eq!(all.iter().map(|it| it.effects).sum::<u64>(), 30);
}

/// A worker of before the restore continues: the database knows its lease as it was then.
async fn after_a_restore_no_lease_of_before_is_valid(world: World) {
    let store = &world.store;
    let before = world.leased(1).await;
    let paused = world.leased(2).await;
    store.request_pause(paused.task, "lunch").await.unwrap();
    let waiting = world.new_task(3).await;
    let over = ended(&world, 4, EndState::Done, 1).await;
    world.relay().await;
    let restored = store.restored().await.unwrap();
    assert_eq!(restored.taken, [TaskNumber(1), TaskNumber(2)]);
    assert_eq!(restored.lifted, 3);
    assert!(is_fenced(store.append_step(&before, &note("late")).await));
    assert!(is_fenced(store.heartbeat(&before, MINUTE).await));
    assert!(is_fenced(store.check(&before).await));
    let key = EffectKey::progress_comment();
    let begun = store.effect_begin(before.task, Some(&before), &key).await;
    assert!(is_fenced(begun));
    assert!(is_fenced(store.end_lease(&before, &done()).await));
    // The task continues before all others, and the attempt does not count.
    let task = world.task(before.task).await;
    assert_eq!((task.state, task.attempt), (TaskState::Queued, 0));
    assert_eq!(world.relay_takeovers().await, [before.task]);
    assert_eq!(world.task(paused.task).await.state, TaskState::Paused);
    let session = &store.sessions(Some(before.task), 0).await.unwrap()[0];
    assert_eq!(session.reason.as_deref(), Some("the database was restored"));
    // No epoch that a worker of before may have had is given again.
    for task in [before.task, waiting.id] {
        let lease = world.claim(task, MINUTE).await.unwrap().lease;
        assert!(lease.epoch.0 > 1_000_000, "{:?}", lease.epoch);
    }
    let fate = store.sandbox_fate(before.task, before.epoch).await.unwrap();
    assert_eq!(fate, SandboxFate::Dead);
    assert!(world.task(over).await.epoch.0 < 9, "what is over stays");
}
