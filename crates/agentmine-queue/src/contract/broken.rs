//! A broker of which a part does not answer, or slowly.

use super::wire::{blocks_publishers, deaf_to, slow_by};
use super::*;

#[tokio::test]
async fn a_queue_that_does_not_answer_stops_no_other() {
    let broker = Broker::new().await;
    let port = deaf_to(broker.named("tasks.critical")).await;
    let config = config::QueueConfig {
        url: Secret::new(format!("amqp://guest:guest@127.0.0.1:{port}/%2f")),
        ..broker.config.clone()
    };
    let queue = connect(&config).unwrap();
    publish(&*queue, Priority::Critical).await;
    let sent = publish(&*queue, Priority::Medium).await;
    let first = queue.next(LONG).await;
    assert!(matches!(first, Err(QueueError::Unavailable(_))));
    assert_eq!(take_and_ack(&*queue).await, sent);
    queue.close().await;
    broker.wipe().await;
}

#[tokio::test]
async fn dead_letters_that_do_not_come_stop_no_slot() {
    let broker = Broker::new().await;
    let port = deaf_to(broker.named("dead")).await;
    let config = config::QueueConfig {
        url: Secret::new(format!("amqp://guest:guest@127.0.0.1:{port}/%2f")),
        ..broker.config.clone()
    };
    let queue = connect(&config).unwrap();
    publish(&*queue, Priority::Low).await;
    take(&*queue).await.dead_letter("a reason").await.unwrap();
    assert!(queue.next_dead().await.is_err());
    let sent = publish(&*queue, Priority::Low).await;
    let (dead, taken) = tokio::join!(queue.next_dead(), take_and_ack(&*queue));
    assert_eq!(taken, sent);
    assert!(dead.unwrap().is_none());
    queue.close().await;
    broker.wipe().await;
}

#[tokio::test]
async fn a_broker_that_accepts_no_messages_is_healthy_and_gives_those_that_it_has() {
    let broker = Broker::new().await;
    let port = blocks_publishers().await;
    let config = config::QueueConfig {
        url: Secret::new(format!("amqp://guest:guest@127.0.0.1:{port}/%2f")),
        ..broker.config.clone()
    };
    let queue = connect(&config).unwrap();
    let sent = publish(&*queue, Priority::Medium).await;
    queue.healthy().await.unwrap();
    let refused = queue.publish(&wake_up(Priority::Medium)).await;
    assert!(matches!(refused, Err(QueueError::Unavailable(_))));
    let depths = queue.depths().await.unwrap();
    assert_eq!(depths.iter().map(|it| it.messages).sum::<u64>(), 1);
    assert_eq!(take_and_ack(&*queue).await, sent);
    queue.healthy().await.unwrap();
    queue.close().await;
    broker.wipe().await;
}

#[tokio::test]
async fn a_broker_that_needs_seconds_for_all_declarations_is_used() {
    let broker = Broker::new().await;
    let port = slow_by(Duration::from_millis(250)).await;
    let config = config::QueueConfig {
        url: Secret::new(format!("amqp://guest:guest@127.0.0.1:{port}/%2f")),
        ..broker.config.clone()
    };
    let queue = connect(&config).unwrap();
    let sent = publish(&*queue, Priority::Medium).await;
    assert_eq!(take_and_ack(&*queue).await, sent);
    queue.close().await;
    broker.wipe().await;
}
