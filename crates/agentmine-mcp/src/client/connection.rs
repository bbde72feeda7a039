//! The task that owns a connection's transport and speaks JSON-RPC over it.
//!
//! - A connection ends once. The first reason is kept, and all open requests fail with it.
//! - The cost of a hostile server is limited: changes are counted, unwanted progress and logs are dropped,
//!   at most [`MAX_OPEN`] of its requests are answered at a time, and a response that matches no open
//!   request (wrong id, sent twice, too late) is dropped.
//! - Our messages are written in the order in which they were given.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use rmcp::ErrorData;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientRequest,
    ClientResult, CustomResult, ErrorCode, InitializedNotification, JsonRpcMessage, NumberOrString,
    ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification, ServerResult,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ending::Ending;
use super::handler::RequestHandler;
use super::lines::NOT_UTF8;
use super::options::CallProgress;
use crate::Era;
use crate::lock::lock;
use crate::text::{shortened, weight};

/// Requests of a server whose answers are not yet written.
const MAX_OPEN: usize = 1_000;
/// Bytes of the id of a server's request.
const MAX_ID: usize = 256;
/// Bytes in memory of a server's request: several may be open for a long time.
const MAX_REQUEST: usize = 4 * 1024 * 1024;
/// Log messages that are kept.
const MAX_LOGS: usize = 100;
/// In the data of an error that rmcp creates when a response over HTTP is incomplete.
const NEVER_CAME: &str = "io.modelcontextprotocol/transportClosed";

/// What the task, the handle and the client share.
pub(super) struct Shared {
    /// The server's configured name.
    pub(super) server: String,
    pub(super) ending: Ending,
    pub(super) handler: RequestHandler,
    /// Counts the notifications that a list has changed.
    pub(super) changes: watch::Sender<u64>,
    /// `None`: the configuration does not ask for logs.
    pub(super) logs: Option<Mutex<VecDeque<String>>>,
}

/// A server's response: its result, or its refusal.
pub(super) type Response = Result<Value, ErrorData>;

/// A command of the handle to the task.
pub(super) enum Command {
    Request(i64, Box<ClientRequest>, Waiting),
    /// Nobody waits for the response any more.
    Abandon(i64, Cancel),
    /// Send `notifications/initialized`. If that fails, the connection ends.
    Initialized,
    /// The handshake is done.
    Settle(Era),
}

/// Whether the server is notified that a request is abandoned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancel {
    Yes,
    No,
}

/// Where a response goes. An error is the reason why there is none.
pub(super) struct Waiting {
    pub(super) response: oneshot::Sender<Result<Response, String>>,
    /// When the server last reported progress.
    pub(super) alive: watch::Sender<Instant>,
    pub(super) progress: Option<mpsc::Sender<CallProgress>>,
}

/// The task that owns the transport.
pub(super) struct Connection<T> {
    transport: T,
    shared: Arc<Shared>,
    /// `None` until the handshake is done.
    era: Option<Era>,
    /// Our requests without a response.
    waiting: HashMap<i64, Waiting>,
    /// Messages that are being written; an error is the reason why one could not be.
    sends: FuturesUnordered<BoxFuture<'static, (Sent, Result<(), String>)>>,
    /// The server's requests that are being answered.
    answers: JoinSet<(RequestId, ClientJsonRpcMessage)>,
    answering: HashMap<RequestId, AbortHandle>,
    /// Answers that are being written.
    unsent: usize,
    closed: CancellationToken,
}

/// A message of this client.
enum Sent {
    Request(i64),
    Initialized,
    Cancellation,
    Answer,
}

