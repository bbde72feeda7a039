//! Between the transport and the protocol library: what comes from a server is taken in here, and
//! only answers to our requests go on.
//!
//! So a storm of notifications costs no memory and no task each; requests of a server are answered by
//! the [`Desk`](super::desk::Desk), at most [`MAX_OPEN`] at a time; an answer that nobody waits for (a
//! wrong id, a second one, one that comes after the call was given up) is dropped; and a probe for the
//! newer era that a server passes over in silence is answered for it after a moment.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult, CustomResult, ErrorCode,
    GetExtensions, GetMeta, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerNotification,
    ServerResult,
};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep};

use super::CallProgress;
use super::hub::Hub;
use super::start::only_older;
use crate::output::weight;

/// Requests of a server that are being answered, the writing of the answers included.
const MAX_OPEN: usize = 1_000;
/// Bytes of the id of a server's request.
const MAX_ID: usize = 256;
/// Bytes that a question of a server takes in memory: several are open at a time, for long.
const MAX_ASKED: usize = 4 * 1024 * 1024;

/// What a request carries, for the filter only: where its progress goes.
#[derive(Clone)]
pub(crate) struct ProgressTo(pub(crate) mpsc::Sender<CallProgress>);

pub(crate) struct Filter<T> {
    inner: T,
    hub: Arc<Hub>,
    /// Requests of ours without an answer.
    waiting: HashSet<RequestId>,
    answering: JoinSet<Option<(RequestId, ClientJsonRpcMessage)>>,
    asked: HashMap<RequestId, AbortHandle>,
    probe: Option<Probe>,
}

/// The `server/discover` that is on its way.
struct Probe {
    limit: Duration,
    id: Option<RequestId>,
    until: Pin<Box<Sleep>>,
}

impl<T: Transport<RoleClient>> Filter<T> {
    /// With `probe`, a `server/discover` without an answer is answered with an error after it.
    pub(crate) fn new(inner: T, hub: Arc<Hub>, probe: Option<Duration>) -> Self {
        Self {
            inner,
            hub,
            waiting: HashSet::new(),
            answering: JoinSet::new(),
            asked: HashMap::new(),
            probe: probe.map(|limit| Probe {
                limit,
                id: None,
                until: Box::pin(tokio::time::sleep(limit)),
            }),
        }
    }

    /// What goes on to the library.
    fn take(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        match message {
            JsonRpcMessage::Response(mut response) => {
                let (id, probed) = self.expected(&response.id)?;
                if let ServerResult::DiscoverResult(found) = &response.result
                    && probed
                    && only_older(&strings(&json!(found.supported_versions)))
                {
                    return Some(JsonRpcMessage::error(older(), Some(id)));
                }
                response.id = id;
                Some(JsonRpcMessage::Response(response))
            }
            JsonRpcMessage::Error(mut error) => {
                if let Some(id) = error.id {
                    let (id, probed) = self.expected(&id)?;
                    let data = error.error.data.as_ref();
                    let speaks = data.and_then(|data| data.get("supported"));
                    if probed && speaks.is_some_and(|it| only_older(&strings(it))) {
                        return Some(JsonRpcMessage::error(older(), Some(id)));
                    }
                    error.id = Some(id);
                }
                Some(JsonRpcMessage::Error(error))
            }
            JsonRpcMessage::Request(request) => {
                if matches!(&request.id, RequestId::String(id) if id.len() > MAX_ID) {
                    // It would be held, and sent back, up to a thousand times.
                    let reason = format!("a request of it has an id of more than {MAX_ID} bytes");
                    self.hub.ending.end(reason);
                    return None;
                }
                let asked = serde_json::to_value(&request.request).unwrap_or_default();
                self.answer(request.id, asked);
                None
            }
            JsonRpcMessage::Notification(notification) => match notification.notification {
                ServerNotification::CancelledNotification(cancelled) => {
                    self.cancelled(cancelled.params.request_id?)
                }
                notification => {
                    self.hub.notified(notification);
                    None
                }
            },
        }
    }

    /// The id as we gave it, if we wait for it, and whether it is that of the probe. Servers are
    /// known to make a string of it.
    fn expected(&mut self, id: &RequestId) -> Option<(RequestId, bool)> {
        let id = match id {
            RequestId::String(text) if !self.waiting.contains(id) => {
                RequestId::Number(text.parse().ok()?)
            }
            id => id.clone(),
        };
        let probe = self
            .probe
            .as_mut()
            .filter(|probe| probe.id.as_ref() == Some(&id));
        let probed = probe.map(|probe| probe.id = None).is_some();
        Some((self.waiting.take(&id)?, probed))
    }

