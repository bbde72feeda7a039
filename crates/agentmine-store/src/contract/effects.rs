//! Effects: begun and done.

use super::*;

facts! {
    effects_go_from_fresh_to_unsure_to_done,
    one_of_two_begins_at_once_is_fresh,
    no_effect_begins_under_a_lease_that_has_run_out,
    the_sweep_closes_what_nobody_will_finish,
    the_names_of_a_tasks_labels_are_remembered,
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

    // What happened, happened, no matter who holds the row.
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

async fn no_effect_begins_under_a_lease_that_has_run_out(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await.id;
    let lease = world.claim(task, NONE).await.unwrap().lease;
    let (old, new) = (EffectKey::progress_comment(), EffectKey::editor_comment());
    store.heartbeat(&lease, MINUTE).await.unwrap();
    let begun = store.effect_begin(task, Some(&lease), &old).await;
    assert_eq!(begun.unwrap(), EffectState::Fresh);
    store.heartbeat(&lease, NONE).await.unwrap();
    for key in [&old, &new] {
        let refused = store.effect_begin(task, Some(&lease), key).await;
        let expired = matches!(refused, Err(StoreError::Expired(of)) if of == task);
        assert!(expired, "{refused:?}");
    }
    // Nobody has taken it, so it can be extended.
    store.heartbeat(&lease, MINUTE).await.unwrap();
    let begun = store.effect_begin(task, Some(&lease), &new).await;
    assert_eq!(begun.unwrap(), EffectState::Fresh);
    let other = Lease {
        epoch: Epoch(7),
        ..lease
    };
    assert!(is_fenced(
        store.effect_begin(task, Some(&other), &new).await
    ));
}

async fn the_sweep_closes_what_nobody_will_finish(world: World) {
    let store = &world.store;
    let closed = async || {
        let policy = SweepPolicy {
            max_attempts: 3,
            wakeup_after: MINUTE,
            lease: NONE,
        };
        store.sweep(&policy).await.unwrap().closed_effects
    };
    let first = world.leased(1).await;
    let task = first.task;
    let label = EffectKey::label(TaskLabel::Processing, first.epoch);
    let comment = EffectKey::editor_comment();
    for key in [&label, &comment] {
        store.effect_begin(task, Some(&first), key).await.unwrap();
    }
    let back = release(Attempt::Refunded, NONE);
    store.end_lease(&first, &back).await.unwrap();
    assert_eq!(closed().await, 0, "the next worker may finish them");

    let second = world.claim(task, MINUTE).await.unwrap().lease;
    store.end_lease(&second, &done()).await.unwrap();
    assert_eq!(closed().await, 1, "the label is of an earlier epoch");
    assert_eq!(closed().await, 0);

    let end = EffectKey::label(TaskLabel::Done, second.epoch);
    store.effect_begin(task, None, &end).await.unwrap();
    assert_eq!(closed().await, 0, "the end is not reported yet");
    store.effect_done(task, &end, &json!({})).await.unwrap();
    assert_eq!(closed().await, 1, "the comment");
    let state = store.effect(task, &comment).await.unwrap();
    assert_eq!(state, Some(EffectState::Unsure), "it may have been written");
    let state = store.effect(task, &end).await.unwrap();
    assert_eq!(state, Some(EffectState::Done(json!({}))));

    let look = EffectKey::label_check(TaskLabel::Done, second.epoch);
    store.effect_begin(task, None, &look).await.unwrap();
    assert_eq!(closed().await, 0, "another process may look once more");
    let again = world.store.enqueue(&issue(1, "e2")).await.unwrap();
    assert!(matches!(again, Enqueued::Created(_)), "{again:?}");
    assert_eq!(closed().await, 1, "the item belongs to the later task");
}

async fn the_names_of_a_tasks_labels_are_remembered(world: World) {
    let store = &world.store;
    let task = world.new_task(1).await.id;
    assert_eq!(store.label_names(task).await.unwrap(), Vec::<String>::new());
    let processing = |epoch| EffectKey::label(TaskLabel::Processing, Epoch(epoch));
    for (key, result) in [
        (EffectKey::request_label(), json!({"name": "robot"})),
        (processing(0), json!({"name": "robot busy"})),
        (processing(1), json!({"name": "robot busy"})),
        (processing(2), json!(null)),
        (EffectKey::progress_comment(), json!({"name": "no label"})),
    ] {
        store.effect_done(task, &key, &result).await.unwrap();
    }
    let begun = EffectKey::label(TaskLabel::Done, Epoch(2));
    store.effect_begin(task, None, &begun).await.unwrap();
    assert_eq!(
        store.label_names(task).await.unwrap(),
        ["robot", "robot busy"]
    );
}
