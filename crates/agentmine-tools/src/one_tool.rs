//! The protocol around a server's one tool.
//!
//! A failed call is reported to the model in the result (`isError`); only an unknown tool is a protocol error. A
//! failure has no structured content, since that could not match `outputSchema`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::kind::json_kind;

/// A server's one tool.
pub(crate) trait OneTool: Send + Sync + 'static {
    /// The server's own name.
    const SERVER: &'static str;
    /// The tool as in the specification: name, description, schemas, annotations.
    const DEFINITION: &'static str;

    /// Runs a call.
    fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = CallToolResponse> + Send;
}

/// Offers a [`OneTool`].
pub(crate) struct OneToolServer<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    tool: T,
    definition: Tool,
}

impl<T> Clone for OneToolServer<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T: OneTool> OneToolServer<T> {
    pub(crate) fn new(tool: T) -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the definition is a constant of this crate, which the tests read"
        )]
        let definition = serde_json::from_str(T::DEFINITION).expect("a tool's definition");
        Self {
            shared: Arc::new(Shared { tool, definition }),
        }
    }
}

impl<T: OneTool> ServerHandler for OneToolServer<T> {
    crate::undeclared::tools_alone!();

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(T::SERVER, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![
            self.shared.definition.clone(),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = &self.shared.definition.name;
        if request.name != *name {
            return Err(ErrorData::invalid_params(
                format!(
                    "unknown tool {:?}: this server only has {name:?}",
                    request.name.chars().take(100).collect::<String>()
                ),
                None,
            ));
        }
        Ok(Box::pin(self.shared.tool.call(request, context)).await)
    }
}

/// The result of a call that succeeded: as structured content, and as text.
pub(crate) fn done(value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

/// The result of a call that failed.
pub(crate) fn failed(message: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message.into())])
}

/// The arguments of a call. `null` counts as not given, as models fill unused parameters with it.
pub(crate) struct Arguments(JsonObject);

impl Arguments {
    /// Checks the arguments; `known` are the parameters of the tool.
    ///
    /// # Errors
    /// When another parameter is given: it is probably misspelled.
    pub(crate) fn new(arguments: Option<JsonObject>, known: &[&str]) -> Result<Self, String> {
        let arguments = arguments.unwrap_or_default();
        match arguments.keys().find(|key| !known.contains(&key.as_str())) {
            Some(other) => Err(format!(
                "unknown parameter {:?}: this tool has {}",
                other.chars().take(100).collect::<String>(),
                known.join(", ")
            )),
            None => Ok(Self(arguments)),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("{name} must be a string, not {}", json_kind(other))),
        }
    }

    pub(crate) fn required(&self, name: &str, what: &str) -> Result<&str, String> {
        self.text(name)?
            .ok_or_else(|| format!("{name} is required: {what}"))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(format!(
                "{name} must be true or false, not {}",
                json_kind(other)
            )),
        }
    }

    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let items = match self.get(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => {
                return Err(format!(
                    "{name} must be an array of strings, not {}",
                    json_kind(other)
                ));
            }
        };
        items
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(text.clone()),
                other => Err(format!(
                    "{name} must contain only strings, not {}",
                    json_kind(other)
                )),
            })
            .collect()
    }
}

/// Forwards a reader, and cancels a token at its end.
///
/// The protocol library lets handlers finish after the end of stdin, but a command that runs for minutes must
/// be killed at once.
pub(crate) struct UntilEnd<R> {
    inner: R,
    ended: CancellationToken,
}

impl<R> UntilEnd<R> {
    pub(crate) fn new(inner: R, ended: CancellationToken) -> Self {
        Self { inner, ended }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilEnd<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let ended = match &polled {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => buf.filled().len() == before && buf.remaining() > 0,
            Poll::Ready(Err(_)) => true,
        };
        if ended {
            self.ended.cancel();
        }
        polled
    }
}
