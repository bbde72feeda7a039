//! The tools that the model sees: the command tool and the text editor in the sandbox, and those of
//! the session's MCP servers.
//!
//! Config and rules name a server's tool `server:tool`; the model knows it by the name of the catalog's
//! table, and may use either. Whatever goes wrong with a call is told to the model as
//! `{"status":"error","error":{"code","message"}}` (spec 002 §4.1), unless the sandbox is gone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use agentmine_agent::{ToolResult, Tools};
use agentmine_domain::Usage;
use agentmine_llm::{ToolCall, ToolSpec};
use agentmine_mcp::config::Owner;
use agentmine_mcp::{CallFault, McpError};
use agentmine_sandbox::Sandbox;
use async_trait::async_trait;
use serde_json::{Map, Value};

use super::command::CommandTool;
use super::result::{cap_middle, failed};
use super::servers::{MAX_TOOLS, Servers, TEXT_EDITOR};
use crate::error::SessionError;
use crate::prepare::workspace::Workspace;
use crate::record::checkpoint::Checkpoints;
use crate::record::live::Progress;
use crate::session::context::SessionContext;

/// Bytes of one result of a built-in tool that the model is told, head and tail kept. A server's
/// results have `mcp.max_output_size`.
const MAX_RESULT: usize = 48 * 1024;
/// Bytes of all names, descriptions and schemas that go to the model with every request: about 32,000
/// tokens, a quarter of a common model's context. A server may describe itself at any length.
const MAX_SPECS: usize = 128 * 1024;
/// Calls named `text_editor_view` and so on are accepted too (spec 000 §3.2).
const EDITOR_COMMANDS: [&str; 5] = ["view", "create", "str_replace", "insert", "undo_edit"];

/// The tools of one session.
pub(crate) struct FleetTools<'a> {
    pub(crate) ctx: &'a SessionContext,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    /// `None` where it is switched off.
    pub(crate) command: Option<CommandTool>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) workspace: &'a Workspace,
    pub(crate) checkpoints: Checkpoints,
    /// Servers of which it was noted that something is left out.
    pub(crate) noted: Mutex<BTreeSet<String>>,
}

/// A tool that may be offered.
struct Offered {
    rank: Rank,
    server: String,
    spec: ToolSpec,
}

/// Who is offered first, where there is not room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    BuiltIn,
    Operators,
    Repositorys,
}

/// What a call's name means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Route {
    Command,
    /// With the command that the name itself gave.
    Editor(Option<&'static str>),
    Server {
        server: String,
        tool: String,
    },
    Unknown,
}

/// Whether a call may have changed the project's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    Untouched,
    PerhapsChanged,
}

#[async_trait]
impl Tools<SessionError> for FleetTools<'_> {
    async fn refresh(&self) -> Result<(), SessionError> {
        self.servers.refresh(self.ctx).await?;
        let left_out = self.offer().1;
        for server in left_out {
            if self.noted().insert(server.clone()) {
                self.ctx.note(&format!(
                    "MCP server {server}: not all of its tools are offered; the model is told of {MAX_TOOLS} tools and {MAX_SPECS} bytes about them at the most"
                )).await?;
            }
        }
        Ok(())
    }

    fn specs(&self) -> Vec<ToolSpec> {
        self.offer().0
    }

    fn take_usage(&self) -> Usage {
        self.servers.take_usage()
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolResult, SessionError> {
        self.ctx.live.show(Progress::ToolBegan {
            name: call.name.clone(),
            summary: summary(call),
        });
        let arguments = match arguments(call) {
            Ok(arguments) => arguments,
            Err(result) => return Ok(result),
        };
        let (mut result, files) = self.routed(self.route(&call.name), call, arguments).await?;
        self.workspace.authorized("git")?;
        // The model sees the same text as a reader of the transcript.
        result.text = self.redact(result.text);
        if files == Files::PerhapsChanged {
            self.checkpoint().await?;
        }
        Ok(result)
    }
}