impl<T: Transport<RoleClient> + 'static> Connection<T> {
    /// `closed` is cancelled when the transport is closed.
    pub(super) fn new(transport: T, shared: Arc<Shared>, closed: CancellationToken) -> Self {
        Self {
            transport,
            shared,
            era: None,
            waiting: HashMap::new(),
            sends: FuturesUnordered::new(),
            answers: JoinSet::new(),
            answering: HashMap::new(),
            unsent: 0,
            closed,
        }
    }

    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let ending = self.shared.ending.clone();
        loop {
            // Each branch loses nothing when it is dropped.
            tokio::select! {
                biased;
                _ = ending.wait() => break,
                Some((sent, result)) = self.sends.next() => self.sent(sent, result),
                Some(answer) = self.answers.join_next() => {
                    // A handler that panicked leaves its request without an answer.
                    if let Ok((id, answer)) = answer {
                        self.answering.remove(&id);
                        self.unsent += 1;
                        self.send(answer, Sent::Answer);
                    }
                }
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => break,
                },
                message = self.transport.receive() => match message {
                    Some(message) => self.receive(message),
                    None => {
                        // A failure to send says more than the end.
                        while let Some(Some((sent, result))) = self.sends.next().now_or_never() {
                            self.sent(sent, result);
                        }
                        self.shared.ending.end("it has ended");
                    }
                },
            }
        }
        self.waiting.clear();
        self.answers.abort_all();
        self.sends.clear();
        let _ = self.transport.close().await;
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Request(id, request, waiting) => {
                self.waiting.insert(id, waiting);
                let message = JsonRpcMessage::request(*request, RequestId::Number(id));
                self.send(message, Sent::Request(id));
            }
            Command::Initialized => {
                let initialized = InitializedNotification::default();
                let message = JsonRpcMessage::notification(initialized.into());
                self.send(message, Sent::Initialized);
            }
            Command::Abandon(id, cancel) => {
                if self.waiting.remove(&id).is_some() && cancel == Cancel::Yes {
                    let reason = Some("given up by the caller".to_owned());
                    let params =
                        CancelledNotificationParam::new(Some(RequestId::Number(id)), reason);
                    let message =
                        JsonRpcMessage::notification(CancelledNotification::new(params).into());
                    self.send(message, Sent::Cancellation);
                }
            }
            Command::Settle(era) => self.era = Some(era),
        }
    }

    fn send(&mut self, message: ClientJsonRpcMessage, sent: Sent) {
        let sending = self.transport.send(message);
        self.sends.push(Box::pin(async move {
            let result = sending.await;
            (sent, result.map_err(|error| shortened(&error.to_string())))
        }));
    }

    fn sent(&mut self, sent: Sent, result: Result<(), String>) {
        match (sent, result) {
            (Sent::Request(id), Err(error)) => {
                if let Some(waiting) = self.waiting.remove(&id) {
                    let reason = self.shared.ending.reason().map(str::to_owned);
                    let _ = waiting.response.send(Err(reason.unwrap_or(error)));
                }
            }
            (Sent::Initialized, Err(error)) => self.shared.ending.end(error),
            (Sent::Answer, _) => self.unsent -= 1,
            (Sent::Request(_) | Sent::Initialized, Ok(())) | (Sent::Cancellation, _) => {}
        }
    }

    fn receive(&mut self, message: ServerJsonRpcMessage) {
        match message {
            JsonRpcMessage::Response(response) => {
                let result = match response.result {
                    // [`lines`](super::lines) reads results so.
                    ServerResult::CustomResult(CustomResult(result)) => result,
                    typed => serde_json::to_value(typed).unwrap_or_default(),
                };
                self.respond(&response.id, Ok(result));
            }
            JsonRpcMessage::Error(error) => match (error.id, self.era) {
                (Some(id), _) => self.respond(&id, Err(error.error)),
                // During the handshake at most one request is open, so the error is for that one.
                (None, None) => {
                    if let Some(id) = self.waiting.keys().next().copied() {
                        self.respond(&RequestId::Number(id), Err(error.error));
                    }
                }
                (None, Some(_)) => {}
            },
            JsonRpcMessage::Request(request) => {
                if matches!(&request.id, RequestId::String(id) if id.len() > MAX_ID) {
                    // It would be kept, and sent back, up to a thousand times.
                    let reason = format!("a request of it has an id of more than {MAX_ID} bytes");
                    return self.shared.ending.end(reason);
                }
                let asked = serde_json::to_value(&request.request).unwrap_or_default();
                self.answer(request.id, asked);
            }
            JsonRpcMessage::Notification(message) => self.notified(message.notification),
        }
    }

    fn respond(&mut self, id: &RequestId, response: Response) {
        let Some(waiting) = number(id).and_then(|id| self.waiting.remove(&id)) else {
            return;
        };
        let marked = |mark: &str| {
            let data = response
                .as_ref()
                .err()
                .and_then(|error| error.data.as_ref());
            data.is_some_and(|data| data.get(mark).is_some())
        };
        let reply = match &response {
            Err(_) if marked(NEVER_CAME) => {
                Err("the response ended before it was complete".to_owned())
            }
            Err(error) if marked(NOT_UTF8) => Err(shortened(&error.message)),
            _ => Ok(response),
        };
        let _ = waiting.response.send(reply);
    }

    /// Starts to answer a request of the server.
    fn answer(&mut self, id: RequestId, asked: Value) {
        if self.answers.len() + self.unsent >= MAX_OPEN {
            let reason = format!("it made more than {MAX_OPEN} requests at the same time");
            return self.shared.ending.end(reason);
        }
        let refused = if weight(&asked) > MAX_REQUEST {
            let words = format!("a request of more than {MAX_REQUEST} bytes is not accepted");
            Some(ErrorData::invalid_request(words, None))
        } else if self.era == Some(Era::Stateless) && asked["method"] != "ping" {
            let words = "servers send no requests in this revision of the protocol";
            Some(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, words, None))
        } else {
            None
        };
        let (shared, answered) = (self.shared.clone(), id.clone());
        let task = self.answers.spawn(async move {
            let answer = match refused {
                Some(error) => Err(error),
                None => shared.handler.answer_request(&asked).await,
            };
            let message = match answer {
                Ok(result) => {
                    let result = ClientResult::CustomResult(CustomResult::new(result));
                    JsonRpcMessage::response(result, answered.clone())
                }
                Err(error) => JsonRpcMessage::error(error, Some(answered.clone())),
            };
            (answered, message)
        });
        // An earlier request of the same id is answered too, but can no longer be cancelled.
        self.answering.insert(id, task);
    }

    fn notified(&mut self, notification: ServerNotification) {
        match notification {
            ServerNotification::CancelledNotification(cancelled) => {
                if let Some(id) = cancelled.params.request_id {
                    self.cancelled(&id);
                }
            }
            ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_) => self.shared.changed(),
            ServerNotification::ProgressNotification(progress) => {
                let progress = progress.params;
                let ProgressToken(token) = &progress.progress_token;
                if let Some(waiting) = number(token).and_then(|id| self.waiting.get(&id)) {
                    waiting.alive.send_replace(Instant::now());
                    let _ = waiting.progress.as_ref().map(|sender| {
                        sender.try_send(CallProgress {
                            progress: progress.progress,
                            total: progress.total,
                            message: progress.message.as_deref().map(shortened),
                        })
                    });
                }
            }
            ServerNotification::LoggingMessageNotification(message) => {
                let message = serde_json::to_value(&message.params).unwrap_or_default();
                self.shared.log(&message);
            }
            // Resources are not subscribed to, and tasks are not made.
            _ => {}
        }
    }

    /// A server cancels its own request, or, in the stateless era, ends a subscription of this client.
    fn cancelled(&mut self, id: &RequestId) {
        if self.era == Some(Era::Stateless) {
            let error = ErrorData::new(ErrorCode(-32800), "the server has cancelled it", None);
            self.respond(id, Err(error));
        } else if let Some(task) = self.answering.remove(id) {
            task.abort();
        }
    }
}

impl<T> Drop for Connection<T> {
    /// Also where a bug of this client ends the task.
    fn drop(&mut self) {
        self.shared.ending.end("it has ended");
        self.closed.cancel();
    }
}

/// The number of an id of this client. Some servers return it as a string.
fn number(id: &NumberOrString) -> Option<i64> {
    match id {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}

impl Shared {
    pub(super) fn changed(&self) {
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    fn log(&self, message: &Value) {
        let Some(logs) = &self.logs else {
            return;
        };
        let level = message["level"].as_str().unwrap_or("info");
        let text = match &message["data"] {
            Value::String(text) => shortened(text),
            Value::Null => String::new(),
            data => shortened(&data.to_string()),
        };
        let line = match message["logger"].as_str() {
            Some(logger) => format!("{level}: {}: {text}", shortened(logger)),
            None => format!("{level}: {text}"),
        };
        let mut logs = lock(logs);
        if logs.len() == MAX_LOGS {
            logs.pop_front();
        }
        logs.push_back(line);
    }
}
