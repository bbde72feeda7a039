//! The figures of the fleet, and what an autoscaler reads of it.

use super::*;

facts! {
    demand_is_never_below_what_runs_or_is_owed,
    figures_show_every_priority_and_return_to_zero,
}

async fn slots(world: &World) -> u64 {
    world.store.figures().await.unwrap().slots
}

async fn demand_is_never_below_what_runs_or_is_owed(world: World) {
    let store = &world.store;
    assert_eq!(slots(&world).await, 0);
    // Due, and its wake-up is not published: one consumer for the task, one for the wake-up.
    let task = world.new_task(1).await;
    assert_eq!(slots(&world).await, 2);
    world.relay().await;
    assert_eq!(slots(&world).await, 1);
    // A lease counts, also after it has run out.
    let lease = world.claim(task.id, NONE).await.unwrap().lease;
    assert_eq!(slots(&world).await, 1);
    world.sweep(MINUTE).await;
    world.relay().await;
    assert_eq!(slots(&world).await, 1, "it waits for another worker");
    assert!(is_fenced(store.end_lease(&lease, &done()).await));
    // A delay is no demand until it ends.
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    let later = release(Attempt::Refunded, MINUTE);
    store.end_lease(&lease, &later).await.unwrap();
    assert_eq!(slots(&world).await, 0);
    assert!(store.skip_delay(task.id).await.unwrap());
    world.relay().await;
    assert_eq!(slots(&world).await, 1);
    // The end has to be reported by somebody.
    let lease = world.claim(task.id, MINUTE).await.unwrap().lease;
    store.end_lease(&lease, &done()).await.unwrap();
    assert_eq!(slots(&world).await, 1);
    let figures = store.figures().await.unwrap();
    assert_eq!(figures.unreported.count, 1);
    let label = EffectKey::label(TaskLabel::Done, lease.epoch);
    store
        .effect_done(task.id, &label, &json!({}))
        .await
        .unwrap();
    assert_eq!(slots(&world).await, 0);
    // A paused task waits for a person.
    let paused = world.new_task(2).await;
    world.relay().await;
    store.request_pause(paused.id, "lunch").await.unwrap();
    assert_eq!(slots(&world).await, 1, "its label is owed");
    let epoch = world.task(paused.id).await.epoch;
    let label = EffectKey::label(TaskLabel::Paused, epoch);
    store
        .effect_done(paused.id, &label, &json!({}))
        .await
        .unwrap();
    assert_eq!(slots(&world).await, 0);
}

async fn figures_show_every_priority_and_return_to_zero(world: World) {
    let store = &world.store;
    let count = async |priority, standing| {
        let figures = store.figures().await.unwrap();
        assert_eq!(
            figures.tasks.len(),
            Priority::ALL.len() * Standing::ALL.len()
        );
        let found = figures.tasks.iter();
        let mut found = found.filter(|it| it.priority == priority && it.standing == standing);
        found.next().unwrap().backlog
    };
    assert_eq!(
        count(Priority::Medium, Standing::Due).await,
        Backlog::default()
    );
    let mut high = issue(1, "e1");
    high.priority = Priority::High;
    store.enqueue(&high).await.unwrap();
    let lease = world.leased(2).await;
    world.new_task(3).await;
    world
        .database
        .execute(match &*world.database {
            Database::Sqlite(_) => {
                "UPDATE tasks SET updated_at = updated_at - 90000 WHERE number = 3"
            }
            Database::Postgres { .. } => {
                "UPDATE tasks SET updated_at = updated_at - interval '90 s' WHERE number = 3"
            }
        })
        .await;
    assert_eq!(count(Priority::High, Standing::Due).await.count, 1);
    assert_eq!(count(Priority::Medium, Standing::Leased).await.count, 1);
    let waiting = count(Priority::Medium, Standing::Due).await;
    assert_eq!(waiting.count, 1);
    assert!(waiting.oldest >= Duration::from_secs(90), "{waiting:?}");
    assert!(waiting.oldest < Duration::from_secs(120), "{waiting:?}");
    let later = release(Attempt::Refunded, MINUTE);
    store.end_lease(&lease, &later).await.unwrap();
    assert_eq!(count(Priority::Medium, Standing::Delayed).await.count, 1);
    assert_eq!(count(Priority::Medium, Standing::Leased).await.count, 0);
    let key = EffectKey::progress_comment();
    store.effect_begin(lease.task, None, &key).await.unwrap();
    assert_eq!(store.figures().await.unwrap().effects.count, 1);
    store
        .effect_done(lease.task, &key, &json!({}))
        .await
        .unwrap();
    assert_eq!(store.figures().await.unwrap().effects.count, 0);
    assert!(store.figures().await.unwrap().outbox.count > 0);
    world.relay().await;
    assert_eq!(store.figures().await.unwrap().outbox.count, 0);
}
