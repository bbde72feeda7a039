//! One suite for both queues, and what only a broker can do.
//!
//! Each test uses its own prefix on the broker and deletes everything under it at its end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Priority, TaskId, Urgency, WakeUp};
use agentmine_runtime::config::{self, Secret};
use lapin::options::{
    BasicPublishOptions, BasicRejectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::lane::Lane;
use crate::*;
use wire::Wire;

mod broken;
mod wire;

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

fn wake_up(priority: Priority) -> WakeUp {
    WakeUp {
        task: TaskId::new(),
        priority,
        urgency: Urgency::Normal,
    }
}

async fn publish(queue: &dyn Queue, priority: Priority) -> WakeUp {
    let wake_up = wake_up(priority);
    queue.publish(&wake_up).await.unwrap();
    wake_up
}

async fn take(queue: &dyn Queue) -> Box<dyn Delivery> {
    let taken = queue.next(LONG).await.unwrap();
    taken.expect("a message within ten seconds")
}

async fn take_and_ack(queue: &dyn Queue) -> WakeUp {
    let delivery = take(queue).await;
    let wake_up = delivery.wake_up().unwrap().clone();
    delivery.ack().await.unwrap();
    wake_up
}

async fn is_empty(queue: &dyn Queue) -> bool {
    queue.next(SHORT).await.unwrap().is_none()
}

async fn a_message_is_taken_once(queue: Arc<dyn Queue>) {
    assert!(is_empty(&*queue).await);
    let sent = publish(&*queue, Priority::Medium).await;
    assert_eq!(take_and_ack(&*queue).await, sent);
    assert!(is_empty(&*queue).await);
    queue.healthy().await.unwrap();
}

async fn the_highest_class_comes_first_and_each_in_order(queue: Arc<dyn Queue>) {
    let mut sent = Vec::new();
    for class in [
        Priority::Low,
        Priority::Medium,
        Priority::Critical,
        Priority::High,
        Priority::Critical,
    ] {
        sent.push(publish(&*queue, class).await);
    }
    for expected in [2, 4, 3, 1, 0] {
        assert_eq!(take_and_ack(&*queue).await, sent[expected]);
    }
}

async fn a_takeover_comes_before_every_class_and_from_the_ladder_too(queue: Arc<dyn Queue>) {
    let critical = publish(&*queue, Priority::Critical).await;
    let takeover = WakeUp {
        urgency: Urgency::Takeover,
        ..wake_up(Priority::Low)
    };
    queue.publish(&takeover).await.unwrap();
    let delivery = take(&*queue).await;
    assert_eq!(delivery.wake_up().unwrap(), &takeover);
    delivery.retry_later(0).await.unwrap();
    assert_eq!(take_and_ack(&*queue).await, critical);
    let later = publish(&*queue, Priority::Critical).await;
    let first = take_and_ack(&*queue).await;
    let second = take_and_ack(&*queue).await;
    // The ladder's step lasts a second; whichever came first, none is lost and none changes its lane.
    assert!([&first, &second].contains(&&later), "{first:?} {second:?}");
    assert!(
        [&first, &second].contains(&&takeover),
        "{first:?} {second:?}"
    );
}

async fn a_waiting_slot_is_woken(queue: Arc<dyn Queue>) {
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { take_and_ack(&*queue).await }
    });
    while queue.healthy().await.is_err() {}
    tokio::task::yield_now().await;
    let sent = publish(&*queue, Priority::Low).await;
    assert_eq!(waiting.await.unwrap(), sent);
}

async fn a_slot_that_does_not_ask_holds_nothing(queue: Arc<dyn Queue>) {
    let one = publish(&*queue, Priority::Medium).await;
    let other = publish(&*queue, Priority::Medium).await;
    // Held, not settled: the next message still goes to the next one who asks.
    let held = take(&*queue).await;
    assert_eq!(held.wake_up().unwrap(), &one);
    assert_eq!(take_and_ack(&*queue).await, other);
    held.ack().await.unwrap();
    assert!(is_empty(&*queue).await);
}

