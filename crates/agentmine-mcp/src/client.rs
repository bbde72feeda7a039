//! One connection to one server.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    ErrorCode, Implementation, ProtocolVersion,
};
use rmcp::service::{
    Peer, PeerRequestOptions, RequestContext, RequestHandle, RoleClient, RunningService,
    ServiceError, serve_client,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::guard::{Ending, LineGuard, Writer};
use crate::output::{self, shortened};
use crate::{Limits, McpError, Tool, ToolOutput, listing};

/// How long a server may take to let go of its stream.
const SHUTDOWN: Duration = Duration::from_secs(3);
/// How long the news that a call is given up may take to be written.
const CANCELLATION: Duration = Duration::from_secs(5);

/// A connection to a server. Dropping it closes the stream.
pub struct Client {
    server: String,
    limits: Limits,
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, Declining>>>,
    ending: Ending,
    tools: Vec<Tool>,
    info: (String, String),
}

impl Client {
    /// Makes the handshake over a server's stdin and stdout, and lists its tools.
    ///
    /// # Errors
    /// [`McpError::Connection`] or [`McpError::Timeout`]; [`McpError::Protocol`] where the handshake
    /// was well and the listing was not.
    pub async fn connect<S>(
        server_name: impl Into<String>,
        stream: S,
        limits: Limits,
    ) -> Result<Self, McpError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let server = server_name.into();
        let late = McpError::Timeout {
            server: server.clone(),
            what: "the handshake and the listing of its tools".into(),
            after: limits.start,
        };
        // Boxed: the state of a handshake is large.
        let start: futures::future::BoxFuture<'static, _> =
            Box::pin(Self::start(server, stream, limits));
        timeout(limits.start, start).await.map_err(|_| late)?
    }

    async fn start<S>(server: String, stream: S, limits: Limits) -> Result<Self, McpError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(stream);
        let ending = Ending::default();
        let read = LineGuard::new(read, limits.max_line, &ending);
        let write = Writer::new(write, &ending);
        // The guard has already counted, so the transport needs no limit of its own.
        let transport = AsyncRwTransport::new_client(read, write).with_max_line_length(usize::MAX);
        let service = serve_client(Declining, transport).await.map_err(|error| {
            let detail = match ending.reason() {
                Some(reason) => reason.to_owned(),
                None => shortened(&error.to_string()),
            };
            McpError::Connection {
                server: server.clone(),
                detail,
            }
        })?;
        let peer = service.peer().clone();
        let (info, has_tools) = match peer.peer_info() {
            Some(info) => {
                let name = info.server_info.as_ref();
                let name = name.map(|info| (shortened(&info.name), shortened(&info.version)));
                (name.unwrap_or_default(), info.capabilities.tools.is_some())
            }
            None => (Default::default(), true),
        };
        let mut client = Self {
            server,
            limits,
            peer,
            service: Mutex::new(Some(service)),
            ending,
            tools: Vec::new(),
            info,
        };
        if has_tools {
            client.tools = listing::list(&client).await?;
        }
        Ok(client)
    }

    /// The server's configured name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The name and version that the server gave itself; empty where it gave none.
    #[must_use]
    pub fn server_info(&self) -> (&str, &str) {
        (&self.info.0, &self.info.1)
    }

    /// Its tools, sorted by name, without those whose description is malformed.
    #[must_use]
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Calls a tool. What the tool or the server refuses is told in the output, with `is_error`.
    /// A call that is given up, by its time limit or by dropping the future, is cancelled on the
    /// server.
    ///
    /// # Errors
    /// [`McpError::Timeout`]; [`McpError::Protocol`] where the server has ended or answers with
    /// something other than a tool's result.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<ToolOutput, McpError> {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            Value::Null => Map::new(),
            _ => {
                return Ok(ToolOutput {
                    text: "the arguments of a tool must be a JSON object".into(),
                    is_error: true,
                });
            }
        };
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let what = format!("a call of {tool:?}");
        match self.request(request, &what, self.limits.call).await? {
            Answer::Result(result) => output::of_result(&result, self.limits.max_output)
                .ok_or_else(|| {
                    self.broken(format!(
                        "it answered {what} with something else than a result"
                    ))
                }),
            Answer::Refused(error) => Ok(output::of_refusal(&error, self.limits.max_output)),
        }
    }

    /// Whether the server has ended or was cut off.
    #[must_use]
    pub fn closed(&self) -> bool {
        // The service's own `is_closed` stays false when the server crashes.
        self.ending.reason().is_some() || self.peer.is_transport_closed()
    }

    /// Closes the stream, and waits (a few seconds at most) until it is let go.
    pub async fn shutdown(&self) {
        if let Some(mut service) = self.service.lock().await.take() {
            let _ = service.close_with_timeout(SHUTDOWN).await;
            self.ending.end("it was shut down");
        }
    }

    /// Asks the server something, as JSON, since a result that is not quite what the protocol says
    /// is better read leniently than lost.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        what: &str,
        limit: Duration,
    ) -> Result<Answer, McpError> {
        let exchange = async {
            let options = PeerRequestOptions::no_options();
            let handle = self.peer.send_cancellable_request(request, options).await?;
            let mut pending = Pending(Some(handle));
            let answer = pending.answer().await;
            pending.0 = None;
            answer
        };
        match timeout(limit, exchange).await {
            Ok(Ok(result)) => serde_json::to_value(result)
                .map(Answer::Result)
                .map_err(|error| self.broken(error.to_string())),
            Ok(Err(ServiceError::McpError(error))) => Ok(Answer::Refused(error)),
            Ok(Err(error)) => Err(self.broken(shortened(&error.to_string()))),
            Err(_) => Err(McpError::Timeout {
                server: self.server.clone(),
                what: what.to_owned(),
                after: limit,
            }),
        }
    }

    pub(crate) fn start_limit(&self) -> Duration {
        self.limits.start
    }

    pub(crate) fn broken(&self, detail: String) -> McpError {
        McpError::Protocol {
            server: self.server.clone(),
            detail: match self.ending.reason() {
                Some(reason) => reason.to_owned(),
                None => detail,
            },
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.ending.end("it was let go");
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server)
            .field("tools", &self.tools.len())
            .field("closed", &self.closed())
            .finish_non_exhaustive()
    }
}

