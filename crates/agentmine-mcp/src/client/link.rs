//! The handle of a connection: sends requests and hands out their responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::CallProgress;
use super::connection::{Cancel, Command, Connection, Response, Shared, Waiting};
use crate::Era;

/// Progress messages that wait for their call; further ones are dropped.
const MAX_PROGRESS: usize = 16;

/// The handle of a connection. The connection ends when it is dropped.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
    next_id: AtomicI64,
    closed: CancellationToken,
}

impl Link {
    pub(super) fn open<T>(transport: T, shared: Arc<Shared>) -> Self
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
        }
    }

    pub(super) fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request. Where it asks for progress, its token must be its id.
    pub(super) fn request(&self, id: i64, method: &str, params: Value) -> Result<Pending, String> {
        let request = serde_json::from_value(json!({"method": method, "params": params}));
        let request = request.map_err(|error| format!("{method} cannot be sent: {error}"))?;
        let (answer, response) = oneshot::channel();
        let (told, progress) = mpsc::channel(MAX_PROGRESS);
        let waiting = Waiting {
            response: answer,
            progress: told,
        };
        let _ = self
            .commands
            .send(Command::Request(id, Box::new(request), waiting));
        Ok(Pending {
            id,
            shared: self.shared.clone(),
            commands: self.commands.clone(),
            response,
            progress,
            cancel: Cancel::Yes,
        })
    }

    /// Sends `notifications/initialized`. Where it cannot be sent, the connection ends.
    pub(super) fn initialized(&self) {
        let _ = self.commands.send(Command::Initialized);
    }

    /// What was agreed on, for the requests that follow.
    pub(super) fn settle(&self, era: Era) {
        let _ = self.commands.send(Command::Settle(era));
    }

    /// Resolves when the transport is closed.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// A request without a response. Dropped as such, it is cancelled on the server: by
/// `notifications/cancelled` over a stream, and over HTTP in the stateless era by closing the response.
pub(super) struct Pending {
    id: i64,
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
    /// Closed without a value where the connection ends first.
    response: oneshot::Receiver<Result<Response, String>>,
    progress: mpsc::Receiver<CallProgress>,
    cancel: Cancel,
}

/// What comes next of a request.
pub(super) enum Next {
    Progress(CallProgress),
    /// The response, or why there is none.
    Response(Box<Result<Response, String>>),
}

impl Pending {
    /// What comes next; progress that came before the response is returned before it. May be dropped and
    /// called again, until it has returned the response.
    pub(super) async fn next(&mut self) -> Next {
        let response = tokio::select! {
            biased;
            Some(step) = self.progress.recv() => return Next::Progress(step),
            response = &mut self.response => response,
        };
        let response = response.unwrap_or_else(|_| {
            let reason = self.shared.ending.reason();
            Err(reason.unwrap_or("it has ended").to_owned())
        });
        Next::Response(Box::new(response))
    }

    /// The response, or why there is none.
    pub(super) async fn response(&mut self) -> Result<Response, String> {
        loop {
            if let Next::Response(response) = self.next().await {
                return *response;
            }
        }
    }

    /// Lets go of it without a word to the server.
    pub(super) fn forget(mut self) {
        self.cancel = Cancel::No;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Abandon(self.id, self.cancel));
    }
}
