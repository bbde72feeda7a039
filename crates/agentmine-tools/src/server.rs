//! The editor as an MCP server.
//!
//! A failed edit is reported to the model in the result; only an unknown tool is a protocol error. Calls run
//! one after another in the order in which they arrive: a handler never waits before its work is done, and the
//! server runs on one thread.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt};
use serde_json::Value;

use crate::editor::{Editor, ToolReply};
use crate::gate::{Full, Gate};
use crate::lines::stdio_transport;

/// The server's own name.
pub const SERVER_NAME: &str = "mcp-server-text-editor";
/// The name of its tool.
pub const TOOL_NAME: &str = "text_editor";

/// Maximum length of a message, in bytes: a file of the maximum size fits, even if every byte is escaped.
pub(crate) const MAX_LINE: usize = 64 * 1024 * 1024;
const _: () = assert!(MAX_LINE > 6 * crate::editor::MAX_FILE + 64 * 1024);

/// Serves until stdin ends.
///
/// # Errors
/// When the client does not speak the protocol.
pub async fn serve_stdio(server: TextEditorServer) -> anyhow::Result<()> {
    let transport = Gate::new(stdio_transport(MAX_LINE), Full::Wait);
    server.serve(transport).await?.waiting().await?;
    Ok(())
}

/// Offers an [`Editor`] as the tool `text_editor`.
#[derive(Clone)]
pub struct TextEditorServer {
    editor: Arc<Mutex<Editor>>,
}

impl TextEditorServer {
    /// A server over this editor.
    #[must_use]
    pub fn new(editor: Editor) -> Self {
        Self {
            editor: Arc::new(Mutex::new(editor)),
        }
    }

    fn run(&self, arguments: &JsonObject) -> CallToolResult {
        let mut editor = self.editor.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = match editor.run(arguments) {
            Ok(reply) => reply,
            Err(error) => ToolReply::failed(&error),
        };
        into_result(&reply)
    }
}

impl ServerHandler for TextEditorServer {
    crate::undeclared::tools_alone!();

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(SERVER_NAME, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![DEFINITION.clone()]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut arguments = request.arguments.unwrap_or_default();
        if request.name != TOOL_NAME {
            // `text_editor_view` and so on, as the specification also writes the calls.
            let command = request
                .name
                .strip_prefix(TOOL_NAME)
                .and_then(|rest| rest.strip_prefix('_'))
                .filter(|command| COMMANDS.contains(command))
                .ok_or_else(|| unknown_tool(&request.name))?;
            arguments.insert("command".into(), command.into());
        }
        Ok(self.run(&arguments).into())
    }
}

/// The values of `command`.
pub(crate) const COMMANDS: [&str; 5] = ["view", "create", "str_replace", "insert", "undo_edit"];

fn unknown_tool(name: &str) -> ErrorData {
    ErrorData::invalid_params(
        format!("unknown tool {name:?}: this server only has {TOOL_NAME:?}"),
        None,
    )
}

/// The result: the reply as structured content and as JSON in one text block, and `isError`.
fn into_result(reply: &ToolReply) -> CallToolResult {
    let value = serde_json::to_value(reply).unwrap_or(Value::Null);
    let text = vec![ContentBlock::text(value.to_string())];
    let mut result = if reply.success {
        CallToolResult::success(text)
    } else {
        CallToolResult::error(text)
    };
    result.structured_content = Some(value);
    result
}

/// The tool: name, description, schemas, annotations.
static DEFINITION: LazyLock<Tool> = LazyLock::new(|| {
    #[expect(
        clippy::expect_used,
        reason = "the definition is a constant of this crate, which the tests read"
    )]
    serde_json::from_str(include_str!("editor/tool.json")).expect("a tool's definition")
});
