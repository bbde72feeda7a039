//! The tools offered to the model: the command tool and the text editor in the sandbox, and the tools
//! of the session's MCP servers.
//!
//! Configuration and rules name a server's tool `server:tool`; the model sees its wire name from the
//! catalog. Calls may use either name. A call that fails returns
//! `{"status":"error","error":{"code","message"}}` to the model (spec 002 §4.1); only the loss of the
//! sandbox ends the session.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_agent::{ToolResult, Tools};
use agentmine_domain::Usage;
use agentmine_llm::{ToolCall, ToolSpec};
use agentmine_mcp::config::Owner;
use agentmine_mcp::{CallFault, Catalog, McpError, Offer, ToolOutput};
use agentmine_process::Excerpt;
use agentmine_runtime::config::EffectiveAgent;
use agentmine_sandbox::Sandbox;
use async_trait::async_trait;
use serde_json::{Map, Value};

use super::admission::{Admitted, MAX_SPECS, OfNewest, Offered, Rank, within_limits};
use super::call::{arguments, summary};
use super::command::CommandTool;
use super::offers::{OfferCall, OfferTool};
use super::proposal::{PROPOSAL, ProposalTool};
use super::result::failed;
use super::servers::{MAX_TOOLS, Servers, TEXT_EDITOR};
use crate::error::SessionError;
use crate::prepare::workspace::Workspace;
use crate::record::checkpoint::Checkpoints;
use crate::record::live::Progress;
use crate::record::trace;
use crate::session::context::SessionContext;

/// Named in place of a server in a note that these tools are omitted.
const OFFERS: &str = "(resources and prompts)";
/// Calls named `text_editor_view` and so on are also accepted (spec 000 §3.2).
const EDITOR_COMMANDS: [&str; 5] = ["view", "create", "str_replace", "insert", "undo_edit"];

/// The tools of one session.
pub(crate) struct FleetTools<'a> {
    pub(crate) ctx: &'a SessionContext,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    /// `None` if the command tool is disabled.
    pub(crate) command: Option<CommandTool>,
    /// `None` if the operator or the agent allows no proposals.
    pub(crate) proposal: Option<ProposalTool>,
    pub(crate) servers: Arc<Servers>,
    /// Whose rules each tool has to pass.
    pub(crate) agent: &'a EffectiveAgent,
    pub(crate) workspace: &'a Workspace,
    pub(crate) checkpoints: Checkpoints,
    /// Servers whose omitted tools have already been noted in the transcript.
    pub(crate) noted: Mutex<BTreeSet<String>>,
    pub(crate) offered: OfNewest,
}

/// Where a call is routed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    Command,
    /// The editor command, if the tool's name included it.
    Editor(Option<&'static str>),
    Server {
        server: String,
        tool: String,
    },
    /// The servers' resources and prompts.
    Offer(OfferTool),
    /// A proposal for the memory.
    Proposal,
    Unknown,
}

/// Whether a call may have changed the project's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    Untouched,
    MaybeChanged,
}

#[async_trait]
impl Tools<SessionError> for FleetTools<'_> {
    async fn refresh(&self) -> Result<(), SessionError> {
        self.servers.refresh(self.ctx).await?;
        for server in &self.offered().omitted {
            if self.noted().insert(server.clone()) {
                self.ctx.note(&format!(
                    "MCP server {server}: not all of its tools are offered; the limit is {MAX_TOOLS} tools and {MAX_SPECS} bytes of names, descriptions and schemas"
                )).await?;
            }
        }
        Ok(())
    }

    fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.offered().specs)
    }

    fn take_usage(&self) -> Usage {
        self.servers.take_usage()
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolResult, SessionError> {
        let arguments = arguments(call);
        self.ctx.live.show(Progress::ToolBegan {
            name: call.name.clone(),
            summary: arguments.as_ref().map(summary).unwrap_or_default(),
        });
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(result) => return Ok(result),
        };
        let route = self.route(&call.name);
        let (kind, begun) = (route.kind(), Instant::now());
        let mut span = trace::tool(&self.ctx.lease, &route.traced_name());
        let (mut result, files) = self.dispatch(route, call, arguments).await?;
        if let Some(news) = self.workspace.news() {
            self.ctx.note(&news).await?;
        }
        // The model gets the same text as the transcript.
        result.text = self.redact(result.text);
        // A refused push ends the session, and what was committed for it is not lost, even if an earlier command did so.
        let authorized = self.workspace.authorized("git");
        if files == Files::MaybeChanged || authorized.is_err() {
            self.checkpoint().await?;
        }
        authorized?;
        if result.is_error {
            span.fail("tool_error");
        }
        measure(kind, result.is_error, begun.elapsed());
        Ok(result)
    }
}

