//! The queue on RabbitMQ (3.10 to 4.x).
//!
//! # Taking messages
//! A slot that asks gets exactly one message by `basic.get`, from the first lane that has one: takeovers, then
//! the classes. The count is read first: a `basic.get` is a command in a quorum queue's log even if there is
//! nothing to get, and a queue without a leader never answers it, but reports a count of 0. Nothing is
//! prefetched, so a slot that does not ask holds nothing, on every version of the broker. The alternative,
//! consuming with a prefetch of 1 and cancelling, requeues messages whenever two classes deliver at once, and
//! brokers before 4.3 count each requeue toward the delivery limit.
//!
//! To let idle slots wait without frequent polling, each publish also sends a notification: a tiny
//! transient message to a fanout exchange, from which every taking process consumes through an exclusive
//! queue of length one. A notification carries no work and may be lost: without it (a message back from
//! the retry ladder, or requeued) the classes are checked every second.
//!
//! # Losses
//! Publishing and taking each have their own connection, since a broker short of memory or disk stops reading from
//! connections that publish: messages are taken meanwhile, and those to publish wait in the outbox. Each is replaced when it is lost or the broker closes its channel. What is
//! unacknowledged then comes again; an acknowledgement on the old channel is `Ok`, and the row decides. A
//! message that a dropped `next` had already fetched is requeued; brokers before 4.3 count that toward the
//! delivery limit, so a caller should not drop `next` in a loop but let `wait` run out.
//!
//! # Broken queues
//! A broker that is killed while it declares a quorum queue may leave it without a leader, and a cluster that loses
//! its majority has such queues for a while. A lane that did not answer is asked after the others, and dead
//! letters that did not answer are left alone for a while, so that one broken queue stops no other.

mod connection;
mod held;
mod publisher;
mod socket;
mod topology;
mod unanswered;

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::WakeUp;
use agentmine_runtime::config;
use async_trait::async_trait;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::error::QueueError;
use crate::lane::Lane;
use crate::queue::{Delivery, Queue, QueueDepth};
use connection::{ANSWER_LIMIT, ManagedConnection, OpenConnection, Outage, Role};
use held::HeldMessage;
use publisher::Publisher;
use topology::Topology;
use unanswered::Unanswered;

/// How often a waiting slot looks without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The broker.
pub(crate) struct RabbitMq {
    topology: Arc<Topology>,
    publisher: Arc<Publisher>,
    taker: ManagedConnection,
    /// One slot of the process looks at a time; the others wait for their turn.
    turn: Mutex<()>,
    notified: Arc<Notify>,
    unanswered: Unanswered,
}

impl RabbitMq {
    /// Checks the configuration; opens no connection.
    pub(crate) fn new(config: &config::QueueConfig) -> Result<Self, QueueError> {
        let topology = Arc::new(Topology::new(&config.prefix, &config.retry_seconds)?);
        let notified = Arc::new(Notify::new());
        let url = &config.url;
        let role = Role::Taker(notified.clone());
        let outage = Outage::default();
        Ok(Self {
            publisher: Arc::new(Publisher::new(url, topology.clone(), outage.clone())?),
            taker: ManagedConnection::new(url, topology.clone(), role, outage)?,
            topology,
            turn: Mutex::new(()),
            notified,
            unanswered: Unanswered::default(),
        })
    }

    async fn look(
        &self,
        connection: &Arc<OpenConnection>,
    ) -> Result<Option<HeldMessage>, QueueError> {
        let mut lanes = Lane::ORDER;
        lanes.sort_by_key(|lane| self.unanswered.is_recent(&self.topology.lane(*lane)));
        for lane in lanes {
            let queue = self.topology.lane(lane);
            if let Some(held) = self.first(connection, queue, Some(lane)).await? {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// The first message of a queue.
    async fn first(
        &self,
        connection: &Arc<OpenConnection>,
        queue: String,
        lane: Option<Lane>,
    ) -> Result<Option<HeldMessage>, QueueError> {
        if connection.count(&queue).await? == 0 {
            return Ok(None);
        }
        let asked = Instant::now();
        let got = HeldMessage::get(&self.publisher, connection, queue.clone(), lane).await;
        if got.is_err() && asked.elapsed() >= ANSWER_LIMIT {
            self.unanswered.note(queue);
        }
        got
    }

    async fn take(&self, wait: Duration) -> Result<Option<HeldMessage>, QueueError> {
        let deadline = Instant::now() + wait;
        let Ok(_turn) = tokio::time::timeout_at(deadline, self.turn.lock()).await else {
            return Ok(None);
        };
        loop {
            let connection = self.taker.get().await?;
            if let Some(held) = self.look(&connection).await? {
                return Ok(Some(held));
            }
            let again = (Instant::now() + LOOK_EVERY).min(deadline);
            tokio::select! {
                () = self.notified.notified() => {}
                () = tokio::time::sleep_until(again) => {
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Queue for RabbitMq {
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), QueueError> {
        self.publisher.wake_up(wake_up).await
    }

    async fn next(&self, wait: Duration) -> Result<Option<Box<dyn Delivery>>, QueueError> {
        let asked = Instant::now();
        match self.take(wait).await {
            Ok(held) => Ok(held.map(|held| Box::new(held) as Box<dyn Delivery>)),
            Err(error) => {
                // A caller that asks again at once must not spin while the broker is away.
                tokio::time::sleep_until(asked + wait.min(LOOK_EVERY)).await;
                Err(error)
            }
        }
    }

    async fn next_dead(&self) -> Result<Option<(Box<dyn Delivery>, String)>, QueueError> {
        let dead = self.topology.dead();
        if self.unanswered.is_recent(&dead) {
            return Ok(None);
        }
        let connection = self.taker.get().await?;
        let held = self.first(&connection, dead, None).await?;
        Ok(held.map(|held| {
            let reason = held.reason();
            (Box::new(held) as Box<dyn Delivery>, reason)
        }))
    }

    async fn healthy(&self) -> Result<(), QueueError> {
        let connection = self.publisher.connection().await?;
        // A blocked broker answers nothing there. One that is gone does not keep the connection open.
        if connection.is_blocked() {
            return Ok(());
        }
        match connection.count(&self.topology.dead()).await {
            Ok(_) => Ok(()),
            Err(_) if connection.is_blocked() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn depths(&self) -> Result<Vec<QueueDepth>, QueueError> {
        // A broker under an alarm answers nothing on a connection that publishes.
        let connection = self.taker.get().await?;
        let mut depths = Vec::new();
        for name in self.topology.queues() {
            let messages = u64::from(connection.count(&name).await?);
            depths.push(QueueDepth { name, messages });
        }
        Ok(depths)
    }

    async fn close(&self) {
        let both = async { tokio::join!(self.publisher.close(), self.taker.close()) };
        // A broker that does not answer is not waited for.
        let _ = tokio::time::timeout(ANSWER_LIMIT, both).await;
    }
}