    fn answer(&mut self, id: RequestId, asked: Value) {
        if self.answering.len() >= MAX_OPEN {
            let reason = format!("it made more than {MAX_OPEN} requests at the same time");
            return self.hub.ending.end(reason);
        }
        // One of the same id goes on unheard; its answer is the second of that id.
        let hub = self.hub.clone();
        let (asked, large) = match weight(&asked) > MAX_ASKED {
            true => (Value::Null, true),
            false => (asked, false),
        };
        let task = self.answering.spawn({
            let id = id.clone();
            async move {
                let method = asked
                    .get("method")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let params = asked.get("params").cloned().unwrap_or_default();
                let answer = if large {
                    let words = format!("a request of more than {MAX_ASKED} bytes is not taken");
                    Err(ErrorData::new(ErrorCode::INVALID_REQUEST, words, None))
                } else if hub.stateless() && method != "ping" {
                    let words = "this revision has no requests of a server".to_owned();
                    Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, words, None))
                } else {
                    hub.desk.answer(method, params).await
                };
                let answer = match answer {
                    Ok(result) => {
                        let result = ClientResult::CustomResult(CustomResult::new(result));
                        JsonRpcMessage::response(result, id.clone())
                    }
                    Err(error) => JsonRpcMessage::error(error, Some(id.clone())),
                };
                Some((id, answer))
            }
        });
        self.asked.insert(id, task);
    }

    /// A server gives up a request of its own; or, in the stateless era, ends a subscription of ours.
    fn cancelled(&mut self, id: RequestId) -> Option<ServerJsonRpcMessage> {
        if !self.hub.stateless() {
            if let Some(task) = self.asked.remove(&id) {
                task.abort();
            }
            return None;
        }
        let (id, _) = self.expected(&id)?;
        let error = ErrorData::new(ErrorCode(-32800), "the server has cancelled it", None);
        Some(JsonRpcMessage::error(error, Some(id)))
    }

    /// Keeps account of what we send.
    fn sending(&mut self, message: &mut ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.waiting.insert(request.id.clone());
                if let Some(ProgressTo(call)) = request.request.extensions().get().cloned()
                    && let Some(token) = request.request.get_meta().get_progress_token()
                {
                    self.hub.expect_progress(token, call);
                }
                if let (ClientRequest::DiscoverRequest(_), Some(probe)) =
                    (&request.request, &mut self.probe)
                {
                    probe.id = Some(request.id.clone());
                    let until = Instant::now() + probe.limit;
                    probe.until.as_mut().reset(until);
                }
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.waiting.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    /// An answer is ready to be sent, or was.
    fn answered(&mut self, answer: Option<(RequestId, ClientJsonRpcMessage)>) {
        if let Some((id, answer)) = answer {
            self.asked.remove(&id);
            let sent = self.inner.send(answer);
            self.answering.spawn(async move {
                // Where it can't be written the connection ends for that.
                let _ = sent.await;
                None
            });
        }
    }

    /// The server has passed over our probe.
    fn silent(&mut self) -> Option<ServerJsonRpcMessage> {
        let probe = self.probe.as_mut()?;
        let id = probe.id.take()?;
        let words = format!("no answer within {} s", probe.limit.as_secs_f64());
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, words, None);
        let id = self.waiting.take(&id)?;
        Some(JsonRpcMessage::error(error, Some(id)))
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Filter<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.sending(&mut message);
        self.inner.send(message)
    }

    // Each branch loses nothing when it is dropped, so neither does this.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if self.hub.ending.reason().is_some() {
                return None;
            }
            let probing = self.probe.as_ref().is_some_and(|probe| probe.id.is_some());
            let ended = self.hub.ending.token().clone();
            let next = tokio::select! {
                biased;
                () = ended.cancelled() => None,
                Some(answer) = self.answering.join_next() => {
                    self.answered(answer.unwrap_or_default());
                    continue;
                }
                message = self.inner.receive() => match message {
                    Some(message) => match self.take(message) {
                        Some(message) => Some(message),
                        None => continue,
                    },
                    None => {
                        self.hub.ending.end("it has ended");
                        None
                    }
                },
                () = until(&mut self.probe), if probing => match self.silent() {
                    Some(message) => Some(message),
                    None => continue,
                },
            };
            return next;
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.hub.ending.end("it was shut down");
        self.answering.abort_all();
        self.inner.close().await
    }
}

/// What makes the library greet a server the older way.
fn older() -> ErrorData {
    let words = "it speaks older revisions only";
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, words, None)
}

fn strings(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

async fn until(probe: &mut Option<Probe>) {
    match probe {
        Some(probe) => probe.until.as_mut().await,
        None => std::future::pending().await,
    }
}