/// The kinds of tools in metrics.
pub(crate) const KINDS: [&str; 6] = [
    "command", "editor", "server", "offer", "unknown", "proposal",
];
/// The outcomes of calls in metrics.
pub(crate) const OUTCOMES: [&str; 2] = ["ok", "error"];

impl Route {
    /// Its kind, one of [`KINDS`].
    fn kind(&self) -> &'static str {
        match self {
            Self::Command => KINDS[0],
            Self::Editor(_) => KINDS[1],
            Self::Server { .. } => KINDS[2],
            Self::Offer(_) => KINDS[3],
            Self::Unknown => KINDS[4],
            Self::Proposal => KINDS[5],
        }
    }

    /// Its name in traces; never one that the model made up.
    fn traced_name(&self) -> String {
        match self {
            Self::Server { server, tool } => format!("{server}:{tool}"),
            Self::Command | Self::Editor(_) | Self::Offer(_) | Self::Proposal | Self::Unknown => {
                self.kind().to_owned()
            }
        }
    }
}

/// Whether the agent may run commands.
pub(crate) fn may_command(agent: &EffectiveAgent, server: &str, wire: &str) -> bool {
    let full = format!("{server}:execute_command");
    agent.allows(&["execute_command", &full, wire])
}

/// Whether the agent may use the text editor.
pub(crate) fn may_edit(agent: &EffectiveAgent, server: &str) -> bool {
    agent.allows(&[TEXT_EDITOR, &format!("{server}:{TEXT_EDITOR}")])
}

fn measure(kind: &'static str, is_error: bool, took: Duration) {
    let outcome = OUTCOMES[usize::from(is_error)];
    metrics::counter!("agentmine_tool_calls_total", "tool" => kind, "outcome" => outcome)
        .increment(1);
    metrics::histogram!("agentmine_tool_call_duration_seconds", "tool" => kind)
        .record(took.as_secs_f64());
}

