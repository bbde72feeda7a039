//! Effects: begun, done, and not yet reported.

use super::*;

facts! {
    a_task_is_unreported_until_the_label_of_its_end_is_recorded,
    a_label_of_an_earlier_epoch_does_not_count,
    effects_go_from_fresh_to_unsure_to_done,
    one_of_two_begins_at_once_is_fresh,
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
