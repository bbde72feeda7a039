//! Limits the number of open requests between a client and a server over stdio.
//!
//! The protocol library accepts every request and keeps every response that the client does not read, so a
//! client that writes and never reads would fill the memory. Behind a [`Gate`] at most [`MAX_OPEN`] requests are
//! open, from their arrival until their response is written.
//!
//! A request waits while another one with the same id is open, since the library identifies requests by id.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "servers")]
use rmcp::ErrorData;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::Notify;

/// Maximum number of open requests.
const MAX_OPEN: usize = 64;

/// What happens to a request when too many are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// It waits, and so do all messages after it: for servers whose responses do not wait for a message.
    Wait,
    /// It gets an error, so that the messages that open calls wait for (a cancellation, the answer to a
    /// question) still arrive.
    #[cfg(feature = "servers")]
    Refuse,
}

/// A transport with a limit on open requests.
pub(crate) struct Gate<T> {
    inner: T,
    full: Full,
    open: Arc<Open>,
    /// A request that has arrived and waits.
    held: Option<RxJsonRpcMessage<RoleServer>>,
    /// A refusal that is being sent: nothing more is read until it is written.
    refusing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

#[derive(Default)]
struct Open {
    ids: Mutex<HashSet<RequestId>>,
    closed: Notify,
}

impl Open {
    fn close(&self, id: &RequestId) {
        self.ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
        self.closed.notify_one();
    }

    fn admit(&self, id: &RequestId, full: Full) -> Admission {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.contains(id) {
            return Admission::Wait;
        }
        if ids.len() < MAX_OPEN {
            ids.insert(id.clone());
            return Admission::Pass;
        }
        match full {
            Full::Wait => Admission::Wait,
            #[cfg(feature = "servers")]
            Full::Refuse => Admission::Refuse,
        }
    }
}

enum Admission {
    Pass,
    Wait,
    #[cfg(feature = "servers")]
    Refuse,
}

impl<T> Gate<T> {
    pub(crate) fn new(inner: T, full: Full) -> Self {
        Self {
            inner,
            full,
            open: Arc::default(),
            held: None,
            refusing: None,
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Gate<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let open = Arc::clone(&self.open);
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            if let Some(id) = answered {
                open.close(&id);
            }
            sent
        }
    }

    /// If the future is dropped, nothing that was read is lost.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            let message = match self.held.take() {
                Some(message) => message,
                None => self.inner.receive().await?,
            };
            let id = match &message {
                JsonRpcMessage::Request(request) => request.id.clone(),
                JsonRpcMessage::Notification(notification) => {
                    // The library writes no response to a cancelled request.
                    if let ClientNotification::CancelledNotification(cancelled) =
                        &notification.notification
                        && let Some(id) = &cancelled.params.request_id
                    {
                        self.open.close(id);
                    }
                    return Some(message);
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return Some(message),
            };
            let admission = self.open.admit(&id, self.full);
            match admission {
                Admission::Pass => return Some(message),
                Admission::Wait => {
                    self.held = Some(message);
                    self.open.closed.notified().await;
                }
                #[cfg(feature = "servers")]
                Admission::Refuse => {
                    let error = ErrorData::internal_error(
                        format!("{MAX_OPEN} calls are open: wait for a response, then call again"),
                        None,
                    );
                    let sending = self.inner.send(JsonRpcMessage::error(error, Some(id)));
                    self.refusing = Some(Box::pin(async move {
                        // If writing fails, reading ends too.
                        let _ = sending.await;
                    }));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
