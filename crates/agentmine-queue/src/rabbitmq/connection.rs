//! One supervised connection with its channels.
//!
//! Guaranteed: a connection that is lost, does not answer, or has a closed channel is replaced by a new
//! one, with a pause that grows while that fails; until then every call fails at once. lapin's own
//! recovery is off: it reopens a lost connection, but not a channel that the broker closed (consumer
//! timeout, a failed precondition).

use std::net::Ipv6Addr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentmine_runtime::config::Secret;
use agentmine_runtime::service_url::has_host_in_path;
use futures::StreamExt;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ErrorKind};
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::Instant;

use super::topology::Topology;
use crate::error::QueueError;

/// How long the broker may take for one answer.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long connecting may take: an outage is reported within five seconds.
const CONNECT_LIMIT: Duration = Duration::from_millis(4500);

const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a connection is used for.
pub(super) enum Role {
    Publisher,
    /// Notifies this when a notification arrives, and when the connection is lost.
    Taker(Arc<Notify>),
}

/// An outage of the broker, which is reported once, whichever connection sees it first.
#[derive(Debug, Clone, Default)]
pub(super) struct Outage(Arc<AtomicBool>);

impl Outage {
    fn is_seen(&self, why: &str) {
        match self.0.swap(true, Ordering::SeqCst) {
            false => tracing::warn!(
                error = why,
                "the queue is unavailable; it is tried again, and tasks are found by polling meanwhile"
            ),
            true => tracing::debug!(error = why, "the queue is still unavailable"),
        }
    }

    fn is_over(&self) {
        if self.0.swap(false, Ordering::SeqCst) {
            tracing::info!("connected to the broker again");
        }
    }
}

/// A connection that is replaced when it is lost.
pub(super) struct ManagedConnection {
    url: Secret,
    /// The URL as it was at first.
    uri: AMQPUri,
    topology: Arc<Topology>,
    role: Role,
    outage: Outage,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Arc<OpenConnection>>,
    /// Since the last success: the pause before the next attempt, its end, and the last error.
    failing: Option<(Duration, Instant, String)>,
    closed: bool,
}

impl ManagedConnection {
    pub(super) fn new(
        url: &Secret,
        topology: Arc<Topology>,
        role: Role,
        outage: Outage,
    ) -> Result<Self, QueueError> {
        Ok(Self {
            uri: parse(url)?,
            url: url.clone(),
            topology,
            role,
            outage,
            state: Mutex::default(),
        })
    }

    /// Where the next connection leads, and with which password.
    fn uri(&self) -> AMQPUri {
        parse(&self.url.current()).unwrap_or_else(|error| {
            tracing::warn!(%error, "the former queue.url stays in use");
            self.uri.clone()
        })
    }

    /// `host:port`, without credentials.
    fn address(&self) -> String {
        let authority = self.uri().authority;
        match authority.host.contains(':') {
            true => format!("[{}]:{}", authority.host, authority.port),
            false => format!("{}:{}", authority.host, authority.port),
        }
    }

    /// The open connection; a new one if the former was lost.
    pub(super) async fn get(&self) -> Result<Arc<OpenConnection>, QueueError> {
        let mut state = self.state.lock().await;
        if state.closed {
            return Err(QueueError::Unavailable("the queue is closed".into()));
        }
        if let Some(open) = &state.open {
            match self.is_usable(open).await {
                true => return Ok(open.clone()),
                false => retire(state.open.take()),
            }
        }
        if let Some((_, until, why)) = &state.failing
            && Instant::now() < *until
        {
            return Err(QueueError::Unavailable(why.clone()));
        }
        let opened = self.open().await;
        let opened = opened.map_err(|why| format!("the broker at {}: {why}", self.address()));
        match opened {
            Ok(open) => {
                state.failing = None;
                self.outage.is_over();
                metrics::counter!("agentmine_queue_connections_total").increment(1);
                Ok(state.open.insert(Arc::new(open)).clone())
            }
            Err(why) => {
                let pause = state
                    .failing
                    .as_ref()
                    .map_or(SHORTEST_PAUSE, |(pause, ..)| {
                        (*pause * 2).min(LONGEST_PAUSE)
                    });
                state.failing = Some((pause, Instant::now() + pause, why.clone()));
                self.outage.is_seen(&why);
                metrics::counter!("agentmine_queue_connection_failures_total").increment(1);
                Err(QueueError::Unavailable(why))
            }
        }
    }

    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.closed = true;
        if let Some(open) = state.open.take() {
            let _ = open.connection.close(200, "bye".into()).await;
        }
    }

    /// Declares the topology again first, if a queue was found to be missing.
    async fn is_usable(&self, open: &OpenConnection) -> bool {
        if !open.is_whole() {
            return false;
        }
        if !open.incomplete.swap(false, Ordering::SeqCst) {
            return true;
        }
        let declared = self.topology.declare(&open.channel).await;
        if declared.is_err() {
            open.fail();
        }
        declared.is_ok()
    }

    async fn open(&self) -> Result<OpenConnection, String> {
        let connecting = tokio::time::timeout(CONNECT_LIMIT, self.connect()).await;
        let connected = connecting.map_err(|_| "no answer while connecting".to_owned())?;
        let (connection, channel, side) = connected.map_err(|error| explain(&error))?;
        self.topology
            .declare(&channel)
            .await
            .map_err(|error| explain(&error))?;
        let mut open = OpenConnection {
            connection,
            channel,
            side,
            turn: Mutex::new(()),
            broken: Arc::default(),
            incomplete: AtomicBool::new(false),
            listener: None,
        };
        let prepare = self.prepare(&mut open);
        match tokio::time::timeout(ANSWER_LIMIT, prepare).await {
            Ok(prepared) => prepared.map_err(|error| explain(&error))?,
            Err(_) => return Err("no answer while connecting".into()),
        }
        Ok(open)
    }

    async fn connect(&self) -> Result<(Connection, Channel, Channel), lapin::Error> {
        let name = match self.role {
            Role::Publisher => "agentmine publisher",
            Role::Taker(_) => "agentmine taker",
        };
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let connection = super::socket::connect(self.uri(), properties).await?;
        let channel = connection.create_channel().await?;
        let side = connection.create_channel().await?;
        Ok((connection, channel, side))
    }

    /// Makes the channels ready for their role.
    async fn prepare(&self, open: &mut OpenConnection) -> Result<(), lapin::Error> {
        match &self.role {
            Role::Publisher => {
                let options = ConfirmSelectOptions::default();
                open.channel.confirm_select(options).await
            }
            Role::Taker(notify) => {
                let exchange = self.topology.notifications();
                open.listen(&exchange, notify.clone()).await
            }
        }
    }
}

