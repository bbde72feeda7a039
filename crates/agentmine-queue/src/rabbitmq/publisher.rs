//! Publishing with confirms, and the notifications of waiting slots.

use std::sync::Arc;

use agentmine_domain::WakeUp;
use agentmine_runtime::config::Secret;
use agentmine_runtime::failpoint::{Guard, around};
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Confirmation};

use super::connection::{ManagedConnection, OpenConnection, Outage, Role};
use super::topology::Topology;
use crate::envelope::{self, CONTENT_TYPE};
use crate::error::QueueError;
use crate::lane::Lane;

/// The header that holds the reason of a dead letter.
pub(super) const REASON: &str = "x-agentmine-reason";

/// Where a message goes.
pub(super) enum Target<'a> {
    Lane(Lane),
    /// A step of the ladder, in seconds.
    Retry(Lane, u64),
    /// With the reason.
    Dead(&'a str),
}

impl Target<'_> {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Lane(_) => "tasks",
            Self::Retry(..) => "retry",
            Self::Dead(_) => "dead",
        }
    }

    fn boundary(&self) -> &'static str {
        match self {
            Self::Lane(_) => "queue.publish",
            Self::Retry(..) => "queue.retry_later",
            Self::Dead(_) => "queue.dead_letter",
        }
    }
}

/// The connection that publishes.
pub(super) struct Publisher {
    connection: ManagedConnection,
    topology: Arc<Topology>,
}

impl Publisher {
    pub(super) fn new(
        url: &Secret,
        topology: Arc<Topology>,
        outage: Outage,
    ) -> Result<Self, QueueError> {
        let role = Role::Publisher;
        Ok(Self {
            connection: ManagedConnection::new(url, topology.clone(), role, outage)?,
            topology,
        })
    }

    pub(super) async fn connection(&self) -> Result<Arc<OpenConnection>, QueueError> {
        self.connection.get().await
    }

    pub(super) async fn close(&self) {
        self.connection.close().await;
    }

    /// The delay of a step of the retry ladder, in seconds.
    pub(super) fn retry_delay(&self, step: usize) -> u64 {
        self.topology.retry_delay(step)
    }

    /// Publishes a wake-up and notifies waiting slots.
    pub(super) async fn wake_up(&self, wake_up: &WakeUp) -> Result<(), QueueError> {
        let body = envelope::encode(wake_up).map_err(QueueError::Invalid)?;
        let id = wake_up.task.to_string();
        self.publish(Target::Lane(Lane::of(wake_up)), &body, Some(id.into()))
            .await?;
        // Best effort: no slot depends on it.
        if let Ok(connection) = self.connection.get().await
            && !connection.is_blocked()
        {
            connection.notify(&self.topology.notifications()).await;
        }
        Ok(())
    }

    /// Publishes a wake-up, a copy of one, or a message that cannot be read, and counts it.
    pub(super) async fn publish(
        &self,
        target: Target<'_>,
        body: &[u8],
        message_id: Option<ShortString>,
    ) -> Result<(), QueueError> {
        let mut properties = BasicProperties::default();
        if let Some(id) = message_id {
            properties = properties.with_message_id(id);
        }
        let (exchange, key) = match &target {
            Target::Lane(lane) => (self.topology.tasks_exchange(), lane.as_str().to_owned()),
            Target::Retry(lane, step) => (self.topology.retry(*step), lane.as_str().to_owned()),
            Target::Dead(reason) => {
                let mut headers = FieldTable::default();
                headers.insert(REASON.into(), AMQPValue::LongString(short(reason).into()));
                properties = properties.with_headers(headers);
                (String::new(), self.topology.dead())
            }
        };
        let confirmed = self.confirmed(&exchange, &key, body, properties);
        let outcome = around(target.boundary(), confirmed).await;
        let (target, outcome_name) = (target.as_str(), outcome_name(&outcome));
        metrics::counter!(
            "agentmine_messages_published_total", "target" => target, "outcome" => outcome_name
        )
        .increment(1);
        outcome
    }

    /// Publishes persistent and mandatory and waits for the confirm.
    ///
    /// One at a time, so a `basic.return` belongs to this message. The broker acknowledges an unroutable
    /// message after its return: the acknowledgement alone says nothing.
    async fn confirmed(
        &self,
        exchange: &str,
        key: &str,
        body: &[u8],
        properties: BasicProperties,
    ) -> Result<(), QueueError> {
        let connection = self.connection.get().await?;
        let _one_at_a_time = connection.turn().await;
        if connection.is_blocked() {
            return Err(blocked());
        }
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = properties
            .with_delivery_mode(2)
            .with_content_type(CONTENT_TYPE.into());
        let confirmation = connection
            .answer("publish", async {
                let sent = connection
                    .channel
                    .basic_publish(exchange.into(), key.into(), options, body, properties)
                    .await?;
                if Guard::Confirm.is_off() {
                    return Ok(Confirmation::Ack(None));
                }
                sent.await
            })
            .await?;
        match confirmation {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => {
                connection.declare_again();
                Err(QueueError::Unroutable(format!(
                    "{key} ({})",
                    returned.reply_text
                )))
            }
            Confirmation::Nack(None) => Err(QueueError::Refused(key.to_owned())),
            Confirmation::NotRequested => {
                connection.fail();
                Err(QueueError::Refused("the channel does not confirm".into()))
            }
        }
    }
}

/// The error of a broker under an alarm.
fn blocked() -> QueueError {
    QueueError::Unavailable("the broker is short of memory or disk and accepts no messages".into())
}

fn outcome_name(outcome: &Result<(), QueueError>) -> &'static str {
    match outcome {
        Ok(()) => "confirmed",
        Err(QueueError::Unavailable(_)) => "unavailable",
        Err(QueueError::Unroutable(_)) => "unroutable",
        Err(QueueError::Refused(_)) => "refused",
        Err(QueueError::Invalid(_)) => "invalid",
    }
}

/// A reason, short enough for a header.
fn short(reason: &str) -> String {
    reason.chars().take(1000).collect()
}
