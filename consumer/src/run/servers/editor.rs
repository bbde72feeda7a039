//! The text editor: its entry, and what people read when it does not run (spec 000 §12.1.1).

use agentmine_domain::markdown::fenced;
use agentmine_effects::progress_comment;
use agentmine_mcp::McpLimits;
use agentmine_mcp::config::{Capabilities, Origin, Owner, ServerConfig, ServerPlace, Transport};
use agentmine_runtime::config::{Config, Secret};

use crate::error::SessionError;
use crate::session::context::SessionContext;

/// The variable in which the text editor finds the limit of its results.
const MAX_OUTPUT: &str = "MCP_TEXT_EDITOR_MAX_OUTPUT";
/// The editor is restarted once; after that the session continues without it (spec 000 §12.1.1).
const EDITOR_RESTARTS: u32 = 1;
/// The origin of the editor's entry.
pub(super) const BUILT_IN: &str = "(built in)";

/// The text editor as a server in the sandbox (spec 000 §4.2).
pub(super) fn editor(config: &Config) -> ServerConfig {
    let server = &config.text_editor_mcp.mcp_server;
    let max_output = config.mcp.max_output_size.to_string();
    ServerConfig {
        name: server.name.clone(),
        origin: Origin {
            file: BUILT_IN.into(),
            line: 0,
            owner: Owner::Operator,
        },
        transport: Transport::Stdio {
            command: server.command.clone(),
            env: [(MAX_OUTPUT.into(), Secret::new(max_output))].into(),
            place: ServerPlace::Sandbox,
        },
        enabled: true,
        capabilities: Capabilities::default(),
        timeout: McpLimits::default().call,
        max_restarts: Some(EDITOR_RESTARTS),
    }
}

/// Records that there is no editor and comments on the item; the session continues
/// (spec 000 §12.1.1).
pub(super) async fn report_editor_not_started(
    ctx: &SessionContext,
    reason: &str,
) -> Result<(), SessionError> {
    tracing::warn!("the text editor cannot be used");
    ctx.note(&format!(
        "the text editor cannot be used; the session continues without it: {reason}"
    ))
    .await?;
    comment_on_editor(ctx, "The text editor cannot be used", reason).await
}

pub(super) async fn report_editor_lost(
    ctx: &SessionContext,
    reason: &str,
) -> Result<(), SessionError> {
    tracing::warn!("the text editor exited too often; the session continues without it");
    ctx.note("the text editor exited again; the session continues without it")
        .await?;
    comment_on_editor(ctx, "The text editor exited twice", reason).await
}

async fn comment_on_editor(
    ctx: &SessionContext,
    what: &str,
    reason: &str,
) -> Result<(), SessionError> {
    let reason = ctx.redactor.redact(reason.to_owned());
    let text = format!(
        "{what}. AgentMine continues without it:\n\n{}",
        fenced(&reason)
    );
    ctx.editor_comment(&progress_comment(&text, &ctx.session_name()))
        .await
}