impl FleetTools<'_> {
    /// The tools offered to the model.
    fn offered(&self) -> Arc<Admitted> {
        self.offered
            .get(self.servers.catalog(), |catalog| self.admitted(catalog))
    }

    /// Computes what is offered from a catalog.
    fn admitted(&self, catalog: &Catalog) -> Admitted {
        let built_in = self.command.iter().map(|command| Offered {
            rank: Rank::BuiltIn,
            server: self
                .ctx
                .deps
                .config
                .command_executor
                .mcp_server
                .name
                .clone(),
            spec: command.spec(),
        });
        let tools = catalog
            .tools()
            .into_iter()
            .filter(|(_, server, tool)| self.servers.offers(server, &tool.name))
            .map(|(wire, server, tool)| Offered {
                rank: match self.servers.owner(server) {
                    _ if self.servers.editor() == Some(server) => Rank::BuiltIn,
                    Owner::Operator => Rank::OperatorConfigured,
                    Owner::Repository => Rank::RepositoryConfigured,
                },
                server: server.to_owned(),
                spec: ToolSpec {
                    name: wire.to_owned(),
                    description: tool.description.clone(),
                    input_schema: tool.input_schema.clone(),
                },
            });
        let offers = self.offer_tools().map(|tool| Offered {
            rank: Rank::BuiltIn,
            server: OFFERS.into(),
            spec: tool.spec(),
        });
        let proposal = self.proposal.iter().map(|tool| Offered {
            rank: Rank::BuiltIn,
            server: PROPOSAL.into(),
            spec: tool.spec(),
        });
        let all = built_in.chain(proposal).chain(tools).chain(offers);
        within_limits(
            all.filter(|it| self.route(&it.spec.name) != Route::Unknown)
                .collect(),
        )
    }

    /// The tools for resources and prompts for which there are some.
    fn offer_tools(&self) -> impl Iterator<Item = OfferTool> {
        let is_of_use = |tool: &OfferTool| {
            let offering = self.offering(*tool);
            offering.iter().any(|(_, offer)| tool.is_of_use(offer))
        };
        OfferTool::ALL.into_iter().filter(is_of_use)
    }

    /// The servers whose resources or prompts may be used.
    fn offering(&self, tool: OfferTool) -> Vec<(String, Arc<Offer>)> {
        let mut found = self.servers.offering(tool.rule());
        found.retain(|(server, _)| self.agent.allows(&[&format!("{server}:{}", tool.rule())]));
        found
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a call of this name goes, if the agent may make it.
    fn route(&self, name: &str) -> Route {
        let route = self.find(name);
        let config = &self.ctx.deps.config;
        let allowed = match &route {
            Route::Command | Route::Proposal | Route::Unknown => true,
            Route::Editor(_) => may_edit(self.agent, &config.text_editor_mcp.mcp_server.name),
            Route::Server { server, tool } => self.agent.allows(&[&format!("{server}:{tool}")]),
            // The servers that the agent may use are left in what it offers.
            Route::Offer(_) => true,
        };
        if allowed { route } else { Route::Unknown }
    }

    /// Resolves a name through the tables; it is split only at a colon, which no wire name contains.
    fn find(&self, name: &str) -> Route {
        let executor = &self.ctx.deps.config.command_executor.mcp_server.name;
        let editor = &self.ctx.deps.config.text_editor_mcp.mcp_server.name;
        let pair = name.split_once(':');
        if let Some(command) = &self.command
            && (command.name == name || pair == Some((executor, "execute_command")))
        {
            return Route::Command;
        }
        if self.proposal.is_some() && name == PROPOSAL {
            return Route::Proposal;
        }
        if self.servers.editor().is_some() {
            if name == TEXT_EDITOR || pair == Some((editor, TEXT_EDITOR)) {
                return Route::Editor(None);
            }
            let command = name.strip_prefix("text_editor_");
            let known = EDITOR_COMMANDS.into_iter().find(|c| Some(*c) == command);
            if known.is_some() {
                return Route::Editor(known);
            }
        }
        if let Some(tool) = OfferTool::named(name)
            && self.offer_tools().any(|offered| offered == tool)
        {
            return Route::Offer(tool);
        }
        let catalog = self.servers.catalog();
        // The table also has the names of built-in tools that are disabled.
        let found = pair
            .or_else(|| catalog.wire.resolve(name))
            .filter(|(server, tool)| catalog.tool(server, tool).is_some());
        match found {
            Some((server, tool)) if self.servers.offers(server, tool) => Route::Server {
                server: server.to_owned(),
                tool: tool.to_owned(),
            },
            _ => Route::Unknown,
        }
    }

    async fn dispatch(
        &self,
        route: Route,
        call: &ToolCall,
        mut arguments: Map<String, Value>,
    ) -> Result<(ToolResult, Files), SessionError> {
        match (route, &self.command) {
            (Route::Command, Some(command)) => {
                let result = command
                    .execute(self.sandbox.as_ref(), arguments, &self.ctx.redactor)
                    .await?;
                Ok((result, Files::MaybeChanged))
            }
            (Route::Editor(command), _) => {
                if let Some(command) = command {
                    arguments.insert("command".into(), command.into());
                }
                let files = match arguments.get("command").and_then(Value::as_str) {
                    Some("view") => Files::Untouched,
                    _ => Files::MaybeChanged,
                };
                let editor = &self.ctx.deps.config.text_editor_mcp.mcp_server.name;
                let result = self.call_server(editor, TEXT_EDITOR, arguments).await?;
                Ok((result, files))
            }
            (Route::Server { server, tool }, _) => {
                let result = self.call_server(&server, &tool, arguments).await?;
                Ok((result, self.files_of(&server)))
            }
            (Route::Offer(tool), _) => self.call_offer(tool, &arguments).await,
            (Route::Proposal, _) => match &self.proposal {
                Some(tool) => Ok((tool.propose(self.ctx, arguments).await?, Files::Untouched)),
                None => Ok((self.unknown(&call.name), Files::Untouched)),
            },
            (Route::Unknown | Route::Command, _) => {
                Ok((self.unknown(&call.name), Files::Untouched))
            }
        }
    }

    /// Lists or uses the servers' resources and prompts.
    async fn call_offer(
        &self,
        tool: OfferTool,
        arguments: &Map<String, Value>,
    ) -> Result<(ToolResult, Files), SessionError> {
        let call = match tool.read(arguments) {
            Ok(call) => call,
            Err(why) => return Ok((failed("invalid_arguments", &why), Files::Untouched)),
        };
        let offering = self.offering(tool);
        let (OfferCall::List(Some(server))
        | OfferCall::Read { server, .. }
        | OfferCall::Prompt { server, .. }) = &call
        else {
            return Ok((self.listed(tool, &offering), Files::Untouched));
        };
        let server = server.clone();
        let Some(one) = offering.iter().find(|(name, _)| *name == server) else {
            let names: Vec<&str> = offering.iter().map(|(name, _)| name.as_str()).collect();
            let names = names.join(", ");
            let why = format!("there is no MCP server {server:.200?}. Available servers: {names}");
            return Ok((failed("unknown_server", &why), Files::Untouched));
        };
        let output = match call {
            OfferCall::List(_) => {
                return Ok((
                    self.listed(tool, std::slice::from_ref(one)),
                    Files::Untouched,
                ));
            }
            OfferCall::Read { uri, .. } => self.servers.read(&server, &uri).await,
            OfferCall::Prompt {
                name, arguments, ..
            } => self.servers.prompt(&server, &name, arguments).await,
        };
        Ok((self.output(&server, output).await?, self.files_of(&server)))
    }

    fn listed(&self, tool: OfferTool, offering: &[(String, Arc<Offer>)]) -> ToolResult {
        let lines = offering.iter();
        let lines: Vec<String> = lines.flat_map(|(name, it)| tool.lines(name, it)).collect();
        let text = match lines.is_empty() {
            true => "(there are none)".to_owned(),
            false => self.redact(lines.join("\n")),
        };
        let max = self.ctx.deps.config.mcp.max_output_size;
        ToolResult {
            text: Excerpt::whole(text)
                .fit(max)
                .into_text("name a server to see them"),
            is_error: false,
        }
    }

    /// Whether a call of this server may have changed the project's files.
    fn files_of(&self, server: &str) -> Files {
        match self.servers.in_sandbox(server) {
            true => Files::MaybeChanged,
            false => Files::Untouched,
        }
    }

    async fn call_server(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolResult, SessionError> {
        let arguments = Value::Object(arguments);
        let output = self.servers.call(server, tool, arguments).await;
        self.output(server, output).await
    }

    /// A server's output as a result, or its error; the loss of the sandbox ends the session.
    async fn output(
        &self,
        server: &str,
        output: Result<ToolOutput, McpError>,
    ) -> Result<ToolResult, SessionError> {
        let error = match output {
            Ok(output) => {
                return Ok(ToolResult {
                    text: output.text,
                    is_error: output.is_error,
                });
            }
            Err(error) => error,
        };
        tracing::debug!(
            mcp.server = server,
            code = error.code(),
            "an MCP call failed"
        );
        if self.servers.in_sandbox(server) && sandbox_may_be_gone(&error) {
            let responds = self.servers.sandbox_answers().await;
            responds.map_err(|error| SessionError::SandboxGone(error.to_string()))?;
        }
        Ok(ToolResult {
            text: error.for_model().to_string(),
            is_error: true,
        })
    }

    fn redact(&self, text: String) -> String {
        self.ctx.redactor.redact(text)
    }

    /// Takes a checkpoint of the files after this call.
    async fn checkpoint(&self) -> Result<(), SessionError> {
        let next = self.ctx.journal.next_seq().await;
        if let Some(unsaved) = self.checkpoints.take(&self.ctx.heartbeat, next).await? {
            // If the note cannot be recorded, neither can the result, which reports the error.
            let _ = self.ctx.record(unsaved.entry()).await;
        }
        Ok(())
    }

    fn unknown(&self, name: &str) -> ToolResult {
        let specs = self.specs();
        let known: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        failed(
            "unknown_tool",
            &format!(
                "there is no tool {name:.200?}. Available tools: {}",
                known.join(", ")
            ),
        )
    }
}

/// Whether the error may mean that the whole sandbox is gone, not just the server.
fn sandbox_may_be_gone(error: &McpError) -> bool {
    match error {
        McpError::Process { .. } | McpError::Connection { .. } | McpError::Protocol { .. } => true,
        McpError::ToolExecution { fault, .. } => match fault {
            CallFault::Unavailable(_) => true,
            CallFault::Timeout { .. } => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_or_a_timeout_does_not_suggest_a_lost_sandbox() {
        let fault = |fault| McpError::ToolExecution {
            server: "a".into(),
            tool: "b".into(),
            fault,
        };
        let after = std::time::Duration::from_secs(1);
        assert!(!sandbox_may_be_gone(&fault(CallFault::Timeout { after })));
        assert!(sandbox_may_be_gone(&fault(CallFault::Unavailable(
            "x".into()
        ))));
        assert!(sandbox_may_be_gone(&McpError::Protocol {
            server: "a".into(),
            detail: "the connection ended".into(),
        }));
    }
}
