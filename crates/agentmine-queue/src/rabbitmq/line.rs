//! One supervised connection with its channels.
//!
//! lapin's own recovery brings back a lost connection but not a channel that the broker closed
//! (consumer timeout, a failed precondition), so it is off, and this does both the same way: whatever is
//! not wholly well is replaced by a new connection, with a pause that grows while that fails. Until
//! then every caller is told at once that the broker is away.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ErrorKind};
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::Instant;

use super::topology::Topology;
use crate::QueueError;

/// How long the broker may take for one answer, a connection with all its declarations included.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a line is for.
pub(super) enum Role {
    Publisher,
    /// Rings this when a bell message comes, and when the link is lost.
    Taker(Arc<Notify>),
}

/// A connection that is replaced when it is lost.
pub(super) struct Line {
    uri: AMQPUri,
    topology: Arc<Topology>,
    role: Role,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Since the last success: the pause, until when, and what was wrong.
    trouble: Option<(Duration, Instant, String)>,
    closed: bool,
}

impl Line {
    pub(super) fn new(url: &str, topology: Arc<Topology>, role: Role) -> Result<Self, QueueError> {
        let mut uri = AMQPUri::from_str(url).map_err(|_| {
            QueueError::Unavailable("queue.url is not a valid amqp:// or amqps:// URL".into())
        })?;
        uri.query.heartbeat.get_or_insert(10);
        uri.query.connection_timeout.get_or_insert(4000);
        Ok(Self {
            uri,
            topology,
            role,
            state: Mutex::default(),
        })
    }

    /// The link, made anew if it was lost.
    pub(super) async fn link(&self) -> Result<Arc<Link>, QueueError> {
        let mut state = self.state.lock().await;
        if state.closed {
            return Err(QueueError::Unavailable("the queue is closed".into()));
        }
        if let Some(link) = &state.link {
            match self.still_good(link).await {
                true => return Ok(link.clone()),
                false => retire(state.link.take()),
            }
        }
        if let Some((_, until, why)) = &state.trouble
            && Instant::now() < *until
        {
            return Err(QueueError::Unavailable(why.clone()));
        }
        let made = match tokio::time::timeout(ANSWER_LIMIT, self.make()).await {
            Ok(made) => made.map_err(|error| explain(&error)),
            Err(_) => Err("no answer while connecting".into()),
        };
        match made {
            Ok(link) => {
                if state.trouble.take().is_some() {
                    tracing::info!("the broker is back");
                }
                metrics::counter!("agentmine_queue_connections_total").increment(1);
                Ok(state.link.insert(Arc::new(link)).clone())
            }
            Err(why) => {
                let pause = state
                    .trouble
                    .as_ref()
                    .map_or(SHORTEST_PAUSE, |(pause, ..)| {
                        (*pause * 2).min(LONGEST_PAUSE)
                    });
                state.trouble = Some((pause, Instant::now() + pause, why.clone()));
                metrics::counter!("agentmine_queue_connection_failures_total").increment(1);
                Err(QueueError::Unavailable(why))
            }
        }
    }

    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.closed = true;
        if let Some(link) = state.link.take() {
            let _ = link.connection.close(200, "bye".into()).await;
        }
    }

    /// A link whose topology was found wanting declares it again first.
    async fn still_good(&self, link: &Link) -> bool {
        if !link.is_whole() {
            return false;
        }
        if !link.wanting.swap(false, Ordering::SeqCst) {
            return true;
        }
        link.answer("declare", self.topology.declare(&link.channel))
            .await
            .is_ok()
    }

    async fn make(&self) -> Result<Link, lapin::Error> {
        let name = match self.role {
            Role::Publisher => "agentmine publisher",
            Role::Taker(_) => "agentmine taker",
        };
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let connection = super::socket::connect(self.uri.clone(), properties).await?;
        let channel = connection.create_channel().await?;
        self.topology.declare(&channel).await?;
        let side = connection.create_channel().await?;
        let mut link = Link {
            connection,
            channel,
            side,
            turn: Mutex::new(()),
            broken: Arc::default(),
            wanting: AtomicBool::new(false),
            listener: None,
        };
        match &self.role {
            Role::Publisher => {
                let options = ConfirmSelectOptions::default();
                link.channel.confirm_select(options).await?;
            }
            Role::Taker(bell) => link.listen(&self.topology.bell(), bell.clone()).await?,
        }
        Ok(link)
    }
}

