//! The queue on RabbitMQ (3.10 to 4.x).
//!
//! # Taking messages
//! A slot that asks gets exactly one message by `basic.get`, from the highest class that has one; nothing
//! is prefetched, so a slot that does not ask holds nothing, on every broker version. Consuming with a
//! prefetch of 1 and cancelling, the other way, gives messages back by requeueing whenever two classes
//! deliver at once, and each of those counts toward the delivery limit on brokers before 4.3.
//! So that an idle slot need not poll hard, each publish rings a bell: a tiny transient message to a
//! fanout exchange, from which every taking process consumes by an exclusive queue of its own (length one).
//! The bell carries no work and may be lost: without it (a message back from the retry ladder, or
//! requeued) the classes are looked at every second. An idle look asks for the counts only, since a
//! `basic.get` is a command in a quorum queue's log even when there is nothing to get.
//!
//! # Losses
//! Publishing and taking have a connection each, since a broker short of memory stops reading from those
//! that publish. Each [`line::Line`] replaces its connection when that dies or the broker closes its
//! channel. What is unacknowledged then comes again; an ack on the old channel is `Ok`, and the row
//! decides. A message that a dropped `next` had already fetched is requeued; brokers before 4.3 count that
//! toward the delivery limit, so a caller does not drop `next` in a loop: it lets `wait` run out.

mod held;
mod line;
mod socket;
mod topology;

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Priority, WakeUp};
use agentmine_runtime::config;
use async_trait::async_trait;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Confirmation};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::envelope::{self, CONTENT_TYPE};
use crate::{Delivery, Queue, QueueError};
use held::{Held, REASON};
use line::{ANSWER_LIMIT, Line, Link, Role};
use topology::Topology;

/// How often a waiting slot looks without being rung for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The broker.
pub(crate) struct RabbitMq(Arc<Broker>);

struct Broker {
    topology: Arc<Topology>,
    publisher: Line,
    taker: Line,
    /// One slot of the process looks at a time; the others stand in line behind it.
    turn: Mutex<()>,
    bell: Arc<Notify>,
}

impl RabbitMq {
    /// Checks the configuration; reaches for nothing.
    pub(crate) fn new(config: &config::QueueConfig) -> Result<Self, QueueError> {
        let topology = Arc::new(Topology::new(&config.prefix, &config.retry_seconds)?);
        let bell = Arc::new(Notify::new());
        let url = config.url.expose();
        let publisher = Line::new(url, topology.clone(), Role::Publisher)?;
        let taker = Line::new(url, topology.clone(), Role::Taker(bell.clone()))?;
        Ok(Self(Arc::new(Broker {
            topology,
            publisher,
            taker,
            turn: Mutex::new(()),
            bell,
        })))
    }
}

impl Broker {
    /// Publishes persistent and mandatory and waits for the confirm.
    ///
    /// One at a time: then a `basic.return` belongs to the one message that is under way. An unroutable
    /// message is *acked* after its return, so the ack alone says nothing.
    async fn publish(
        &self,
        exchange: &str,
        key: &str,
        body: &[u8],
        properties: BasicProperties,
    ) -> Result<(), QueueError> {
        let link = self.publisher.link().await?;
        let _one_at_a_time = link.turn().await;
        if link.is_blocked() {
            return Err(QueueError::Unavailable(
                "the broker is short of memory or disk and takes no messages".into(),
            ));
        }
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = properties
            .with_delivery_mode(2)
            .with_content_type(CONTENT_TYPE.into());
        let confirmation = link
            .answer("publish", async {
                let sent = link
                    .channel
                    .basic_publish(exchange.into(), key.into(), options, body, properties)
                    .await?;
                sent.await
            })
            .await?;
        match confirmation {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => {
                link.declare_again();
                Err(QueueError::Unroutable(format!(
                    "{key} ({})",
                    returned.reply_text
                )))
            }
            Confirmation::Nack(None) => Err(QueueError::Refused(key.to_owned())),
            Confirmation::NotRequested => {
                link.fail();
                Err(QueueError::Refused("the channel does not confirm".into()))
            }
        }
    }

