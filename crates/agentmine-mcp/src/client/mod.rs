//! One connection to one server, in either era of the protocol.
//!
//! - A connection ends once, for its first cause, which all later errors repeat: [`Client::ended`]. A crash
//!   shows as the end of the stream.
//! - A request that is given up, by its time limit or by dropping the future, is cancelled on the server;
//!   a later response is dropped.
//! - A server's requests are answered concurrently with its calls. The time that takes counts against a
//!   call's total time, but not against its time without progress.
//! - Accepted: a notification of a change between two subscriptions of the stateless era is lost. Each new
//!   subscription counts as a change to make up for it.

mod connection;
mod ending;
mod handler;
mod handshake;
mod http;
mod lines;
mod link;
mod listen;
mod listing;
mod options;
mod request;
mod stdio;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_runtime::config::Secret;
use futures::future::BoxFuture;
use rmcp::model::ServerCapabilities;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use url::Url;

use crate::lock::lock;
use crate::output::Shown;
use crate::text::shortened;
use crate::{CallFault, Era, Greeting, McpError, Offer, Tool, ToolOutput, output};
use connection::Shared;
use ending::Ending;
use handler::RequestHandler;
use handshake::{Agreed, shake};
use link::Link;
use request::{NoReply, Reply, Requests};

pub(crate) use ending::is_servers_own;
pub use options::{CallOptions, CallProgress, ConnectOptions};

/// How long a transport may take to close.
const SHUTDOWN: Duration = Duration::from_secs(3);

/// A connection to a server. Dropping it closes the stream.
pub struct Client {
    greeting: Greeting,
    capabilities: ServerCapabilities,
    requests: Requests,
    shown: Shown,
}

