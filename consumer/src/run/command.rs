//! The command tool: runs shell commands in the sandbox (spec 001 §3).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::ToolResult;
use agentmine_llm::ToolSpec;
use agentmine_process::SEE_ALL;
use agentmine_runtime::config::{CommandExecutor, Execution};
use agentmine_sandbox::{Command, CommandResult, Sandbox, SandboxError};
use agentmine_shell_policy::{BuiltinRules, Refusal, ShellCommand, ShellPolicy, ShellVerdict};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::result::failed;
use crate::error::SessionError;
use crate::record::journal::millis;
use crate::record::redact::{Outputs, Redactor};

/// The command tool.
pub(crate) struct CommandTool {
    /// Its wire name.
    pub(crate) name: String,
    execution: Execution,
    denied: Arc<ShellPolicy>,
}

#[derive(Debug, Deserialize)]
struct ExecuteCommand {
    command: String,
    #[serde(default)]
    working_directory: Option<String>,
    #[serde(default)]
    timeout: Option<f64>,
}

/// The operator's list as a policy. An empty entry denies nothing.
fn denied(programs: &[String]) -> ShellPolicy {
    let rules: Vec<String> = programs
        .iter()
        .filter(|p| !p.trim().is_empty())
        .cloned()
        .collect();
    ShellPolicy::new(BuiltinRules::Ignore, &rules, &[], &[]).unwrap_or_default()
}

impl CommandTool {
    /// The tool, unless it is disabled.
    pub(crate) fn of(config: &CommandExecutor) -> Option<Self> {
        config.enabled.then(|| Self {
            name: format!("{}_execute_command", config.mcp_server.name),
            denied: Arc::new(denied(&config.execution.denied_commands)),
            execution: config.execution.clone(),
        })
    }

    /// The denied program that a command would run. This is not a security boundary; the sandbox is. It
    /// gives the model an immediate, clear error instead of a permission error later, so what cannot be
    /// parsed is left to the shell.
    async fn denied_program(&self, command: &str) -> Option<String> {
        let (policy, command) = (self.denied.clone(), command.to_owned());
        let judged =
            tokio::task::spawn_blocking(move || policy.judge(ShellCommand::Script(&command)));
        match judged.await {
            Ok(ShellVerdict::Deny(Refusal::Rule { program, .. })) => Some(program),
            _ => None,
        }
    }

    pub(crate) fn spec(&self) -> ToolSpec {
        ToolSpec {
        name: self.name.clone(),
        description:
            "Run a shell command in the sandbox. Returns its exit code, stdout, stderr and duration."
                .into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "description": "The shell command to run." },
                "working_directory": { "type": "string", "description": "Working directory. Default: /workspace/project." },
                "timeout": { "type": "number", "description": format!("Time limit in seconds, at most {}.", self.execution.timeout_seconds) }
            },
            "required": ["command"],
            "additionalProperties": false
        }),
    }
    }

    /// Runs a command until it exits or reaches its time limit. Its output is redacted, then cut. Dropping the
    /// future kills the process group.
    pub(crate) async fn execute(
        &self,
        sandbox: &dyn Sandbox,
        arguments: Map<String, Value>,
        redactor: &Redactor,
    ) -> Result<ToolResult, SessionError> {
        let request: ExecuteCommand = match serde_json::from_value(Value::Object(arguments)) {
            Ok(request) => request,
            Err(error) => {
                return Ok(failed(
                    "invalid_arguments",
                    &format!(
                        "invalid arguments: {error}. Expected `command` (string), `working_directory` (string, optional), `timeout` (seconds, optional)."
                    ),
                ));
            }
        };
        if let Some(program) = self.denied_program(&request.command).await {
            return Ok(failed(
                "command_denied",
                &format!(
                    "`{program}` may not be run here (spec 001 §6.3; config: command_executor.execution.denied_commands)"
                ),
            ));
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
            max_output: redactor.capture(self.execution.max_output_size),
        };
        match sandbox.run(command).await {
            Ok(done) => {
                let max = self.execution.max_output_size;
                let outputs = redactor.outputs(&done, max, SEE_ALL);
                Ok(tool_result(&done, outputs, seconds))
            }
            Err(SandboxError::Failed(reason)) => Ok(failed("command_failed", &reason)),
            Err(error) => Err(SessionError::SandboxGone(error.to_string())),
        }
    }
}

/// The result of a command for the model.
fn tool_result(done: &CommandResult, outputs: Outputs, time_limit: f64) -> ToolResult {
    let mut result = json!({
        "exit_code": done.exit_code,
        "stdout": outputs.stdout,
        "stderr": outputs.stderr,
        "duration_ms": millis(done.duration),
    });
    if done.timed_out {
        let error = format!("the command exceeded its time limit of {time_limit} s and was killed");
        result["error"] = error.into();
    }
    ToolResult {
        text: result.to_string(),
        is_error: done.timed_out,
    }
}
