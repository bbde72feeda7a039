//! The handle of a connection: sends requests and hands out their responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rmcp::model::ClientRequest;
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::{Cancel, Command, Connection, Response, Shared, Waiting};
use super::options::CallProgress;

/// Makes the form of a request that a transport takes, from its method and its parameters.
pub(super) type MakeRequest = fn(&str, Map<String, Value>) -> serde_json::Result<ClientRequest>;

/// The handle of a connection. The connection ends when it is dropped.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
    next_id: AtomicI64,
    closed: CancellationToken,
    make: MakeRequest,
}

impl Link {
    pub(super) fn open<T>(transport: T, make: MakeRequest, shared: Arc<Shared>) -> Self
    where
        T: Transport<RoleClient> + 'static,
    {
        let (commands, received) = mpsc::unbounded_channel();
        let closed = CancellationToken::new();
        let connection = Connection::new(transport, shared.clone(), closed.clone());
        tokio::spawn(connection.run(received));
        Self {
            shared,
            commands,
            next_id: AtomicI64::new(0),
            closed,
            make,
        }
    }

    pub(super) fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request. If it asks for progress, its token must be its id.
    pub(super) fn request(
        &self,
        id: i64,
        method: &str,
        params: Map<String, Value>,
        progress: Option<mpsc::Sender<CallProgress>>,
    ) -> Result<Pending, String> {
        let request = (self.make)(method, params);
        let request = request.map_err(|error| format!("{method} cannot be sent: {error}"))?;
        let (sender, response) = oneshot::channel();
        let (alive, last_sign) = watch::channel(Instant::now());
        let waiting = Waiting {
            response: sender,
            alive,
            progress,
        };
        self.command(Command::Request(id, Box::new(request), waiting));
        Ok(Pending {
            id,
            shared: self.shared.clone(),
            commands: self.commands.clone(),
            response,
            last_sign,
            cancel: Cancel::Yes,
        })
    }

    /// The task that gets the command runs until the connection ends.
    pub(super) fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Resolves when the transport is closed.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// A request without a response. When it is dropped, it is cancelled on the server: with
/// `notifications/cancelled` over a stream, and by closing the response over HTTP in the stateless era.
pub(super) struct Pending {
    id: i64,
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
    /// Closed without a value if the connection ends first.
    response: oneshot::Receiver<Result<Response, String>>,
    last_sign: watch::Receiver<Instant>,
    cancel: Cancel,
}

impl Pending {
    /// The response, or why there is none. May be dropped and called again until it has returned.
    pub(super) async fn response(&mut self) -> Result<Response, String> {
        let response = (&mut self.response).await;
        response.unwrap_or_else(|_| {
            let reason = self.shared.ending.reason();
            Err(reason.unwrap_or("it has ended").to_owned())
        })
    }

    /// When the server last reported progress, or when the request was made.
    pub(super) fn last_sign(&self) -> Instant {
        *self.last_sign.borrow()
    }

    /// The server is not notified when it is dropped, as the protocol demands of the handshake's requests.
    pub(super) fn never_cancelled(mut self) -> Self {
        self.cancel = Cancel::No;
        self
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Abandon(self.id, self.cancel));
    }
}
