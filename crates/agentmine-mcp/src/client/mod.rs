//! One connection to one server, in either era of the protocol.
//!
//! - A connection ends once, for its first cause, which every later error repeats: [`Client::ended`]. A
//!   crash is seen as the end of the stream.
//! - A request that is given up, by its time limit or by dropping the future, is cancelled on the server;
//!   a response that comes later is dropped.
//! - A server's requests are answered beside its calls, and never count against a call's time without
//!   progress, only against its time in all.
//! - Accepted: a notification of a change between two subscriptions of the stateless era is lost. A change
//!   is counted at each new subscription to make up for it.

mod connection;
mod ending;
mod handler;
mod handshake;
mod http;
mod lines;
mod link;
mod listen;
mod options;
mod request;
mod stdio;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_runtime::config::Secret;
use futures::future::BoxFuture;
use rmcp::model::ServerCapabilities;
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use url::Url;

use crate::output::{self, shortened};
use crate::{
    CallFault, Era, Greeting, McpError, McpLimits, Offer, Tool, ToolOutput, listing, lock,
};
use connection::Shared;
use ending::Ending;
use handler::RequestHandler;
use handshake::{Agreed, shake};
use link::Link;

pub(crate) use ending::is_servers_own;
pub use options::{CallOptions, CallProgress, ConnectOptions};
pub(crate) use request::{NoReply, Reply};

/// How long a transport may take to close.
const SHUTDOWN: Duration = Duration::from_secs(3);

/// A connection to a server. Dropping it closes the stream.
pub struct Client {
    greeting: Greeting,
    capabilities: ServerCapabilities,
    limits: McpLimits,
    wants_logs: bool,
    /// Goes with every request.
    meta: Arc<Map<String, Value>>,
    link: Arc<Link>,
}

