//! Rounds on pull requests.

use super::*;

facts! {
    a_round_is_recorded_once_with_what_the_first_process_found,
    the_result_of_a_round_is_written_under_its_lease_alone,
    a_pull_request_is_watched_until_it_is_ended_for_good,
}

fn pull(number: u64) -> ItemRef {
    ItemRef {
        kind: ItemKind::PullRequest,
        ..issue(number, "e").item
    }
}

fn round(origin: &Task, number: u32, request: &str) -> Round {
    Round {
        pull: pull(9),
        number,
        origin: origin.id,
        head: "abc".into(),
        cause: RoundCause {
            requests: vec![request.into()],
            ..RoundCause::default()
        },
        result: None,
    }
}

async fn a_round_is_recorded_once_with_what_the_first_process_found(world: World) {
    let store = &world.store;
    let origin = world.new_task(1).await;
    let first = round(&origin, 1, "review-1");
    assert_eq!(store.begin_round(&first).await.unwrap(), first);
    let second = round(&origin, 1, "review-2");
    assert_eq!(store.begin_round(&second).await.unwrap(), first);
    let next = round(&origin, 2, "review-2");
    assert_eq!(store.begin_round(&next).await.unwrap(), next);
    assert_eq!(store.rounds(&pull(9)).await.unwrap(), [first, next]);
    assert!(store.rounds(&pull(8)).await.unwrap().is_empty());
}

async fn the_result_of_a_round_is_written_under_its_lease_alone(world: World) {
    let store = &world.store;
    let origin = world.new_task(1).await;
    let recorded = store.begin_round(&round(&origin, 1, "7")).await.unwrap();
    let new = NewTask {
        item: recorded.pull.clone(),
        trigger: recorded.trigger(),
        ..issue(9, "e")
    };
    let Enqueued::Created(task) = store.enqueue(&new).await.unwrap() else {
        panic!("the round has a task already");
    };
    assert_eq!(task.round(), Some(1));
    let worker = WorkerId("host/1/0".into());
    let claimed = store.claim(task.id, &worker, Uuid::new_v4(), MINUTE, 3);
    let lease = claimed.await.unwrap().unwrap().lease;
    let result = RoundResult {
        heard: vec!["7".into()],
        message: "Done.".into(),
        ..RoundResult::default()
    };
    let other = Lease {
        nonce: Uuid::new_v4(),
        ..lease.clone()
    };
    let refused = store.round_result(&other, 1, &result).await;
    assert!(matches!(refused, Err(StoreError::Fenced(_))), "{refused:?}");
    store.round_result(&lease, 1, &result).await.unwrap();
    store.round_result(&lease, 1, &result).await.unwrap();
    let rounds = store.rounds(&pull(9)).await.unwrap();
    assert_eq!(rounds[0].result, Some(result));
}

async fn a_pull_request_is_watched_until_it_is_ended_for_good(world: World) {
    let store = &world.store;
    let first = world.new_task(1).await;
    let second = world.new_task(2).await;
    let item = first.item.clone();
    let watched = async || {
        let tasks = store.watched_pulls(item.tracker, &item.host).await.unwrap();
        tasks.into_iter().map(|task| task.id).collect::<Vec<_>>()
    };
    store.watch_pull(second.id).await.unwrap();
    store.watch_pull(first.id).await.unwrap();
    store.watch_pull(first.id).await.unwrap();
    assert_eq!(watched().await, [first.id, second.id]);
    let elsewhere = store.watched_pulls(item.tracker, "elsewhere").await;
    assert!(elsewhere.unwrap().is_empty());
    // Of several processes, one ends it.
    let ends = ["merged", "closed", "merged"].map(|reason| store.unwatch_pull(first.id, reason));
    let ended = futures::future::join_all(ends).await.into_iter();
    assert_eq!(ended.filter(|it| *it.as_ref().unwrap()).count(), 1);
    assert!(!store.unwatch_pull(first.id, "closed").await.unwrap());
    store.watch_pull(first.id).await.unwrap();
    assert!(!store.unwatch_pull(first.id, "closed").await.unwrap());
    let unwatched = world.new_task(3).await;
    assert!(!store.unwatch_pull(unwatched.id, "closed").await.unwrap());
    assert_eq!(watched().await, [second.id]);
}
