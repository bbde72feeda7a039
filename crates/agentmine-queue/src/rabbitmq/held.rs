//! A message that is held unacknowledged. Dropping it requeues it.

use std::sync::Arc;

use agentmine_domain::{Priority, WakeUp};
use agentmine_runtime::failpoint::around;
use async_trait::async_trait;
use lapin::Acker;
use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicNackOptions};
use lapin::types::{AMQPValue, ShortString};

use super::connection::{ANSWER_LIMIT, OpenConnection};
use super::publisher::{Publisher, REASON, Target};
use crate::envelope;
use crate::error::QueueError;
use crate::lane::Lane;
use crate::queue::Delivery;

/// A message that was taken and is not acknowledged yet.
pub(super) struct HeldMessage {
    /// For copies to the retry ladder and the dead-letter queue.
    publisher: Arc<Publisher>,
    /// Keeps the channel open as long as the message is held.
    connection: Arc<OpenConnection>,
    acker: Acker,
    /// Where it came from; `None` from the dead-letter queue.
    lane: Option<Lane>,
    wake_up: Result<WakeUp, String>,
    body: Vec<u8>,
    message_id: Option<ShortString>,
    reason: Option<String>,
    settled: bool,
}

impl HeldMessage {
    /// Gets one message. The exchange with the broker runs in its own task: if the caller goes away
    /// in the middle, the message is complete all the same, and dropping it requeues it.
    pub(super) async fn get(
        publisher: &Arc<Publisher>,
        connection: &Arc<OpenConnection>,
        queue: String,
        lane: Option<Lane>,
    ) -> Result<Option<Self>, QueueError> {
        let (publisher, connection) = (publisher.clone(), connection.clone());
        let getting = tokio::spawn(async move {
            let _one_at_a_time = connection.turn().await;
            let options = BasicGetOptions { no_ack: false };
            let get = connection.channel.basic_get(queue.into(), options);
            let got = around("queue.get", connection.answer("get", get)).await?;
            Ok(got.map(|message| Self::new(publisher, connection.clone(), message, lane)))
        });
        match getting.await {
            Ok(got) => got,
            Err(error) => Err(QueueError::Unavailable(format!("get: {error}"))),
        }
    }

    fn new(
        publisher: Arc<Publisher>,
        connection: Arc<OpenConnection>,
        message: BasicGetMessage,
        lane: Option<Lane>,
    ) -> Self {
        metrics::counter!("agentmine_messages_taken_total").increment(1);
        let delivery = message.delivery;
        Self {
            publisher,
            connection,
            lane,
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

    fn lane(&self) -> Lane {
        let stated = self.wake_up.as_ref().map(Lane::of);
        let unknown = Lane::Class(Priority::Medium);
        self.lane.or(stated.ok()).unwrap_or(unknown)
    }

    /// An acknowledgement that does not reach the broker is no error: the message comes again, and the
    /// row decides. It comes when its channel is closed, so that is done at once: the broker would keep the
    /// message until its consumer timeout, half an hour.
    async fn settle(mut self: Box<Self>) -> Result<(), QueueError> {
        self.settled = true;
        let ack = around("queue.ack", async {
            let ack = self.acker.ack(BasicAckOptions::default());
            let sent = match tokio::time::timeout(ANSWER_LIMIT, ack).await {
                Ok(sent) => sent.map_err(|error| error.to_string()),
                Err(_) => Err("not sent in time".into()),
            };
            sent.map_err(QueueError::Unavailable)
        });
        match ack.await {
            Ok(true) => {}
            Ok(false) => tracing::debug!("a message was acknowledged after its channel was closed"),
            Err(error) => {
                tracing::debug!(%error, "an acknowledgement was not sent; its connection is replaced");
                self.connection.fail();
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Delivery for HeldMessage {
    fn wake_up(&self) -> Result<&WakeUp, String> {
        self.wake_up.as_ref().map_err(Clone::clone)
    }

    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        self.settle().await
    }

    async fn retry_later(self: Box<Self>, step: usize) -> Result<(), QueueError> {
        let delay = self.publisher.retry_delay(step);
        let target = Target::Retry(self.lane(), delay);
        self.publisher
            .publish(target, &self.body, self.message_id.clone())
            .await?;
        self.settle().await
    }

    async fn dead_letter(self: Box<Self>, reason: &str) -> Result<(), QueueError> {
        self.publisher
            .publish(Target::Dead(reason), &self.body, self.message_id.clone())
            .await?;
        self.settle().await
    }
}

impl Drop for HeldMessage {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let acker = self.acker.clone();
        let connection = self.connection.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let requeue = BasicNackOptions {
                    requeue: true,
                    ..BasicNackOptions::default()
                };
                let _ = tokio::time::timeout(ANSWER_LIMIT, acker.nack(requeue)).await;
                drop(connection);
            });
        }
    }
}

/// Our reason, else the broker's for a message that it dead-lettered itself.
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
        text("x-first-death-reason").map(|why| format!("dead-lettered by the broker: {why}"))
    })
}