impl Client {
    /// Makes the handshake over a server's stdin and stdout, within [`McpLimits::start`].
    ///
    /// # Errors
    /// [`McpError::Connection`].
    pub async fn connect<S>(
        server: impl Into<String>,
        stream: S,
        options: &ConnectOptions,
    ) -> Result<Self, McpError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let server = server.into();
        let ending = Ending::default();
        let transport = stdio::Stdio::new(stream, options.limits.max_line, &ending);
        let limit = options.limits.start;
        let started = Self::start(&server, transport, ending, options, options.era, limit).await;
        started.map_err(|detail| McpError::Connection { server, detail })
    }

    /// Connects to a server by streamable HTTP, within [`McpLimits::start`]. The older HTTP with SSE is not
    /// supported, and the error says so. The headers are sent to this origin only.
    ///
    /// # Errors
    /// [`McpError::Connection`].
    pub async fn connect_http(
        server: impl Into<String>,
        url: &Url,
        headers: &BTreeMap<String, Secret>,
        options: &ConnectOptions,
    ) -> Result<Self, McpError> {
        let server = server.into();
        // A failed probe spoils no stream here, so whatever the failure, the older handshake is tried.
        let eras = match options.era {
            None => vec![None, Some(Era::Handshake)],
            era => vec![era],
        };
        let limit = options.limits.start / u32::try_from(eras.len()).unwrap_or(1);
        let mut detail = String::new();
        for era in eras {
            let ending = Ending::default();
            let started = match http::transport(url, headers, &options.limits, &ending) {
                Ok((transport, listening)) => {
                    Self::start(&server, transport, ending, options, era, limit)
                        .await
                        .map(|client| (client, listening))
                }
                Err(fault) => Err(fault),
            };
            let failure = match started {
                Ok((client, listening)) => {
                    listening.opened().await;
                    return Ok(client);
                }
                Err(failure) => failure,
            };
            detail = http::explained(url, &failure);
            if http::is_refusal(&failure) {
                break;
            }
        }
        Err(McpError::Connection { server, detail })
    }

    /// The error is in words.
    async fn start<T>(
        server: &str,
        transport: T,
        ending: Ending,
        options: &ConnectOptions,
        era: Option<Era>,
        limit: Duration,
    ) -> Result<Self, String>
    where
        T: Transport<RoleClient> + 'static,
    {
        let logging = options.capabilities.logging;
        let shared = Shared {
            server: server.to_owned(),
            ending: ending.clone(),
            handler: RequestHandler::new(server, options),
            changes: watch::Sender::new(0),
            logs: logging.then(|| Mutex::new(VecDeque::new())),
        };
        let link = Link::open(transport, Arc::new(shared));
        // Boxed: the state of a handshake is large.
        let shaking: BoxFuture<'_, _> = Box::pin(shake(&link, era, &options.limits));
        let shaken = timeout(limit, shaking).await.unwrap_or_else(|_| {
            let limit = options.limits.start.as_secs_f64();
            Err(format!("no answer to the handshake within {limit} s"))
        });
        let Agreed {
            greeting,
            capabilities,
            mut meta,
        } = shaken.inspect_err(|detail| ending.end(detail.as_str()))?;
        let wants_logs = logging && capabilities.logging.is_some();
        if wants_logs && greeting.era == Era::Stateless {
            // That era has no `logging/setLevel`: each request names its level.
            meta.insert("io.modelcontextprotocol/logLevel".into(), "info".into());
        }
        let client = Self {
            greeting,
            capabilities,
            limits: options.limits,
            wants_logs,
            meta: Arc::new(meta),
            link: Arc::new(link),
        };
        client.subscribe();
        Ok(client)
    }

    /// The server's configured name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.link.shared.server
    }

    /// The server's name for itself, and what was agreed on.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Lists all that the server offers, anew, within [`McpLimits::start`]. What the server does not
    /// declare is empty.
    ///
    /// # Errors
    /// [`McpError::Protocol`] where the tools cannot be listed; other lists that cannot are named in
    /// [`Offer::left_out`].
    pub async fn offer(&self) -> Result<Offer, McpError> {
        let listed: BoxFuture<'_, _> = Box::pin(listing::list(self, &self.capabilities));
        let limit = self.limits.start;
        timeout(limit, listed).await.unwrap_or_else(|_| {
            let limit = limit.as_secs_f64();
            Err(self.broken(format!("it did not list what it offers within {limit} s")))
        })
    }

    /// Counts the notifications that something of the offer has changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.link.shared.changes.subscribe()
    }

    /// Waits until the connection has ended, and returns why.
    pub async fn ended(&self) -> String {
        self.link.shared.ending.wait().await
    }

    /// Whether the server has ended or was cut off.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.link.shared.ending.reason().is_some()
    }

    /// Calls a tool. A refusal by the tool or the server is in the output, with `is_error`; a result that
    /// does not match the tool's `outputSchema` has a note at the end of its text.
    ///
    /// # Errors
    /// [`McpError::ToolExecution`] with [`CallFault::Timeout`]; [`McpError::Protocol`] where the server has
    /// ended or answers with something other than a tool's result.
    pub async fn call(
        &self,
        tool: &Tool,
        arguments: Value,
        options: CallOptions,
    ) -> Result<ToolOutput, McpError> {
        let arguments = match arguments {
            arguments @ Value::Object(_) => arguments,
            Value::Null => json!({}),
            _ => {
                let words = "the arguments of a tool must be a JSON object";
                return Ok(output::refused(-32602, words));
            }
        };
        let params = [("name", json!(tool.name)), ("arguments", arguments)];
        self.ask("tools/call", &tool.name, params, &options, |result, max| {
            output::of_result(result, tool.output_schema.as_ref(), max)
        })
        .await
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn read(&self, uri: &str, options: CallOptions) -> Result<ToolOutput, McpError> {
        let params = [("uri", json!(uri))];
        self.ask("resources/read", uri, params, &options, output::of_resource)
            .await
    }

    /// Gets a prompt: its messages, each with its role.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn prompt(
        &self,
        name: &str,
        arguments: BTreeMap<String, String>,
        options: CallOptions,
    ) -> Result<ToolOutput, McpError> {
        let params = [("name", json!(name)), ("arguments", json!(arguments))];
        self.ask("prompts/get", name, params, &options, output::of_prompt)
            .await
    }

    /// The last of the server's log messages, oldest first, each shortened, with its level in front. Empty
    /// unless the configuration asks for them.
    #[must_use]
    pub fn logs(&self) -> Vec<String> {
        let logs = self.link.shared.logs.as_ref();
        logs.map(|logs| lock(logs).iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Closes the transport, and waits a few seconds for it.
    pub async fn shutdown(&self) {
        self.link.shared.ending.end("it was shut down");
        let _ = timeout(SHUTDOWN, self.link.closed()).await;
    }

    /// Sends a request about `what`, and reads its result; `None` from `read` is no such result.
    async fn ask<const N: usize>(
        &self,
        method: &str,
        what: &str,
        params: [(&str, Value); N],
        options: &CallOptions,
        read: impl FnOnce(&Value, usize) -> Option<ToolOutput>,
    ) -> Result<ToolOutput, McpError> {
        let params = params.into_iter();
        let params = params.map(|(key, value)| (key.to_owned(), value)).collect();
        let max = self.limits.max_output;
        match self.converse(method, params, options).await {
            Ok(Reply::Result(result)) => read(&result, max).ok_or_else(|| {
                let what = shortened(what);
                self.broken(format!(
                    "its answer to {method} of {what:?} is not a result"
                ))
            }),
            Ok(Reply::Refused(error)) => Ok(output::of_refusal(&error, max)),
            Err(NoReply::Broken(detail)) => Err(self.broken(detail)),
            Err(NoReply::Late(after)) => Err(McpError::ToolExecution {
                server: self.server().to_owned(),
                tool: shortened(what),
                fault: CallFault::Timeout { after },
            }),
        }
    }

    /// The protocol was broken; or the connection has ended, and that is why.
    pub(crate) fn broken(&self, detail: String) -> McpError {
        McpError::Protocol {
            server: self.server().to_owned(),
            detail: match self.link.shared.ending.reason() {
                Some(reason) => reason.to_owned(),
                None => detail,
            },
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.link.shared.ending.end("it was let go");
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server())
            .field("greeting", &self.greeting)
            .field("closed", &self.closed())
            .finish_non_exhaustive()
    }
}