    /// Publishes a wake-up (or a copy of one, or a message that cannot be read) and counts it.
    async fn publish_counted(
        &self,
        target: Target<'_>,
        body: &[u8],
        message_id: Option<ShortString>,
    ) -> Result<(), QueueError> {
        let mut properties = BasicProperties::default();
        if let Some(id) = message_id {
            properties = properties.with_message_id(id);
        }
        let outcome = match &target {
            Target::Class(class) => {
                let exchange = self.topology.tasks_exchange();
                self.publish(&exchange, class.as_str(), body, properties)
                    .await
            }
            Target::Retry(class, step) => {
                let exchange = self.topology.retry(*step);
                self.publish(&exchange, class.as_str(), body, properties)
                    .await
            }
            Target::Dead(reason) => {
                let mut headers = FieldTable::default();
                headers.insert(REASON.into(), AMQPValue::LongString(short(reason).into()));
                let properties = properties.with_headers(headers);
                self.publish("", &self.topology.dead(), body, properties)
                    .await
            }
        };
        let (target, outcome_name) = (target.as_str(), outcome_name(&outcome));
        metrics::counter!(
            "agentmine_messages_published_total", "target" => target, "outcome" => outcome_name
        )
        .increment(1);
        outcome
    }

    /// Tells waiting slots everywhere to look. Nothing depends on it.
    async fn ring(&self) {
        if let Ok(link) = self.publisher.link().await {
            link.ring(&self.topology.bell()).await;
        }
    }

    async fn look(
        self: &Arc<Self>,
        link: &Arc<Link>,
        how: Look,
    ) -> Result<Option<Held>, QueueError> {
        for class in Priority::ALL.iter().rev() {
            let queue = self.topology.class(*class);
            if how == Look::CountFirst && link.count(&queue).await? == 0 {
                continue;
            }
            if let Some(held) = Held::get(self, link, queue, Some(*class)).await? {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    async fn next(self: &Arc<Self>, wait: Duration) -> Result<Option<Held>, QueueError> {
        let deadline = Instant::now() + wait;
        let Ok(_turn) = tokio::time::timeout_at(deadline, self.turn.lock()).await else {
            return Ok(None);
        };
        let mut how = Look::Get;
        loop {
            let link = self.taker.link().await?;
            if let Some(held) = self.look(&link, how).await? {
                return Ok(Some(held));
            }
            let again = Instant::now() + LOOK_EVERY;
            tokio::select! {
                () = self.bell.notified() => how = Look::Get,
                () = tokio::time::sleep_until(again.min(deadline)) => {
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                    how = Look::CountFirst;
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Get,
    CountFirst,
}

/// Where a message goes.
enum Target<'a> {
    Class(Priority),
    /// A step of the ladder, in seconds.
    Retry(Priority, u64),
    /// With the reason.
    Dead(&'a str),
}

impl Target<'_> {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Class(_) => "tasks",
            Self::Retry(..) => "retry",
            Self::Dead(_) => "dead",
        }
    }
}

#[async_trait]
impl Queue for RabbitMq {
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), QueueError> {
        let body = envelope::encode(wake_up).map_err(QueueError::Refused)?;
        let id = wake_up.task.to_string();
        self.0
            .publish_counted(Target::Class(wake_up.priority), &body, Some(id.into()))
            .await?;
        self.0.ring().await;
        Ok(())
    }

    async fn next(&self, wait: Duration) -> Result<Option<Box<dyn Delivery>>, QueueError> {
        let asked = Instant::now();
        match self.0.next(wait).await {
            Ok(held) => Ok(held.map(|held| Box::new(held) as Box<dyn Delivery>)),
            Err(error) => {
                // A caller that asks again at once must not spin while the broker is away.
                tokio::time::sleep_until(asked + wait.min(LOOK_EVERY)).await;
                Err(error)
            }
        }
    }

    async fn next_dead(&self) -> Result<Option<(Box<dyn Delivery>, String)>, QueueError> {
        let link = self.0.taker.link().await?;
        let held = Held::get(&self.0, &link, self.0.topology.dead(), None).await?;
        Ok(held.map(|held| {
            let reason = held.reason();
            (Box::new(held) as Box<dyn Delivery>, reason)
        }))
    }

    async fn healthy(&self) -> Result<(), QueueError> {
        let link = self.0.publisher.link().await?;
        link.count(&self.0.topology.dead()).await.map(|_| ())
    }

    async fn close(&self) {
        let both = async {
            self.0.publisher.close().await;
            self.0.taker.close().await;
        };
        // A broker that does not answer is left.
        let _ = tokio::time::timeout(ANSWER_LIMIT, both).await;
    }
}

fn outcome_name(outcome: &Result<(), QueueError>) -> &'static str {
    match outcome {
        Ok(()) => "confirmed",
        Err(QueueError::Unavailable(_)) => "unavailable",
        Err(QueueError::Unroutable(_)) => "unroutable",
        Err(QueueError::Refused(_)) => "refused",
    }
}

/// A reason fit for a header.
fn short(reason: &str) -> String {
    reason.chars().take(1000).collect()
}