async fn a_dropped_delivery_comes_again(queue: Arc<dyn Queue>) {
    let sent = publish(&*queue, Priority::Medium).await;
    drop(take(&*queue).await);
    assert_eq!(take_and_ack(&*queue).await, sent);
}

async fn a_caller_dropped_in_the_middle_of_next_loses_nothing(queue: Arc<dyn Queue>) {
    assert!(is_empty(&*queue).await, "and both sides are connected");
    let mut sent = Vec::new();
    for _ in 0..10 {
        sent.push(publish(&*queue, Priority::Medium).await.task);
    }
    // Dropped at every kind of moment: before the question, between it and its answer, after. Fewer
    // times than the broker's delivery limit: before 4.3 each of these counts toward it.
    for micros in (0..7500).step_by(500) {
        let limit = Duration::from_micros(micros);
        drop(tokio::time::timeout(limit, queue.next(LONG)).await);
    }
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        seen.push(take_and_ack(&*queue).await.task);
    }
    seen.sort();
    sent.sort();
    assert_eq!(seen, sent);
    assert!(is_empty(&*queue).await);
}

async fn many_slots_share_without_doubling(queue: Arc<dyn Queue>) {
    let mut slots = JoinSet::new();
    for _ in 0..4 {
        let queue = queue.clone();
        slots.spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..5 {
                taken.push(take_and_ack(&*queue).await.task);
            }
            taken
        });
    }
    let mut sent = Vec::new();
    for _ in 0..20 {
        sent.push(publish(&*queue, Priority::High).await.task);
    }
    let mut taken: Vec<TaskId> = slots.join_all().await.into_iter().flatten().collect();
    taken.sort();
    sent.sort();
    assert_eq!(taken, sent);
}

async fn the_ladder_brings_a_message_back_to_its_class(queue: Arc<dyn Queue>) {
    let high = publish(&*queue, Priority::High).await;
    // Past the end of the ladder is its last step; this ladder has one of a second.
    take(&*queue).await.retry_later(7).await.unwrap();
    let low = publish(&*queue, Priority::Low).await;
    let asked = std::time::Instant::now();
    assert_eq!(take_and_ack(&*queue).await, low);
    assert_eq!(take_and_ack(&*queue).await, high);
    let waited = asked.elapsed();
    assert!(waited > Duration::from_millis(700), "{waited:?}");
    assert!(waited < Duration::from_secs(6), "{waited:?}");
}

async fn a_dead_letter_keeps_its_reason(queue: Arc<dyn Queue>) {
    assert!(queue.next_dead().await.unwrap().is_none());
    let sent = publish(&*queue, Priority::Medium).await;
    take(&*queue)
        .await
        .dead_letter("no such row")
        .await
        .unwrap();
    assert!(is_empty(&*queue).await);
    let (dead, reason) = queue.next_dead().await.unwrap().unwrap();
    assert_eq!(
        (dead.wake_up().unwrap(), reason.as_str()),
        (&sent, "no such row")
    );
    // Not settled: it stays.
    drop(dead);
    let dead = loop {
        if let Some((dead, _)) = queue.next_dead().await.unwrap() {
            break dead;
        }
    };
    dead.ack().await.unwrap();
    assert!(queue.next_dead().await.unwrap().is_none());
}

async fn a_closed_queue_is_unavailable(queue: Arc<dyn Queue>) {
    queue.healthy().await.unwrap();
    queue.close().await;
    let outcome = queue.publish(&wake_up(Priority::Low)).await;
    assert!(matches!(outcome, Err(QueueError::Unavailable(_))));
    let outcome = queue.next(Duration::from_millis(1)).await;
    assert!(matches!(outcome, Err(QueueError::Unavailable(_))));
    assert!(queue.healthy().await.is_err());
}

/// What a test has of the broker beside the queue under test.
struct Broker {
    config: config::QueueConfig,
    admin: Channel,
    _connection: Connection,
}

fn amqp_url() -> String {
    std::env::var("AGENTMINE_TEST_AMQP_URL")
        .unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:56729/%2f".into())
}

/// `host:port`
fn amqp_host() -> String {
    let url = amqp_url();
    let (_, host) = url.split_once('@').unwrap();
    host.split('/').next().unwrap().to_owned()
}