impl Client {
    /// Makes the handshake over a server's stdin and stdout, within [`McpLimits::start`](crate::McpLimits::start).
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
        let link = |shared| Link::open(transport, stdio::request, shared);
        let limit = options.limits.start;
        let started = Self::start(&server, link, ending, options, options.era, limit).await;
        started.map_err(|detail| McpError::Connection { server, detail })
    }

    /// Connects to a server by streamable HTTP, within [`McpLimits::start`](crate::McpLimits::start). The
    /// older HTTP with SSE is not supported, and the error says so. The headers are sent to this origin only.
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
        // A failed probe breaks no stream here, so the older handshake is tried after any failure.
        let eras = match options.era {
            None => vec![None, Some(Era::Handshake)],
            era => vec![era],
        };
        let limit = options.limits.start / u32::try_from(eras.len()).unwrap_or(1);
        let mut detail = String::new();
        for era in eras {
            let ending = Ending::default();
            let transport = http::transport(url, headers, &options.limits, &ending);
            let (transport, listening) = match transport {
                Ok(it) => it,
                Err(detail) => return Err(McpError::Connection { server, detail }),
            };
            let link = |shared| Link::open(transport, http::request, shared);
            match Self::start(&server, link, ending, options, era, limit).await {
                Ok(client) => {
                    listening.opened().await;
                    return Ok(client);
                }
                Err(failure) => detail = http::explained(url, &failure),
            }
            if http::is_refusal(&detail) {
                break;
            }
        }
        Err(McpError::Connection { server, detail })
    }

    /// An error is a text.
    async fn start(
        server: &str,
        link: impl FnOnce(Arc<Shared>) -> Link,
        ending: Ending,
        options: &ConnectOptions,
        era: Option<Era>,
        limit: Duration,
    ) -> Result<Self, String> {
        let logging = options.capabilities.logging;
        let shared = Shared {
            server: server.to_owned(),
            ending: ending.clone(),
            handler: RequestHandler::new(server, options),
            changes: watch::Sender::new(0),
            logs: logging.then(|| Mutex::new(VecDeque::new())),
        };
        let link = link(Arc::new(shared));
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
        let requests = Requests {
            link: Arc::new(link),
            limits: options.limits,
            meta: Arc::new(meta),
        };
        match greeting.era {
            Era::Handshake if wants_logs => listen::set_log_level(&requests),
            Era::Handshake => {}
            Era::Stateless => listen::listen(requests.clone(), &capabilities),
        }
        Ok(Self {
            greeting,
            capabilities,
            requests,
            shown: Shown {
                max: options.limits.max_output,
                redact: options.redact.clone(),
            },
        })
    }

    /// The server's configured name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.shared().server
    }

    /// The result of the handshake.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Lists the current offer within [`McpLimits::start`](crate::McpLimits::start). Lists that the server
    /// does not declare are empty.
    ///
    /// # Errors
    /// [`McpError::Protocol`] where the tools cannot be listed; other lists that cannot are named in
    /// [`Offer::left_out`].
    pub async fn offer(&self) -> Result<Offer, McpError> {
        let listed: BoxFuture<'_, _> = Box::pin(listing::list(
            &self.requests,
            &self.capabilities,
            &self.shown,
        ));
        let limit = self.requests.limits.start;
        let listed = timeout(limit, listed).await.unwrap_or_else(|_| {
            let limit = limit.as_secs_f64();
            Err(format!("it did not list what it offers within {limit} s"))
        });
        listed.map_err(|reason| self.broken(reason))
    }

    /// Counts the notifications that something of the offer has changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared().changes.subscribe()
    }

    /// Waits until the connection has ended, and returns why.
    pub async fn ended(&self) -> String {
        self.shared().ending.wait().await.to_owned()
    }

    /// Whether the server has ended or was cut off.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.shared().ending.reason().is_some()
    }

    /// Calls a tool. A refusal by the tool or the server is in the output, with `is_error`; a result that
    /// does not match the tool's `outputSchema` has a note at the end of its text. An optional argument that is
    /// `null` although its schema has another type is not sent: models write that for what they do not give,
    /// and servers reject it.
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
            Value::Object(mut arguments) => {
                arguments.retain(|name, value| !is_not_given(tool, name, value));
                Value::Object(arguments)
            }
            Value::Null => json!({}),
            _ => {
                let words = "the arguments of a tool must be a JSON object";
                return Ok(output::refused(-32602, words));
            }
        };
        let params = [("name", json!(tool.name)), ("arguments", arguments)];
        self.ask(
            "tools/call",
            &tool.name,
            params,
            &options,
            |result, shown| output::of_result(result, tool.output_schema.as_ref(), shown),
        )
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
        let logs = self.shared().logs.as_ref();
        logs.map(|logs| lock(logs).iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Closes the transport, and waits a few seconds for it.
    pub async fn shutdown(&self) {
        self.shared().ending.end("it was shut down");
        let _ = timeout(SHUTDOWN, self.requests.link.closed()).await;
    }

    fn shared(&self) -> &Shared {
        &self.requests.link.shared
    }

    /// Sends a request about `what`, and reads its result; `None` from `read` is no such result.
    async fn ask<const N: usize>(
        &self,
        method: &str,
        what: &str,
        params: [(&str, Value); N],
        options: &CallOptions,
        read: impl FnOnce(&Value, &Shown) -> Option<ToolOutput>,
    ) -> Result<ToolOutput, McpError> {
        let params = params.into_iter();
        let params = params.map(|(key, value)| (key.to_owned(), value)).collect();
        match self.requests.converse(method, params, options).await {
            Ok(Reply::Result(result)) => read(&result, &self.shown).ok_or_else(|| {
                let what = shortened(what);
                self.broken(format!(
                    "its answer to {method} of {what:?} is not a result"
                ))
            }),
            Ok(Reply::Refused(error)) => Ok(output::of_refusal(&error, &self.shown)),
            Err(NoReply::Broken(detail)) => Err(self.broken(detail)),
            Err(NoReply::Late(after)) => Err(McpError::ToolExecution {
                server: self.server().to_owned(),
                tool: shortened(what),
                fault: CallFault::Timeout { after },
            }),
        }
    }

    /// A protocol error; if the connection has ended, with the reason for that.
    fn broken(&self, detail: String) -> McpError {
        McpError::Protocol {
            server: self.server().to_owned(),
            detail: match self.shared().ending.reason() {
                Some(reason) => reason.to_owned(),
                None => detail,
            },
        }
    }
}

/// Whether an argument is a `null` that means that none is given.
fn is_not_given(tool: &Tool, name: &str, value: &Value) -> bool {
    let schema = &tool.input_schema;
    let mut required = schema["required"].as_array().into_iter().flatten();
    let property = schema["properties"].get(name);
    value.is_null()
        && property.is_some_and(|it| !allows_null(it))
        && !required.any(|one| one == name)
}

fn allows_null(schema: &Value) -> bool {
    match (schema["type"].as_str(), schema["anyOf"].as_array()) {
        (Some(kind), _) => kind == "null",
        (None, Some(branches)) => branches.iter().any(allows_null),
        (None, None) => true,
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared().ending.end("the client was dropped");
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