/// Bytes of the largest frame. A connection keeps room for 64 frames, and messages are far smaller than one.
const FRAME: u32 = 32 << 10;

/// Shows nothing of the URL, which may hold a password.
const NO_URL: &str = "queue.url is not a valid amqp:// or amqps:// URL. hint: write amqp://USER:PASSWORD@HOST:PORT/VHOST, and \
    percent-encode special characters in the password and the virtual host (@ is %40, / is %2F)";

fn parse(url: &Secret) -> Result<AMQPUri, QueueError> {
    if has_host_in_path(url.expose()) {
        return Err(QueueError::Invalid(NO_URL.into()));
    }
    let mut uri =
        AMQPUri::from_str(url.expose()).map_err(|_| QueueError::Invalid(NO_URL.into()))?;
    // The parser takes a slash at the end for a virtual host without a name, which no broker has; users mean the default one.
    if uri.vhost.is_empty() {
        uri.vhost = "/".into();
    }
    // For an IPv6 address it finds no host, and uses localhost.
    if let Some(address) = ipv6_host(url.expose()) {
        uri.authority.host = address.to_string();
    }
    uri.query.heartbeat.get_or_insert(10);
    uri.query.frame_max.get_or_insert(FRAME);
    uri.query.connection_timeout.get_or_insert(4000);
    Ok(uri)
}

/// The host of a URL, if it is an address of IPv6.
fn ipv6_host(url: &str) -> Option<Ipv6Addr> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?.strip_prefix('[')?;
    host.split(']').next()?.parse().ok()
}

/// A connection and its channels. They are replaced together.
pub(super) struct OpenConnection {
    connection: Connection,
    /// Publishes with confirms, or gets.
    pub(super) channel: Channel,
    /// Sends notifications, or receives them.
    side: Channel,
    turn: Mutex<()>,
    broken: Arc<AtomicBool>,
    incomplete: AtomicBool,
    listener: Option<tokio::task::AbortHandle>,
}

impl OpenConnection {
    /// Held around one exchange on the channel.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Waits for the broker's answer. A connection that does not answer, or answers with an error, is
    /// broken: a later answer on its channel could belong to either call.
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

    /// Sends a notification, best effort.
    pub(super) async fn notify(&self, exchange: &str) {
        let sent = self.side.basic_publish(
            exchange.into(),
            "".into(),
            BasicPublishOptions::default(),
            b"",
            BasicProperties::default(),
        );
        let _ = tokio::time::timeout(ANSWER_LIMIT, sent).await;
    }

    pub(super) fn fail(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }

    /// A queue was missing: everything is declared again before the next use.
    pub(super) fn declare_again(&self) {
        self.incomplete.store(true, Ordering::SeqCst);
    }

    /// Whether the broker accepts nothing on this connection, which publishes: it is short of memory or disk.
    pub(super) fn is_blocked(&self) -> bool {
        let is_blocked = self.connection.status().blocked();
        metrics::gauge!("agentmine_queue_blocked").set(f64::from(u8::from(is_blocked)));
        is_blocked
    }