impl Broker {
    async fn new() -> Self {
        let made = Connection::connect(&amqp_url(), ConnectionProperties::default()).await;
        let connection = match made {
            Ok(connection) => connection,
            Err(error) => panic!("no RabbitMQ for the tests ({error}): run tests/run"),
        };
        Self {
            config: config::QueueConfig {
                url: Secret::new(amqp_url()),
                prefix: format!("test-{}", Uuid::new_v4().simple()),
                retry_seconds: vec![1],
            },
            admin: connection.create_channel().await.unwrap(),
            _connection: connection,
        }
    }

    fn named(&self, name: &str) -> String {
        format!("{}.{name}", self.config.prefix)
    }

    async fn delete(&self, queue: &str) {
        let options = QueueDeleteOptions::default();
        self.admin
            .queue_delete(self.named(queue).into(), options)
            .await
            .unwrap();
    }

    async fn wipe(&self) {
        for lane in Lane::ORDER {
            self.delete(&format!("tasks.{lane}")).await;
        }
        for queue in ["retry.1", "dead"] {
            self.delete(queue).await;
        }
        for exchange in ["tasks", "retry.1", "bell"] {
            self.admin
                .exchange_delete(self.named(exchange).into(), Default::default())
                .await
                .unwrap();
        }
    }
}

async fn on_rabbitmq<F: Future<Output = ()>>(test: impl FnOnce(Arc<dyn Queue>) -> F) {
    let broker = Broker::new().await;
    let queue = connect(&broker.config).unwrap();
    test(queue.clone()).await;
    queue.close().await;
    broker.wipe().await;
}

async fn in_process<F: Future<Output = ()>>(test: impl FnOnce(Arc<dyn Queue>) -> F) {
    let config = config::QueueConfig {
        url: Secret::new("inproc:"),
        retry_seconds: vec![1],
        ..config::QueueConfig::default()
    };
    test(connect(&config).unwrap()).await;
}

