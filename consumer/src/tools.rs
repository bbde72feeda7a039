//! The tools that the model sees: the text editor and the command tool, in the sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::{Journal as _, Record, ToolFault, ToolResult, Tools};
use agentmine_gateway::Gateway;
use agentmine_llm::{ToolCall, ToolSpec};
use agentmine_mcp::Client;
use agentmine_runtime::config::Execution;
use agentmine_sandbox::{Command, Sandbox, SandboxError};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::checkpoint::Checkpoints;
use crate::journal::SessionJournal;
use crate::policy::check_command;
use crate::progress::Progress;

/// Bytes of one result that the model is told, head and tail kept.
const MAX_RESULT: usize = 48 * 1024;
const TEXT_EDITOR: &str = "text_editor";
/// Calls named `text_editor_view` and so on are accepted too (spec 000 §3.2).
const EDITOR_COMMANDS: [&str; 5] = ["view", "create", "str_replace", "insert", "undo_edit"];

/// The tools of one session.
pub(crate) struct FleetTools {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) editor: Option<Client>,
    /// The command tool's wire name, or `None` where it is switched off.
    pub(crate) command_tool: Option<String>,
    pub(crate) execution: Execution,
    pub(crate) gateway: Gateway,
    pub(crate) journal: Arc<SessionJournal>,
    pub(crate) checkpoints: Checkpoints,
}

#[derive(Debug, Deserialize)]
struct ExecuteCommand {
    command: String,
    #[serde(default)]
    working_directory: Option<String>,
    #[serde(default)]
    timeout: Option<f64>,
}

#[async_trait]
impl Tools for FleetTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let mut specs: Vec<ToolSpec> = self
            .command_tool
            .iter()
            .map(|name| command_spec(name, &self.execution))
            .collect();
        if let Some(editor) = &self.editor {
            specs.extend(
                editor
                    .tools()
                    .iter()
                    .filter(|t| t.name == TEXT_EDITOR)
                    .map(|tool| ToolSpec {
                        name: TEXT_EDITOR.into(),
                        description: tool.description.clone(),
                        input_schema: tool.input_schema.clone(),
                    }),
            );
        }
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolResult, ToolFault> {
        self.journal.tell(Progress::ToolBegan {
            name: call.name.clone(),
            summary: summary(call),
        });
        let arguments = match arguments(call) {
            Ok(arguments) => arguments,
            Err(result) => return Ok(result),
        };
        let editor_command = call
            .name
            .strip_prefix("text_editor_")
            .filter(|c| EDITOR_COMMANDS.contains(c));
        let (mut result, changes) = if self.command_tool.as_deref() == Some(call.name.as_str()) {
            (self.execute(arguments).await?, true)
        } else if call.name == TEXT_EDITOR || editor_command.is_some() {
            let mut arguments = arguments;
            if let Some(command) = editor_command {
                arguments.insert("command".into(), command.into());
            }
            let changes = arguments.get("command").and_then(Value::as_str) != Some("view");
            (self.edit(arguments).await, changes)
        } else {
            (self.unknown(&call.name), false)
        };
        if let Some(status) = self.gateway.auth_refused() {
            return Err(ToolFault::Hopeless(format!(
                "git: the tracker refused the worker's credentials (HTTP {status}). hint: the token is expired or may not write to this repository"
            )));
        }
        result.text = cap_middle(result.text, MAX_RESULT);
        if changes {
            self.checkpoint().await?;
        }
        Ok(result)
    }
}

impl FleetTools {
    /// Keeps the files as this call left them.
    async fn checkpoint(&self) -> Result<(), ToolFault> {
        let next = self.journal.next_seq().await;
        let noted = self
            .checkpoints
            .take(next)
            .await
            .map_err(ToolFault::Broken)?;
        if let Some(note) = noted {
            // A note that cannot be recorded is followed by a result that cannot be.
            let _ = self.journal.record(Record::Note(&note), 0).await;
        }
        Ok(())
    }