/// What a server said to a request.
pub(crate) enum Answer {
    Result(Value),
    Refused(ErrorData),
}

/// A request without an answer. Dropped as such, it is cancelled on the server.
struct Pending(Option<RequestHandle<RoleClient>>);

impl Pending {
    async fn answer(&mut self) -> Result<rmcp::model::ServerResult, ServiceError> {
        match &mut self.0 {
            Some(handle) => (&mut handle.rx)
                .await
                .unwrap_or(Err(ServiceError::TransportClosed)),
            None => Err(ServiceError::TransportClosed),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        // On a task of its own: writing to a server that does not read may take for ever.
        runtime.spawn(async move {
            let cancel = handle.cancel(Some("given up by the caller".into()));
            let _ = timeout(CANCELLATION, cancel).await;
        });
    }
}

/// Our side of the protocol: no capabilities. Whatever a server asks for is declined, and what it
/// notifies is ignored.
struct Declining;

impl ClientHandler for Declining {
    fn get_info(&self) -> ClientConfig {
        let ours = Implementation::new("agentmine", env!("CARGO_PKG_VERSION"));
        // The newest revision that has this handshake.
        ClientConfig::new(ClientCapabilities::default(), ours)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    // Sampling is refused and elicitation declined by default; roots would be an empty list.
    #[expect(deprecated, reason = "servers of the older revisions ask for it")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "roots/list",
            None,
        ))
    }
}