macro_rules! facts {
    ($($fact:ident,)+) => {
        mod inproc_queue {
            $(#[tokio::test] async fn $fact() { super::in_process(super::$fact).await; })+
        }
        mod rabbitmq_queue {
            $(#[tokio::test] async fn $fact() { super::on_rabbitmq(super::$fact).await; })+
        }
    };
}

facts! {
    a_message_is_taken_once,
    the_highest_class_comes_first_and_each_in_order,
    a_takeover_comes_before_every_class_and_from_the_ladder_too,
    a_waiting_slot_is_woken,
    a_slot_that_does_not_ask_holds_nothing,
    a_dropped_delivery_comes_again,
    a_caller_dropped_in_the_middle_of_next_loses_nothing,
    many_slots_share_without_doubling,
    the_ladder_brings_a_message_back_to_its_class,
    a_dead_letter_keeps_its_reason,
    a_closed_queue_is_unavailable,
}

#[tokio::test]
async fn an_unroutable_message_is_an_error_and_the_next_finds_its_queue_again() {
    let broker = Broker::new().await;
    let queue = connect(&broker.config).unwrap();
    queue.healthy().await.unwrap();
    broker.delete("tasks.medium").await;
    let outcome = queue.publish(&wake_up(Priority::Medium)).await;
    let Err(QueueError::Unroutable(what)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(what.contains("medium"), "{what}");
    let sent = publish(&*queue, Priority::Medium).await;
    assert_eq!(take_and_ack(&*queue).await, sent);
    queue.close().await;
    broker.wipe().await;
}

#[tokio::test]
async fn a_wiped_broker_gets_its_queues_again() {
    let broker = Broker::new().await;
    let queue = connect(&broker.config).unwrap();
    publish(&*queue, Priority::Medium).await;
    drop(take(&*queue).await);
    broker.wipe().await;
    // Both sides notice by an error and recover.
    let sent = loop {
        let wake_up = wake_up(Priority::Low);
        if queue.publish(&wake_up).await.is_ok() {
            break wake_up;
        }
    };
    let delivery = loop {
        if let Ok(Some(delivery)) = queue.next(SHORT).await {
            break delivery;
        }
    };
    assert_eq!(delivery.wake_up().unwrap(), &sent);
    delivery.ack().await.unwrap();
    queue.close().await;
    broker.wipe().await;
}

#[tokio::test]
async fn a_cut_connection_recovers_and_a_late_acknowledgement_is_no_error() {
    let broker = Broker::new().await;
    let wire = Wire::new().await;
    let config = config::QueueConfig {
        url: Secret::new(format!("amqp://guest:guest@127.0.0.1:{}/%2f", wire.port)),
        ..broker.config.clone()
    };
    let queue = connect(&config).unwrap();
    let sent = publish(&*queue, Priority::High).await;
    let held = take(&*queue).await;
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move {
            loop {
                match queue.next(LONG).await {
                    Ok(Some(delivery)) => break delivery,
                    Ok(None) => panic!("nothing came"),
                    Err(QueueError::Unavailable(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
    });
    wire.cut.send_modify(|n| *n += 1);
    // What was held is delivered again on the next request.
    let again = waiting.await.unwrap();
    assert_eq!(again.wake_up().unwrap(), &sent);
    held.ack().await.unwrap();
    again.ack().await.unwrap();
    let sent = loop {
        let wake_up = wake_up(Priority::Low);
        match queue.publish(&wake_up).await {
            Ok(()) => break wake_up,
            Err(QueueError::Unavailable(_)) => {}
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(take_and_ack(&*queue).await, sent);
    queue.close().await;
    broker.wipe().await;
}

#[tokio::test]
async fn a_foreign_message_is_held_and_can_be_dead_lettered() {
    let broker = Broker::new().await;
    let queue = connect(&broker.config).unwrap();
    queue.healthy().await.unwrap();
    broker
        .admin
        .basic_publish(
            "".into(),
            broker.named("tasks.low").into(),
            BasicPublishOptions::default(),
            b"hello",
            BasicProperties::default(),
        )
        .await
        .unwrap();
    let foreign = take(&*queue).await;
    let why = foreign.wake_up().unwrap_err();
    assert!(why.contains("not a wake-up"), "{why}");
    foreign.dead_letter(&why).await.unwrap();
    let (dead, reason) = queue.next_dead().await.unwrap().unwrap();
    assert_eq!(reason, why);
    assert!(dead.wake_up().is_err());
    dead.ack().await.unwrap();
    queue.close().await;
    broker.wipe().await;
}

#[tokio::test]
async fn a_message_delivered_too_often_is_dead_lettered_by_the_broker() {
    let broker = Broker::new().await;
    let queue = connect(&broker.config).unwrap();
    let sent = publish(&*queue, Priority::Medium).await;
    let mut rounds = 0;
    let (dead, reason) = loop {
        // By reject, since newer brokers do not count a requeueing nack.
        let got = broker
            .admin
            .basic_get(broker.named("tasks.medium").into(), Default::default())
            .await
            .unwrap();
        if let Some(message) = got {
            let requeue = BasicRejectOptions { requeue: true };
            message.delivery.reject(requeue).await.unwrap();
        }
        if let Some(dead) = queue.next_dead().await.unwrap() {
            break dead;
        }
        rounds += 1;
        assert!(rounds < 5000, "still delivered after {rounds} rounds");
    };
    assert_eq!(dead.wake_up().unwrap(), &sent);
    assert!(reason.contains("delivery_limit"), "{reason}");
    dead.ack().await.unwrap();
    queue.close().await;
    broker.wipe().await;
}

#[tokio::test]
async fn a_queue_that_exists_with_other_settings_is_one_clear_error() {
    let broker = Broker::new().await;
    let name = broker.named("tasks.low");
    broker
        .admin
        .queue_declare(
            name.clone().into(),
            QueueDeclareOptions::durable(),
            FieldTable::default(),
        )
        .await
        .unwrap();
    let queue = connect(&broker.config).unwrap();
    let message = queue.healthy().await.unwrap_err().to_string();
    assert!(message.contains(&name), "{message}");
    assert!(message.contains("queue.prefix"), "{message}");
    queue.close().await;
    broker.delete("tasks.low").await;
}