impl FleetTools<'_> {
    /// What the model is told of, and the servers of which something is left out.
    fn offer(&self) -> (Vec<ToolSpec>, BTreeSet<String>) {
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
        let catalog = self.servers.catalog();
        let tools = catalog
            .tools()
            .into_iter()
            .filter(|(_, server, tool)| self.servers.offers(server, &tool.name))
            .map(|(wire, server, tool)| Offered {
                rank: match self.servers.owner(server) {
                    _ if self.servers.editor() == Some(server) => Rank::BuiltIn,
                    Owner::Operator => Rank::Operators,
                    Owner::Repository => Rank::Repositorys,
                },
                server: server.to_owned(),
                spec: ToolSpec {
                    name: wire.to_owned(),
                    description: tool.description.clone(),
                    input_schema: tool.input_schema.clone(),
                },
            });
        within_limits(built_in.chain(tools).collect())
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolved by tables; a name is taken apart only at the colon, which no wire name has.
    fn route(&self, name: &str) -> Route {
        let executor = &self.ctx.deps.config.command_executor.mcp_server.name;
        let editor = &self.ctx.deps.config.text_editor_mcp.mcp_server.name;
        let pair = name.split_once(':');
        if let Some(command) = &self.command
            && (command.name == name || pair == Some((executor, "execute_command")))
        {
            return Route::Command;
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
        let catalog = self.servers.catalog();
        // The table also knows the names of built-in tools that are not there.
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

    async fn routed(
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
                Ok((self.capped(result), Files::PerhapsChanged))
            }
            (Route::Editor(command), _) => {
                if let Some(command) = command {
                    arguments.insert("command".into(), command.into());
                }
                let files = match arguments.get("command").and_then(Value::as_str) {
                    Some("view") => Files::Untouched,
                    _ => Files::PerhapsChanged,
                };
                let editor = &self.ctx.deps.config.text_editor_mcp.mcp_server.name;
                let result = self.ask(editor, TEXT_EDITOR, arguments).await?;
                Ok((self.capped(result), files))
            }
            (Route::Server { server, tool }, _) => {
                let files = if self.servers.in_sandbox(&server) {
                    Files::PerhapsChanged
                } else {
                    Files::Untouched
                };
                Ok((self.ask(&server, &tool, arguments).await?, files))
            }
            (Route::Unknown | Route::Command, _) => {
                Ok((self.unknown(&call.name), Files::Untouched))
            }
        }
    }

    async fn ask(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolResult, SessionError> {
        let error = match self
            .servers
            .call(server, tool, Value::Object(arguments))
            .await
        {
            Ok(output) => {
                return Ok(ToolResult {
                    text: output.text,
                    is_error: output.is_error,
                });
            }
            Err(error) => error,
        };
        tracing::debug!(mcp.server = server, code = error.code(), "a call failed");
        if self.servers.in_sandbox(server) && server_is_gone(&error) {
            let answered = self.servers.sandbox_answers().await;
            answered.map_err(|error| SessionError::SandboxGone(error.to_string()))?;
        }
        Ok(ToolResult {
            text: error.for_model().to_string(),
            is_error: true,
        })
    }

    fn redact(&self, text: String) -> String {
        self.ctx.redactor.redact(text)
    }

    /// Redacted before it is cut: half a secret is not found any more.
    fn capped(&self, mut result: ToolResult) -> ToolResult {
        result.text = cap_middle(self.redact(result.text), MAX_RESULT);
        result
    }

    /// Stores the files as this call left them.
    async fn checkpoint(&self) -> Result<(), SessionError> {
        let next = self.ctx.journal.next_seq().await;
        if let Some(note) = self.checkpoints.take(next).await? {
            // A note that cannot be recorded is followed by a result that cannot be.
            let _ = self.ctx.note(&note).await;
        }
        Ok(())
    }

    fn unknown(&self, name: &str) -> ToolResult {
        let known: Vec<String> = self.specs().into_iter().map(|s| s.name).collect();
        failed(
            "unknown_tool",
            &format!(
                "there is no tool {name:.200?}. These are there: {}",
                known.join(", ")
            ),
        )
    }
}

/// Takes as many as there is room for, the first by rank and name first; one that does not fit makes
/// room for smaller ones behind it. Sorted by name.
fn within_limits(mut offered: Vec<Offered>) -> (Vec<ToolSpec>, BTreeSet<String>) {
    offered.sort_by(|a, b| (a.rank, &a.spec.name).cmp(&(b.rank, &b.spec.name)));
    let (mut specs, mut left_out, mut room) = (Vec::new(), BTreeSet::new(), MAX_SPECS);
    for Offered { rank, server, spec } in offered {
        let size = spec.name.len() + spec.description.len() + spec.input_schema.to_string().len();
        if rank == Rank::BuiltIn || specs.len() < MAX_TOOLS && size <= room {
            room = room.saturating_sub(size);
            specs.push(spec);
        } else {
            left_out.insert(server);
        }
    }
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    (specs, left_out)
}

/// Whether what became of the server may have become of its sandbox.
fn server_is_gone(error: &McpError) -> bool {
    match error {
        McpError::Process { .. } | McpError::Connection { .. } | McpError::Protocol { .. } => true,
        McpError::ToolExecution { fault, .. } => match fault {
            CallFault::Unavailable(_) => true,
            CallFault::Refused { .. } | CallFault::Timeout { .. } => false,
        },
        McpError::Configuration { .. } => false,
    }
}

/// The arguments as an object; anything else becomes an error for the model.
fn arguments(call: &ToolCall) -> Result<Map<String, Value>, ToolResult> {
    if call.arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(failed(
            "invalid_arguments",
            &format!(
                "the arguments are {}, expected a JSON object",
                kind_of(&other)
            ),
        )),
        Err(error) => Err(failed(
            "invalid_arguments",
            &format!("the arguments are not valid JSON: {error}. Write the call again."),
        )),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A call on one line, for a person who looks on.
fn summary(call: &ToolCall) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
    let field = |name: &str| arguments.get(name).and_then(Value::as_str);
    let text = match (field("command"), field("path")) {
        (Some(command), Some(path)) => format!("{command} {path}"),
        (Some(command), None) => command.to_owned(),
        (None, Some(path)) => path.to_owned(),
        (None, None) => String::new(),
    };
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 100 {
        line.chars().take(99).chain(['…']).collect()
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall {
            id: "1".into(),
            name: "x".into(),
            arguments: arguments.into(),
        }
    }

    #[test]
    fn malformed_arguments_are_told_and_not_guessed() {
        assert!(arguments(&call(r#"{"command":"ls"}"#)).is_ok());
        assert!(arguments(&call("")).is_ok());
        for bad in [r#"{"command":"#, "[1]", "null", "ls"] {
            let result = arguments(&call(bad)).unwrap_err();
            assert!(result.is_error, "{bad}");
            assert!(result.text.contains("JSON"), "{}", result.text);
        }
    }

    #[test]
    fn a_long_result_keeps_head_and_tail_on_character_boundaries() {
        let text = format!("begin{}end", "é".repeat(1000));
        let cut = cap_middle(text, 101);
        assert!(cut.starts_with("begin") && cut.ends_with("end"));
        assert!(cut.contains("bytes cut"));
        assert!(cut.len() < 200);
    }

    #[test]
    fn a_summary_is_one_short_line() {
        assert_eq!(
            summary(&call(r#"{"command":"view","path":"/workspace/a"}"#)),
            "view /workspace/a"
        );
        assert_eq!(summary(&call(r#"{"command":"a\nb"}"#)), "a b");
        assert_eq!(summary(&call("nonsense")), "");
    }

    fn offered(rank: Rank, name: &str, size: usize) -> Offered {
        Offered {
            rank,
            server: format!("of {name}"),
            spec: ToolSpec {
                name: name.into(),
                description: "x".repeat(size),
                input_schema: json!({}),
            },
        }
    }

    #[test]
    fn a_repositorys_tools_crowd_out_nobody_elses() {
        let (specs, left_out) = within_limits(vec![
            offered(Rank::Repositorys, "a_big", MAX_SPECS - 100),
            offered(Rank::Repositorys, "b_small", 50),
            offered(Rank::Operators, "c", 1000),
            offered(Rank::BuiltIn, "text_editor", 1000),
        ]);
        let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["b_small", "c", "text_editor"]);
        assert_eq!(left_out, BTreeSet::from(["of a_big".to_owned()]));
        let many = (0..MAX_TOOLS + 5).map(|n| offered(Rank::Repositorys, &format!("a{n:03}"), 1));
        let more = [
            offered(Rank::Operators, "z", 1),
            offered(Rank::BuiltIn, "zz", 1),
        ];
        let (specs, left_out) = within_limits(many.chain(more).collect());
        assert_eq!(specs.len(), MAX_TOOLS);
        assert_eq!(specs.last().unwrap().name, "zz");
        assert_eq!(left_out.len(), 7);
    }

    #[test]
    fn a_refusal_and_a_late_answer_say_nothing_of_the_sandbox() {
        let fault = |fault| McpError::ToolExecution {
            server: "a".into(),
            tool: "b".into(),
            fault,
        };
        let after = std::time::Duration::from_secs(1);
        assert!(!server_is_gone(&fault(CallFault::Timeout { after })));
        assert!(server_is_gone(&fault(CallFault::Unavailable("x".into()))));
        assert!(server_is_gone(&McpError::Protocol {
            server: "a".into(),
            detail: "the connection ended".into(),
        }));
    }
}
