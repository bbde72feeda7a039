//! One connection to one server, in either era of the protocol.
//!
//! - A connection ends once, for the first reason there is, which every error tells from then on:
//!   [`Client::ended`]. A crash is seen as the end of the stream.
//! - A request that is given up, by its time limit or by dropping the future, is cancelled on the
//!   server; an answer that comes later is dropped.
//! - What a server asks of us is answered beside its calls, and never counts against their time
//!   without progress, only against their time in all.
//! - Accepted: a cancellation that cannot be written within some seconds is not sent; a notice of a
//!   change that falls between two listenings of the stateless era is made up for by a change counted
//!   at each new listening.

mod desk;
mod ending;
mod filter;
mod hub;
mod listen;
mod options;
mod request;
mod start;
mod stdio;

pub(crate) use ending::of_itself;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use agentmine_runtime::config::Secret;
use futures::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, GetPromptRequestParams, ReadResourceRequestParams, ServerCapabilities,
};
use rmcp::service::{Peer, RoleClient};
use rmcp::transport::Transport;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use url::Url;

use crate::output::{self, Checker, shortened};
use crate::{
    CallFault, Era, Greeting, McpError, McpLimits, Offer, Tool, ToolOutput, http, listing, lock,
};
pub(crate) use ending::Ending;
use hub::Hub;
use start::Service;

pub use options::{CallOptions, CallProgress, ConnectOptions};
use request::Ask;
pub(crate) use request::{NoReply, Reply};
pub(crate) use start::Failure;

/// How long a result may be compared with what its tool promises.
const CHECK: Duration = Duration::from_secs(5);
/// Promises that are kept ready. Each takes some megabytes at the worst.
const MAX_CHECKERS: usize = 16;
/// How long a server may take to let go of its stream.
const SHUTDOWN: Duration = Duration::from_secs(3);