    async fn execute(&self, arguments: Map<String, Value>) -> Result<ToolResult, ToolFault> {
        let request: ExecuteCommand = match serde_json::from_value(Value::Object(arguments)) {
            Ok(request) => request,
            Err(error) => {
                return Ok(failed(format!(
                    "the arguments do not fit: {error}. Expected `command` (string), `working_directory` (string, optional), `timeout` (seconds, optional)."
                )));
            }
        };
        if let Err(denied) = check_command(&request.command, &self.execution.denied_commands) {
            return Ok(failed(denied.to_string()));
        }
        let limit = self.execution.timeout_seconds as f64;
        let seconds = request
            .timeout
            .filter(|t| t.is_finite() && *t > 0.0)
            .unwrap_or(limit)
            .min(limit);
        let command = Command {
            argv: vec!["/bin/sh".into(), "-c".into(), request.command],
            cwd: request
                .working_directory
                .unwrap_or_else(|| "/workspace/project".into()),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            timeout: Duration::from_secs_f64(seconds),
            max_output: self.execution.max_output_size,
        };
        match self.sandbox.run(command).await {
            Ok(done) => {
                let mut result = json!({
                    "exit_code": done.exit_code,
                    "stdout": cap_middle(String::from_utf8_lossy(&done.stdout).into_owned(), MAX_RESULT / 2),
                    "stderr": cap_middle(String::from_utf8_lossy(&done.stderr).into_owned(), MAX_RESULT / 3),
                    "duration_ms": millis(done.duration),
                });
                if done.timed_out {
                    result["error"] =
                        format!("the command was killed at its time limit of {seconds} s").into();
                }
                Ok(ToolResult {
                    text: result.to_string(),
                    is_error: done.timed_out,
                })
            }
            Err(SandboxError::Failed(reason)) => Ok(failed(reason)),
            Err(error) => Err(ToolFault::Broken(error.to_string())),
        }
    }

    async fn edit(&self, arguments: Map<String, Value>) -> ToolResult {
        let Some(editor) = &self.editor else {
            return self.unknown(TEXT_EDITOR);
        };
        match editor.call(TEXT_EDITOR, Value::Object(arguments)).await {
            Ok(output) => ToolResult {
                text: output.text,
                is_error: output.is_error,
            },
            Err(error) => failed(error.to_string()),
        }
    }

    fn unknown(&self, name: &str) -> ToolResult {
        let known: Vec<String> = self.specs().into_iter().map(|s| s.name).collect();
        failed(format!(
            "there is no tool {name:?}. These are there: {}",
            known.join(", ")
        ))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn failed(message: String) -> ToolResult {
    let text = json!({ "status": "error", "error": { "message": message } }).to_string();
    ToolResult {
        text,
        is_error: true,
    }
}

/// The arguments as an object; what is not one is told to the model.
fn arguments(call: &ToolCall) -> Result<Map<String, Value>, ToolResult> {
    if call.arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(failed(format!(
            "the arguments are {}, expected a JSON object",
            kind_of(&other)
        ))),
        Err(error) => Err(failed(format!(
            "the arguments are not valid JSON: {error}. Write the call again."
        ))),
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

fn command_spec(name: &str, execution: &Execution) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description:
            "Run a shell command in the sandbox and get its exit code, stdout, stderr and duration."
                .into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "description": "The shell line to run." },
                "working_directory": { "type": "string", "description": "Where to run it; /workspace/project unless given." },
                "timeout": { "type": "number", "description": format!("Seconds, at most {}.", execution.timeout_seconds) }
            },
            "required": ["command"],
            "additionalProperties": false
        }),
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

/// Keeps head and tail, and says how much was cut.
pub(crate) fn cap_middle(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let mut head = max / 2;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - max / 2;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!(
        "{}\n[… {} bytes cut …]\n{}",
        &text[..head],
        tail - head,
        &text[tail..]
    )
}

#[cfg(test)]
mod tests {
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
}
