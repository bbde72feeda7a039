//! The protocol around the tables of tools and resources.

use std::sync::Arc;

use agentmine_store::StoreError;
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, ContentBlock, Implementation, ListPromptsRequestMethod,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ResourceContents, ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt, SubscriptionContext};
use rmcp::transport::Transport;
use serde_json::{Value, json};

use super::context::Context;
use super::resources::{self, ResourceKind};
use super::tables;
use super::tool::ToolDef;
use super::watch::{MAX_SUBSCRIPTIONS, State, Subscriptions, changed, watched};
use crate::{ControlError, input};

/// Maximum length of a message, in bytes.
pub const MAX_LINE: usize = 4 * 1024 * 1024;

/// Serves until the transport ends, which limits a message to [`MAX_LINE`].
///
/// # Errors
/// When the client does not speak the protocol.
pub async fn serve(
    context: Context,
    transport: impl Transport<RoleServer> + 'static,
) -> anyhow::Result<()> {
    ControlServer::new(context)
        .serve(transport)
        .await?
        .waiting()
        .await?;
    Ok(())
}

/// Offers the operations as tools, and what they return as resources. A clone serves another client: it has
/// its own subscriptions.
pub struct ControlServer {
    context: Arc<Context>,
    tools: Arc<Vec<ToolDef>>,
    resources: Arc<Vec<ResourceKind>>,
    subscriptions: Subscriptions,
}

impl Clone for ControlServer {
    fn clone(&self) -> Self {
        Self {
            context: Arc::clone(&self.context),
            tools: Arc::clone(&self.tools),
            resources: Arc::clone(&self.resources),
            subscriptions: Subscriptions::default(),
        }
    }
}

impl ControlServer {
    /// A server over these.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self {
            context: Arc::new(context),
            tools: Arc::new(tables::tools()),
            resources: Arc::new(tables::resources()),
            subscriptions: Subscriptions::default(),
        }
    }
}

impl ServerHandler for ControlServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("agentmine", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Tasks, sessions and workers of AgentMine. Create a task with task_create, start work on it with \
                 worker_command, run the returned command in a shell, and end its session with session_end.",
            )
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.iter().map(ToolDef::definition).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.tools.iter().find(|tool| tool.name() == request.name);
        let Some(tool) = tool else {
            let name = input::shown(&request.name);
            let error = ControlError::Validation(format!("unknown tool {name:?}"))
                .hint("tools/list lists the tools");
            return Err(ErrorData::invalid_params(
                error.to_string(),
                Some(described(&error)),
            ));
        };
        let arguments = request.arguments.unwrap_or_default();
        let outcome = tool.call(Arc::clone(&self.context), arguments).await;
        let (mut result, content) = match outcome {
            Ok(content) => (CallToolResult::success(text_of(&content)), content),
            Err(ControlError::Store(error)) => return Err(internal(&error)),
            Err(error) => {
                let content = json!({ "error": described(&error) });
                (
                    CallToolResult::error(vec![ContentBlock::text(sentence(&error))]),
                    content,
                )
            }
        };
        result.structured_content = Some(content);
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let part = resources::list(&self.resources, &self.context, cursor.as_deref()).await;
        let part = part.map_err(|error| protocol_error(&error))?;
        let mut result = ListResourcesResult::with_all_items(part.resources);
        result.next_cursor = part.next;
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.resources.iter().filter_map(ResourceKind::template);
        Ok(ListResourceTemplatesResult::with_all_items(
            templates.collect(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        for kind in self.resources.iter() {
            if let Some(rest) = uri.strip_prefix(kind.prefix()) {
                let read = kind.read(Arc::clone(&self.context), rest.to_owned()).await;
                let text = read.map_err(|error| resource_error(&error, &uri))?;
                let content = ResourceContents::text(text, uri.clone()).with_mime_type(kind.mime());
                return Ok(ReadResourceResult::new(vec![content]).into());
            }
        }
        let error = ControlError::Validation(format!("unknown resource {:?}", input::shown(&uri)))
            .hint("resources/list and resources/templates/list list the resources");
        Err(resource_error(&error, &uri))
    }

    /// Of the current revision: the tasks among what a client wants to know of.
    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        let wanted = requested.resource_subscriptions.iter().flatten();
        let tasks = wanted.filter(|uri| watched(uri).is_some());
        accepted.resource_subscriptions = Some(tasks.take(MAX_SUBSCRIPTIONS).cloned().collect());
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let uris = context.accepted().resource_subscriptions.clone();
        let store = self.context.store.as_ref();
        let sink = context.sink();
        let watch = async |uri: String| -> Option<()> {
            let number = watched(&uri)?;
            let task = store.task_by_number(number).await.ok()??;
            let mut seen = State::of(&task);
            loop {
                seen = changed(store, number, seen).await;
                sink.notify_resource_updated(uri.clone()).await.ok()?;
            }
        };
        let watches = uris.into_iter().flatten().map(watch);
        tokio::select! {
            _ = futures::future::join_all(watches) => context.cancelled().await,
            () = context.cancelled() => {}
        }
        Ok(())
    }

    /// Of the revisions up to 2025-11-25, like the next.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = request.uri;
        let added = self
            .subscriptions
            .add(&self.context, uri.clone(), context.peer);
        added.await.map_err(|error| resource_error(&error, &uri))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.remove(&request.uri);
        Ok(())
    }

    // By default the library returns empty lists of these.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

/// For clients that show text alone.
fn text_of(content: &Value) -> Vec<ContentBlock> {
    let text = serde_json::to_string_pretty(content).unwrap_or_else(|_| content.to_string());
    vec![ContentBlock::text(text)]
}

fn sentence(error: &ControlError) -> String {
    let hint = error
        .next_action()
        .map_or_else(String::new, |next| format!("\nhint: {}", next.for_tools()));
    format!("{}: {error}{hint}", error.name())
}

/// The error with its code (spec 003).
fn described(error: &ControlError) -> Value {
    json!({
        "code": error.mcp_code(),
        "name": error.name(),
        "message": error.to_string(),
        "hint": error.next_action().map(|next| next.for_tools()),
    })
}

/// An error where the protocol wants one: what is not known is a wrong parameter in its current revision.
fn protocol_error(error: &ControlError) -> ErrorData {
    match error {
        ControlError::Store(error) => internal(error),
        error => ErrorData::invalid_params(error.to_string(), Some(described(error))),
    }
}

/// The same with the resource that was requested, as the current revision wants it.
fn resource_error(error: &ControlError, uri: &str) -> ErrorData {
    let mut error = protocol_error(error);
    if let Some(Value::Object(data)) = &mut error.data {
        data.insert("uri".into(), uri.into());
    }
    error
}

fn internal(error: &StoreError) -> ErrorData {
    tracing::error!(%error, "a call failed");
    ErrorData::internal_error(error.to_string(), None)
}