/// A connection to a server. Dropping it closes the stream.
pub struct Client {
    greeting: Greeting,
    capabilities: ServerCapabilities,
    limits: McpLimits,
    wants_logs: bool,
    peer: Peer<RoleClient>,
    service: Mutex<Option<Service>>,
    hub: Arc<Hub>,
    /// Of the tools that promise what they give, by name and promise.
    checkers: StdMutex<BTreeMap<String, (Value, Arc<Checker>)>>,
    /// Ends with the client.
    listening: StdMutex<Option<tokio::task::JoinHandle<()>>>,
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
        let hub = Arc::new(Hub::new(&server, options));
        let transport = stdio::Stdio::new(stream, options.limits.max_line, &hub.ending);
        // Boxed: the state of a handshake is large.
        let start: BoxFuture<'_, _> =
            Box::pin(Self::start(transport, hub.clone(), options, options.era));
        let started = match timeout(options.limits.start, start).await {
            Ok(started) => started.map_err(|failure| failure.detail),
            Err(_) => Err(no_answer(options)),
        };
        started.map_err(|detail| {
            hub.ending.end(detail.as_str());
            McpError::Connection { server, detail }
        })
    }

    /// Connects to a server by streamable HTTP, within [`McpLimits::start`]. The older HTTP with SSE
    /// is not spoken, and told as such. The headers are sent to this origin only.
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
        let start: BoxFuture<'_, _> = Box::pin(Self::start_http(&server, url, headers, options));
        let started = match timeout(options.limits.start, start).await {
            Ok(started) => started,
            Err(_) => Err(no_answer(options)),
        };
        started.map_err(|detail| McpError::Connection { server, detail })
    }

    async fn start_http(
        server: &str,
        url: &Url,
        headers: &BTreeMap<String, Secret>,
        options: &ConnectOptions,
    ) -> Result<Self, String> {
        // Over HTTP there is no one stream that a failed probe could spoil, so where it fails for
        // whatever reason the older handshake is made anew.
        let eras = match options.era {
            None => vec![None, Some(Era::Handshake)],
            era => vec![era],
        };
        let limit = options.limits.start / u32::try_from(eras.len()).unwrap_or(1);
        let mut told = String::new();
        for era in eras {
            let hub = Arc::new(Hub::new(server, options));
            let transport = http::transport(url, headers, &options.limits, &hub.ending)?;
            let start: BoxFuture<'_, _> =
                Box::pin(Self::start(transport, hub.clone(), options, era));
            let failure = match timeout(limit, start).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(failure)) => failure,
                Err(_) => Failure {
                    detail: no_answer(options),
                    authorization: false,
                },
            };
            hub.ending.end("it was given up");
            told = http::explained(url, &failure);
            if failure.authorization {
                break;
            }
        }
        Err(told)
    }

    async fn start<T>(
        transport: T,
        hub: Arc<Hub>,
        options: &ConnectOptions,
        era: Option<Era>,
    ) -> Result<Self, Failure>
    where
        T: Transport<RoleClient> + 'static,
    {
        let started = start::start(transport, &hub, era, &options.limits).await?;
        let (service, greeting, capabilities) = started;
        let client = Self {
            greeting,
            wants_logs: options.capabilities.logging && capabilities.logging.is_some(),
            capabilities,
            limits: options.limits,
            peer: service.peer().clone(),
            service: Mutex::new(Some(service)),
            hub,
            checkers: StdMutex::default(),
            listening: StdMutex::default(),
        };
        client.begin().await;
        Ok(client)
    }

    /// The server's configured name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.hub.server
    }

    /// Who the server says it is, and what was agreed on.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Lists all that the server offers, anew, within [`McpLimits::start`]. What it does not say it has
    /// is empty.
    ///
    /// # Errors
    /// [`McpError::Protocol`] where the tools cannot be listed; what else cannot is told in
    /// [`Offer::left_out`].
    pub async fn offer(&self) -> Result<Offer, McpError> {
        let listed: BoxFuture<'_, _> = Box::pin(listing::list(self, &self.capabilities));
        let offer = match timeout(self.limits.start, listed).await {
            Ok(listed) => listed?,
            Err(_) => {
                let limit = self.limits.start.as_secs_f64();
                return Err(self.broken(format!("it did not list what it offers within {limit} s")));
            }
        };
        Ok(offer)
    }

    /// Counts how often the server has said that something of its offer changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.hub.changes.subscribe()
    }

    /// Waits until the connection has ended, and tells why.
    pub async fn ended(&self) -> String {
        self.hub.ending.wait().await
    }

    /// Whether the server has ended or was cut off.
    #[must_use]
    pub fn closed(&self) -> bool {
        // The service's own `is_closed` stays false when the server crashes.
        self.hub.ending.reason().is_some() || self.peer.is_transport_closed()
    }

    /// Calls a tool. What the tool or the server refuses is told in the output, with `is_error`; that
    /// its result is not what its `outputSchema` promises is told at the end of the text.
    ///
    /// # Errors
    /// [`McpError::ToolExecution`] with [`CallFault::Timeout`]; [`McpError::Protocol`] where the
    /// server has ended or answers with something other than a tool's result.
    pub async fn call(
        &self,
        tool: &Tool,
        arguments: Value,
        options: CallOptions,
    ) -> Result<ToolOutput, McpError> {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            Value::Null => Map::new(),
            _ => {
                return Ok(output::refused(
                    -32602,
                    "the arguments of a tool must be a JSON object",
                ));
            }
        };
        let params = CallToolRequestParams::new(tool.name.clone()).with_arguments(arguments);
        let replied = self.converse(Ask::Call(params), &options).await;
        let max = self.limits.max_output;
        match self.answered(&tool.name, replied)? {
            Ok(result) => {
                let mut output = output::of_result(&result, max)
                    .ok_or_else(|| self.no_result("a call of", &tool.name))?;
                if let (false, Some(note)) = (output.is_error, self.check(tool, result).await) {
                    output.text.push('\n');
                    output.text.push_str(&note);
                }
                Ok(output)
            }
            Err(refusal) => Ok(refusal),
        }
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn read(&self, uri: &str) -> Result<ToolOutput, McpError> {
        let params = ReadResourceRequestParams::new(uri);
        let replied = self
            .converse(Ask::Read(params), &CallOptions::default())
            .await;
        match self.answered(uri, replied)? {
            Ok(result) => output::of_resource(&result, self.limits.max_output)
                .ok_or_else(|| self.no_result("the reading of", uri)),
            Err(refusal) => Ok(refusal),
        }
    }

    /// Gets a prompt: its messages, each with its role.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn prompt(
        &self,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<ToolOutput, McpError> {
        let arguments = arguments
            .into_iter()
            .map(|(key, value)| (key, value.into()))
            .collect();
        let params = GetPromptRequestParams::new(name).with_arguments(arguments);
        let replied = self
            .converse(Ask::Prompt(params), &CallOptions::default())
            .await;
        match self.answered(name, replied)? {
            Ok(result) => output::of_prompt(&result, self.limits.max_output)
                .ok_or_else(|| self.no_result("the request for prompt", name)),
            Err(refusal) => Ok(refusal),
        }
    }

    /// The last of the server's log messages, oldest first, each shortened and led by its level.
    /// Empty unless the configuration asks for them.
    #[must_use]
    pub fn logs(&self) -> Vec<String> {
        self.hub.logs()
    }

    /// Closes the stream, and waits (a few seconds at most) until it is let go.
    pub async fn shutdown(&self) {
        self.hub.ending.end("it was shut down");
        if let Some(mut service) = self.service.lock().await.take() {
            let _ = service.close_with_timeout(SHUTDOWN).await;
        }
    }

    /// A result, or the refusal as it is told to the model.
    fn answered(
        &self,
        what: &str,
        replied: Result<Reply, NoReply>,
    ) -> Result<Result<Value, ToolOutput>, McpError> {
        match replied {
            Ok(Reply::Result(result)) => Ok(Ok(result)),
            Ok(Reply::Refused(error)) => {
                Ok(Err(output::of_refusal(&error, self.limits.max_output)))
            }
            Err(NoReply::Broken(detail)) => Err(self.broken(detail)),
            Err(NoReply::Late(after)) => Err(McpError::ToolExecution {
                server: self.server().to_owned(),
                tool: shortened(what),
                fault: CallFault::Timeout { after },
            }),
        }
    }

    /// What of a result is not as its tool promises. Schema and result are hostile: no thread of the
    /// runtime works on them, and a check that takes long is not waited for.
    async fn check(&self, tool: &Tool, result: Value) -> Option<String> {
        let promise = tool.output_schema.clone()?;
        let known = lock(&self.checkers)
            .get(&tool.name)
            .filter(|(known, _)| *known == promise)
            .map(|(_, checker)| checker.clone());
        let checking = tokio::task::spawn_blocking(move || {
            let checker = match known {
                Some(checker) => checker,
                None => Arc::new(Checker::new(&promise).ok()?),
            };
            let note = checker.check(&result);
            Some((promise, checker, note))
        });
        let (promise, checker, note) = timeout(CHECK, checking).await.ok()?.ok()??;
        let mut checkers = lock(&self.checkers);
        if checkers.len() >= MAX_CHECKERS {
            checkers.clear();
        }
        checkers.insert(tool.name.clone(), (promise, checker));
        note
    }

    fn no_result(&self, what: &str, name: &str) -> McpError {
        let name = shortened(name);
        self.broken(format!(
            "it answered {what} {name:?} with something else than a result"
        ))
    }

    /// The protocol was broken, or the connection has ended and that is why.
    pub(crate) fn broken(&self, detail: String) -> McpError {
        McpError::Protocol {
            server: self.server().to_owned(),
            detail: match self.hub.ending.reason() {
                Some(reason) => reason.to_owned(),
                None => detail,
            },
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.hub.ending.end("it was let go");
        if let Some(listening) = lock(&self.listening).take() {
            listening.abort();
        }
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

fn no_answer(options: &ConnectOptions) -> String {
    let limit = options.limits.start.as_secs_f64();
    format!("no answer to the handshake within {limit} s")
}
