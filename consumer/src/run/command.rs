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
    policy: Arc<ShellPolicy>,
}

#[derive(Debug, Deserialize)]
struct ExecuteCommand {
    command: String,
    #[serde(default)]
    working_directory: Option<String>,
    #[serde(default)]
    timeout: Option<f64>,
}

/// The operator's lists as a policy. An empty entry matches nothing.
fn policy(execution: &Execution) -> ShellPolicy {
    let rules = |rules: &[String]| -> Vec<String> {
        let written = rules.iter().filter(|rule| !rule.trim().is_empty());
        written.cloned().collect()
    };
    let deny = rules(&execution.denied_commands);
    let ask = rules(&execution.ask_commands);
    let allow = rules(&execution.allowed_commands);
    ShellPolicy::new(BuiltinRules::Ignore, &deny, &ask, &allow).unwrap_or_default()
}

/// The answer to the model when a rule refuses a command; `None` if the command may run. Nobody is there to
/// ask, so that a rule that asks refuses too.
fn refusal(verdict: ShellVerdict) -> Option<ToolResult> {
    let (code, text) = match verdict {
        ShellVerdict::Allow => return None,
        ShellVerdict::Ask(why) => (
            "command_needs_approval",
            format!(
                "The command was not run: {why}, and nobody is available to ask. Reach the goal without it; if that \
                 is not possible, describe in your last message what a person must run and why \
                 (config: command_executor.execution.ask_commands)"
            ),
        ),
        ShellVerdict::Deny(Refusal::Rule { rule, program }) => (
            "command_denied",
            format!(
                "`{program}` may not be run here: the operator's rule {rule:?} denies it, and the command was not run. \
                 Reach the goal without it (spec 001 §6.3; config: command_executor.execution.denied_commands)"
            ),
        ),
        ShellVerdict::Deny(refusal @ (Refusal::Unclear(_) | Refusal::Builtin(_))) => {
            ("command_denied", refusal.to_string())
        }
    };
    Some(failed(code, &text))
}

impl CommandTool {
    /// The tool, unless it is disabled.
    pub(crate) fn of(config: &CommandExecutor) -> Option<Self> {
        config.enabled.then(|| Self {
            name: format!("{}_execute_command", config.mcp_server.name),
            policy: Arc::new(policy(&config.execution)),
            execution: config.execution.clone(),
        })
    }

    /// What the operator's rules say about a command. This is not a security boundary; the sandbox is. It
    /// gives the model an immediate, clear error instead of a permission error later, so what cannot be
    /// parsed, and what only a running shell knows, is left to the shell.
    async fn refused(&self, command: &str) -> Option<ToolResult> {
        let (policy, command) = (self.policy.clone(), command.to_owned());
        let judged =
            tokio::task::spawn_blocking(move || policy.judge(ShellCommand::Script(&command)));
        judged.await.ok().and_then(refusal)
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
        if let Some(refusal) = self.refused(&request.command).await {
            return Ok(refusal);
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
        metrics::counter!("agentmine_command_timeouts_total").increment(1);
        let error = format!("the command exceeded its time limit of {time_limit} s and was killed");
        result["error"] = error.into();
    }
    ToolResult {
        text: result.to_string(),
        is_error: done.timed_out,
    }
}
