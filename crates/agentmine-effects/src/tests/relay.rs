//! Tasks are announced on the queue.

use std::collections::HashSet;
use std::time::Duration;

use agentmine_domain::{ItemRef, NewTask, TaskId};
use agentmine_queue::Queue;
use agentmine_store::RelayError;

use super::world::{World, in_time, requested_by};
use crate::announce;

/// The tasks whose wake-ups are in the queue.
async fn announced(queue: &dyn Queue) -> Vec<TaskId> {
    let mut tasks = Vec::new();
    let at_once = Duration::from_millis(1);
    while let Some(delivery) = queue.next(at_once).await.unwrap() {
        tasks.push(delivery.wake_up().unwrap().task);
        delivery.ack().await.unwrap();
    }
    tasks
}

/// More than one transaction publishes.
#[tokio::test]
async fn every_task_is_announced_once() {
    let world = World::new().await;
    for number in 100..200 {
        let new = NewTask {
            item: ItemRef {
                number,
                ..world.task.item.clone()
            },
            ..requested_by("event-1")
        };
        world.store.enqueue(&new).await.unwrap();
    }
    let queue = agentmine_queue::inproc();
    let sent = announce(world.store.as_ref(), queue.as_ref());
    assert_eq!(in_time(sent).await.unwrap(), 101);
    let tasks = announced(queue.as_ref()).await;
    let each: HashSet<TaskId> = tasks.iter().copied().collect();
    assert_eq!((tasks.len(), each.len()), (101, 101));
    let sent = announce(world.store.as_ref(), queue.as_ref());
    assert_eq!(in_time(sent).await.unwrap(), 0);
}

/// What the broker did not confirm is announced later.
#[tokio::test]
async fn nothing_is_lost_while_the_queue_is_away() {
    let world = World::new().await;
    let away = agentmine_queue::inproc();
    away.close().await;
    let sent = announce(world.store.as_ref(), away.as_ref()).await;
    let Err(RelayError::Publish(why)) = sent else {
        panic!("{sent:?}");
    };
    assert_eq!(why, "the queue is unavailable: the queue is closed");
    let queue = agentmine_queue::inproc();
    let sent = announce(world.store.as_ref(), queue.as_ref()).await;
    assert_eq!(sent.unwrap(), 1);
    assert_eq!(announced(queue.as_ref()).await, [world.task.id]);
}