    fn is_whole(&self) -> bool {
        !self.broken.load(Ordering::SeqCst)
            && self.connection.status().connected()
            && self.channel.status().connected()
            && self.side.status().connected()
    }

    async fn listen(&mut self, exchange: &str, notify: Arc<Notify>) -> Result<(), lapin::Error> {
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
        let mut notifications = self
            .side
            .basic_consume(name, "".into(), options, FieldTable::default())
            .await?;
        let broken = self.broken.clone();
        let listener = tokio::spawn(async move {
            while let Some(Ok(_)) = notifications.next().await {
                notify.notify_one();
            }
            broken.store(true, Ordering::SeqCst);
            notify.notify_one();
        });
        self.listener = Some(listener.abort_handle());
        Ok(())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

/// Closes a broken connection in the background: the broker then requeues what is unacknowledged on it.
fn retire(open: Option<Arc<OpenConnection>>) {
    if let Some(open) = open {
        open.fail();
        tokio::spawn(async move {
            let closing = open.connection.close(200, "replaced".into());
            let _ = tokio::time::timeout(ANSWER_LIMIT, closing).await;
        });
    }
}

/// The error in words, with a hint where there is one.
fn explain(error: &lapin::Error) -> String {
    let explained = match error.kind() {
        ErrorKind::ProtocolError(refusal) => explain_refusal(refusal),
        _ => None,
    };
    explained.unwrap_or_else(|| error.to_string())
}

/// What a broker refused. It uses one code for a login and for a right that the user lacks.
fn explain_refusal(refusal: &AMQPError) -> Option<String> {
    let message = refusal.get_message().as_str();
    match refusal.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => Some(format!(
            "a queue or exchange exists on the broker with other settings: {message}. hint: delete it, or \
             change queue.prefix"
        )),
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED)
            if message.contains("Login was refused") =>
        {
            Some(format!(
                "it refused the user or the password: {message}. hint: correct queue.url"
            ))
        }
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => Some(format!(
            "the user lacks a permission: {message}. hint: let it configure, write and read what begins with \
             queue.prefix or with amq.gen, and amq.default (rabbitmqctl set_permissions)"
        )),
        // The broker also uses it for limits.
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)
            if message.contains("vhost") && !message.contains("limit") =>
        {
            Some(format!(
                "{message}. hint: correct the virtual host, which is the path of queue.url, or create it and let the user \
                 use it (rabbitmqctl add_vhost, set_permissions)"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_means_the_host_and_the_virtual_host_that_a_person_means() {
        let place = |url: &str| {
            let uri = parse(&Secret::new(url)).unwrap();
            (uri.authority.host, uri.authority.port, uri.vhost)
        };
        let expected = |host: &str, port, vhost: &str| (host.to_owned(), port, vhost.to_owned());
        for (url, is) in [
            ("amqp://mq", expected("mq", 5672, "/")),
            ("amqp://u:p@mq:5673/", expected("mq", 5673, "/")),
            ("amqps://u:p@mq/fleet", expected("mq", 5671, "fleet")),
            (
                "amqp://u:p%5B@[fd00::7]:5673/%2f",
                expected("fd00::7", 5673, "/"),
            ),
            (
                "amqps://[fd00::7]?heartbeat=5",
                expected("fd00::7", 5671, "/"),
            ),
        ] {
            assert_eq!(place(url), is, "{url}");
        }
    }

    #[test]
    fn a_password_that_is_not_encoded_is_explained_and_not_shown() {
        for url in [
            "amqp://u:hun/ter2@mq",
            "amqps://u:hun#ter2@mq/fleet",
            "amqp://u:p@hun/ter2@mq/%2f",
        ] {
            let error = parse(&Secret::new(url)).unwrap_err().to_string();
            assert!(error.contains("hint: write amqp://"), "{error}");
            assert!(!error.contains("hun") && !error.contains("ter2"), "{error}");
        }
    }

    #[test]
    fn a_refusal_says_what_the_user_lacks() {
        let refusal = |kind, message: &str| {
            let error = AMQPError::new(kind, message.into());
            explain_refusal(&error).unwrap()
        };
        let access = || AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED);
        let login = refusal(
            access(),
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.",
        );
        assert!(login.contains("the user or the password"), "{login}");
        let right = refusal(
            access(),
            "ACCESS_REFUSED - configure access to queue 'agentmine.dead' in vhost '/' refused for user 'u'",
        );
        assert!(right.contains("lacks a permission"), "{right}");
        assert!(!right.contains("password"), "{right}");
        let missing = refusal(
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED),
            "NOT_ALLOWED - vhost fleet not found",
        );
        assert!(
            missing.contains("hint: correct the virtual host"),
            "{missing}"
        );
        let full = AMQPError::new(
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED),
            "NOT_ALLOWED - access to vhost '/' refused for user 'u': connection limit (2) is reached".into(),
        );
        assert_eq!(explain_refusal(&full), None);
    }
}
