//! The exchanges and queues that are declared: names and settings.
//!
//! One direct exchange with one quorum queue per lane (quorum queues refuse `x-max-priority`). The retry
//! ladder is one exchange and one queue per step, shared by the lanes: a message keeps its routing key
//! and returns to the tasks exchange when the queue's TTL ends. All of them dead-letter at least once,
//! so the broker loses no message on the way. A message that was delivered [`DELIVERY_LIMIT`] times
//! without an acknowledgement goes to the dead-letter queue, beyond the limit on the row's attempts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};

use crate::error::QueueError;
use crate::lane::Lane;

/// Deliveries of one message without an acknowledgement before the broker dead-letters it.
const DELIVERY_LIMIT: i64 = 20;

/// How long one declaration may take. A broker that starts, or whose disk is busy, needs seconds for all of them:
/// a limit for the whole would have a process connect again and again, and never take a message.
const DECLARATION_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct Topology {
    prefix: Arc<str>,
    retry_seconds: Vec<u64>,
}

impl Topology {
    pub(super) fn new(prefix: &str, retry_seconds: &[u64]) -> Result<Self, QueueError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if prefix.is_empty() || prefix.len() > 100 || !prefix.chars().all(plain) {
            return Err(QueueError::Invalid(
                "queue.prefix must be 1 to 100 letters, digits, dots, dashes or underscores".into(),
            ));
        }
        Ok(Self {
            prefix: prefix.into(),
            retry_seconds: retry_seconds.to_vec(),
        })
    }

    pub(super) fn tasks_exchange(&self) -> String {
        format!("{}.tasks", self.prefix)
    }

    pub(super) fn lane(&self, lane: Lane) -> String {
        format!("{}.tasks.{lane}", self.prefix)
    }

    /// Exchange and queue of a step of the ladder.
    pub(super) fn retry(&self, seconds: u64) -> String {
        format!("{}.retry.{seconds}", self.prefix)
    }

    /// The delay of a step; past the end, that of the last.
    pub(super) fn retry_delay(&self, step: usize) -> u64 {
        let last = self.retry_seconds.len().saturating_sub(1);
        self.retry_seconds
            .get(step.min(last))
            .copied()
            .unwrap_or(30)
    }

    pub(super) fn dead(&self) -> String {
        format!("{}.dead", self.prefix)
    }

    /// All queues: the lanes, the retry ladder, the dead letters.
    pub(super) fn queues(&self) -> Vec<String> {
        let lanes = Lane::ORDER.iter().map(|lane| self.lane(*lane));
        let retries = self.retry_seconds.iter().map(|step| self.retry(*step));
        lanes.chain(retries).chain([self.dead()]).collect()
    }

    /// The exchange that notifies waiting slots. Brokers in use have it under this name.
    pub(super) fn notifications(&self) -> String {
        format!("{}.bell", self.prefix)
    }

    /// Declares everything. Idempotent; an existing name with other settings is a 406 from the broker.
    pub(super) async fn declare(&self, channel: &Channel) -> Result<(), lapin::Error> {
        let tasks = self.tasks_exchange();
        exchange(channel, &tasks, ExchangeKind::Direct).await?;
        exchange(channel, &self.notifications(), ExchangeKind::Fanout).await?;
        queue(channel, &self.dead(), quorum()).await?;
        for lane in Lane::ORDER {
            let name = self.lane(lane);
            let mut arguments = dead_lettering(quorum(), "", Some(&self.dead()));
            arguments.insert("x-delivery-limit".into(), DELIVERY_LIMIT.into());
            queue(channel, &name, arguments).await?;
            bind(channel, &name, &tasks, lane.as_str()).await?;
        }
        for seconds in &self.retry_seconds {
            let name = self.retry(*seconds);
            exchange(channel, &name, ExchangeKind::Fanout).await?;
            let mut arguments = dead_lettering(quorum(), &tasks, None);
            let ttl = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
            arguments.insert("x-message-ttl".into(), ttl.into());
            queue(channel, &name, arguments).await?;
            bind(channel, &name, &name, "").await?;
        }
        Ok(())
    }
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn quorum() -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    arguments
}

fn dead_lettering(mut arguments: FieldTable, exchange: &str, key: Option<&str>) -> FieldTable {
    arguments.insert("x-dead-letter-exchange".into(), text(exchange));
    if let Some(key) = key {
        arguments.insert("x-dead-letter-routing-key".into(), text(key));
    }
    arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
    // Required by at-least-once.
    arguments.insert("x-overflow".into(), text("reject-publish"));
    arguments
}

async fn exchange(channel: &Channel, name: &str, kind: ExchangeKind) -> Result<(), lapin::Error> {
    let options = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    declared(channel.exchange_declare(name.into(), kind, options, FieldTable::default())).await
}

async fn queue(channel: &Channel, name: &str, arguments: FieldTable) -> Result<(), lapin::Error> {
    let options = QueueDeclareOptions::durable();
    declared(channel.queue_declare(name.into(), options, arguments))
        .await
        .map(|_| ())
}

async fn bind(
    channel: &Channel,
    queue: &str,
    exchange: &str,
    key: &str,
) -> Result<(), lapin::Error> {
    let (queue, exchange): (ShortString, ShortString) = (queue.into(), exchange.into());
    let options = QueueBindOptions::default();
    declared(channel.queue_bind(queue, exchange, key.into(), options, FieldTable::default())).await
}

async fn declared<T>(
    declaring: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, lapin::Error> {
    match tokio::time::timeout(DECLARATION_LIMIT, declaring).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to a declaration").into()),
    }
}