/// A connection and its channels, all well or to be replaced together.
pub(super) struct Link {
    connection: Connection,
    /// Publishes with confirms, or gets.
    pub(super) channel: Channel,
    /// Rings the bell, or listens to it.
    side: Channel,
    turn: Mutex<()>,
    broken: Arc<AtomicBool>,
    wanting: AtomicBool,
    listener: Option<tokio::task::AbortHandle>,
}

impl Link {
    /// Held around one exchange on the channel.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Waits for the broker's answer. A link that does not answer, or answers with a fault, is broken:
    /// after either, what comes next on its channel cannot be told apart.
    pub(super) async fn answer<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<T, QueueError> {
        let why = match tokio::time::timeout(ANSWER_LIMIT, call).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => explain(&error),
            Err(_) => "no answer in time".into(),
        };
        self.fail();
        Err(QueueError::Unavailable(format!("{what}: {why}")))
    }

    /// How many messages wait in a queue.
    pub(super) async fn count(&self, queue: &str) -> Result<u32, QueueError> {
        let _one_at_a_time = self.turn().await;
        let options = QueueDeclareOptions::durable().passive();
        let declared = self
            .channel
            .queue_declare(queue.into(), options, FieldTable::default());
        Ok(self.answer("count", declared).await?.message_count())
    }

    /// Best effort.
    pub(super) async fn ring(&self, bell: &str) {
        let rung = self.side.basic_publish(
            bell.into(),
            "".into(),
            BasicPublishOptions::default(),
            b"",
            BasicProperties::default(),
        );
        let _ = tokio::time::timeout(ANSWER_LIMIT, rung).await;
    }

    pub(super) fn fail(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }

    /// A queue was missing: declare all of it before the next use.
    pub(super) fn declare_again(&self) {
        self.wanting.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    fn is_whole(&self) -> bool {
        !self.broken.load(Ordering::SeqCst)
            && self.connection.status().connected()
            && self.channel.status().connected()
            && self.side.status().connected()
    }

    async fn listen(&mut self, exchange: &str, bell: Arc<Notify>) -> Result<(), lapin::Error> {
        let mut arguments = FieldTable::default();
        arguments.insert("x-max-length".into(), 1_i64.into());
        let queue = self
            .side
            .queue_declare(
                "".into(),
                QueueDeclareOptions::exclusive().auto_delete(),
                arguments,
            )
            .await?;
        let name = queue.name().clone();
        let options = QueueBindOptions::default();
        self.side
            .queue_bind(
                name.clone(),
                exchange.into(),
                "".into(),
                options,
                FieldTable::default(),
            )
            .await?;
        let options = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        let mut rings = self
            .side
            .basic_consume(name, "".into(), options, FieldTable::default())
            .await?;
        let broken = self.broken.clone();
        let listener = tokio::spawn(async move {
            while let Some(Ok(_)) = rings.next().await {
                bell.notify_one();
            }
            broken.store(true, Ordering::SeqCst);
            bell.notify_one();
        });
        self.listener = Some(listener.abort_handle());
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

/// Closes a broken link behind the caller's back: the broker then requeues what it still counts as held.
fn retire(link: Option<Arc<Link>>) {
    if let Some(link) = link {
        link.fail();
        tokio::spawn(async move {
            let closing = link.connection.close(200, "replaced".into());
            let _ = tokio::time::timeout(ANSWER_LIMIT, closing).await;
        });
    }
}

/// The error in words that tell what to do, where we know.
fn explain(error: &lapin::Error) -> String {
    if let ErrorKind::ProtocolError(told) = error.kind()
        && matches!(
            told.kind(),
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED)
        )
    {
        return format!(
            "a queue or exchange stands on the broker with other settings than ours: {}; \
             hint: delete it or change queue.prefix",
            told.get_message()
        );
    }
    error.to_string()
}
