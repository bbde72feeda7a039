//! A message held unacknowledged.

use std::sync::Arc;

use agentmine_domain::{Priority, WakeUp};
use async_trait::async_trait;
use lapin::Acker;
use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicNackOptions};
use lapin::types::{AMQPValue, ShortString};

use super::line::{ANSWER_LIMIT, Link};
use super::{Broker, Target};
use crate::envelope;
use crate::{Delivery, QueueError};

/// The header that holds the reason of a dead letter.
pub(super) const REASON: &str = "x-agentmine-reason";

pub(super) struct Held {
    broker: Arc<Broker>,
    /// Keeps the channel open as long as the message is held.
    link: Arc<Link>,
    acker: Acker,
    /// The class queue it came from; none from the dead-letter queue.
    class: Option<Priority>,
    wake_up: Result<WakeUp, String>,
    body: Vec<u8>,
    message_id: Option<ShortString>,
    reason: Option<String>,
    settled: bool,
}

impl Held {
    /// Gets one message. The exchange with the broker runs in a task of its own, so that a caller who
    /// goes away in its middle leaves a whole `Held` behind, whose drop gives the message back.
    pub(super) async fn get(
        broker: &Arc<Broker>,
        link: &Arc<Link>,
        queue: String,
        class: Option<Priority>,
    ) -> Result<Option<Self>, QueueError> {
        let (broker, link) = (broker.clone(), link.clone());
        let getting = tokio::spawn(async move {
            let _one_at_a_time = link.turn().await;
            let options = BasicGetOptions { no_ack: false };
            let got = link
                .answer("get", link.channel.basic_get(queue.into(), options))
                .await?;
            Ok(got.map(|message| Self::new(broker, link.clone(), message, class)))
        });
        match getting.await {
            Ok(got) => got,
            Err(error) => Err(QueueError::Unavailable(format!("getting: {error}"))),
        }
    }

    fn new(
        broker: Arc<Broker>,
        link: Arc<Link>,
        message: BasicGetMessage,
        class: Option<Priority>,
    ) -> Self {
        metrics::counter!("agentmine_messages_taken_total").increment(1);
        let delivery = message.delivery;
        Self {
            broker,
            link,
            class,
            wake_up: envelope::decode(&delivery.data),
            reason: reason_of(&delivery),
            message_id: delivery.properties.message_id().clone(),
            acker: delivery.acker,
            body: delivery.data,
            settled: false,
        }
    }

    /// Why it is in the dead-letter queue.
    pub(super) fn reason(&self) -> String {
        self.reason
            .clone()
            .unwrap_or_else(|| "dead-lettered without a reason".into())
    }

    fn priority(&self) -> Priority {
        let told = self.wake_up.as_ref().map(|wake_up| wake_up.priority);
        self.class.or(told.ok()).unwrap_or(Priority::Medium)
    }

    /// An ack that does not reach the broker is no fault: the message comes again and the row decides.
    async fn settle(mut self: Box<Self>) -> Result<(), QueueError> {
        self.settled = true;
        let ack = self.acker.ack(BasicAckOptions::default());
        match tokio::time::timeout(ANSWER_LIMIT, ack).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => tracing::debug!("an ack came after its channel was gone"),
            Ok(Err(error)) => tracing::debug!(%error, "an ack was not sent"),
            Err(_) => tracing::debug!("an ack was not sent in time"),
        }
        Ok(())
    }
}

#[async_trait]
impl Delivery for Held {
    fn wake_up(&self) -> Result<&WakeUp, String> {
        self.wake_up.as_ref().map_err(Clone::clone)
    }

    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        self.settle().await
    }

    async fn retry_later(self: Box<Self>, step: usize) -> Result<(), QueueError> {
        let delay = self.broker.topology.retry_delay(step);
        let target = Target::Retry(self.priority(), delay);
        self.broker
            .publish_counted(target, &self.body, self.message_id.clone())
            .await?;
        self.settle().await
    }

    async fn dead_letter(self: Box<Self>, reason: &str) -> Result<(), QueueError> {
        self.broker
            .publish_counted(Target::Dead(reason), &self.body, self.message_id.clone())
            .await?;
        self.settle().await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let acker = self.acker.clone();
        let link = self.link.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let requeue = BasicNackOptions {
                    requeue: true,
                    ..BasicNackOptions::default()
                };
                let _ = tokio::time::timeout(ANSWER_LIMIT, acker.nack(requeue)).await;
                drop(link);
            });
        }
    }
}

/// Ours, else what the broker says of a message that it gave up itself.
fn reason_of(delivery: &lapin::message::Delivery) -> Option<String> {
    let headers = delivery.properties.headers().as_ref()?.inner();
    let text = |name: &str| match headers.get(name) {
        Some(AMQPValue::LongString(text)) => {
            Some(String::from_utf8_lossy(text.as_bytes()).into_owned())
        }
        Some(AMQPValue::ShortString(text)) => Some(text.to_string()),
        _ => None,
    };
    text(REASON).or_else(|| {
        text("x-first-death-reason").map(|why| format!("given up by the broker: {why}"))
    })
}
