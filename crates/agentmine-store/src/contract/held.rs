//! Requests for work that start none.

use super::*;

facts! {
    a_held_request_is_shown_until_a_task_answers_it,
    a_request_that_no_scan_finds_any_more_is_not_shown,
}

fn held(number: u64, trigger: &str, code: &str) -> HeldRequest {
    let NewTask {
        item, title, url, ..
    } = issue(number, trigger);
    HeldRequest {
        item,
        trigger: trigger.into(),
        title,
        url,
        code: code.into(),
        message: "mona may not start work.\u{0}".into(),
    }
}

async fn a_held_request_is_shown_until_a_task_answers_it(world: World) {
    let store = &world.store;
    store
        .hold_request(&held(1, "e1", "not_allowed"))
        .await
        .unwrap();
    store
        .hold_request(&held(2, "e2", "not_allowed"))
        .await
        .unwrap();
    let first = store.held_requests().await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(first[0].request.item, issue(1, "e1").item);

    // The same reason keeps its time; another one has its own.
    store
        .hold_request(&held(1, "e1", "not_allowed"))
        .await
        .unwrap();
    let again = store.held_requests().await.unwrap();
    assert_eq!(again[0].since, first[0].since);
    store.hold_request(&held(1, "e1", "edited")).await.unwrap();
    let changed = store.held_requests().await.unwrap();
    let one = changed.iter().find(|it| it.request.item.number == 1);
    assert_eq!(one.unwrap().request.code, "edited");

    let task = world.new_task(2).await;
    assert_eq!(
        store.held_requests().await.unwrap().len(),
        1,
        "a request of the item was accepted"
    );
    store
        .hold_request(&held(2, "e2", "not_allowed"))
        .await
        .unwrap();
    assert!(world.answer(task.id, "e2").await);
    let left = store.held_requests().await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].request.item.number, 1);
}

async fn a_request_that_no_scan_finds_any_more_is_not_shown(world: World) {
    let store = &world.store;
    store
        .hold_request(&held(1, "e1", "not_allowed"))
        .await
        .unwrap();
    let database = &world.database;
    database
        .execute(match **database {
            Database::Sqlite(_) => "UPDATE held_requests SET seen_at = seen_at - 660000",
            Database::Postgres { .. } => {
                "UPDATE held_requests SET seen_at = seen_at - interval '11 min'"
            }
        })
        .await;
    assert!(store.held_requests().await.unwrap().is_empty());
}
