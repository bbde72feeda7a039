//! `shell_exec`: runs a command (spec 004 §3).
//!
//! Without `args`, `command` is a script for `/bin/sh -c`; with `args` it is a program that gets them unchanged,
//! without a shell. [`ShellPolicy`] decides which commands run, need the user's agreement, or are refused. It
//! prevents mistakes; it is not a sandbox.
//!
//! How the user is asked depends on the client's protocol version: up to 2025-11-25 by a separate request, from
//! 2026-07-28 on by a response that requires input. An agreement is valid once, for the call that it was
//! requested for. If the client cannot ask its user, the command is refused.

mod ask;
mod capture;
pub(crate) mod environment;
mod options;
mod process;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use agentmine_shell_policy::{BuiltinRules, ShellCommand, ShellPolicy, ShellVerdict};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::one_tool::{Arguments, OneTool, done, failed};
use crate::paths::OpenRoots;
use ask::{Answer, Questions};
pub use options::ShellOptions;
use process::{Job, JobEnd, JobResult};

/// Maximum length of a command with all its arguments, in bytes. It is also the kernel's limit for one argument.
const MAX_CALL: usize = 128 * 1024;

pub(crate) struct ShellExec {
    roots: OpenRoots,
    timeout: Duration,
    policy: Arc<ShellPolicy>,
    questions: Questions,
    ended: CancellationToken,
}

/// A call, as requested.
struct Call {
    command: String,
    args: Vec<String>,
    cwd: Option<String>,
}

impl ShellExec {
    /// Opens the folders and parses the rules.
    ///
    /// # Errors
    /// When a folder cannot be opened or a rule is malformed.
    pub(crate) fn new(options: &ShellOptions) -> anyhow::Result<Self> {
        Ok(Self {
            roots: OpenRoots::open(&options.roots)?,
            timeout: options.timeout,
            policy: Arc::new(ShellPolicy::new(
                BuiltinRules::Apply,
                &options.deny,
                &options.ask,
                &options.allow,
            )?),
            questions: Questions::default(),
            ended: CancellationToken::new(),
        })
    }

    /// To be cancelled when the server ends: all running commands are killed then.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    async fn answer(
        &self,
        mut request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, String> {
        let call = Call::read(&mut request)?;
        let (call, verdict) = call.judge(self.policy.clone()).await?;
        match verdict {
            ShellVerdict::Allow => {}
            ShellVerdict::Deny(why) => {
                return Err(format!("{} was not run: {why}", call.shown()));
            }
            ShellVerdict::Ask(why) => {
                let answer = self
                    .questions
                    .ask(&call.shown(), &why, &call.identity(), &request, context)
                    .await;
                match answer {
                    Answer::Agreed => {}
                    Answer::Later(question) => return Ok(question.into()),
                    Answer::Refused(refusal) => {
                        return Err(format!("{} was not run: {refusal}", call.shown()));
                    }
                }
            }
        }
        Ok(self.run(call, context).await?.into())
    }

    async fn run(
        &self,
        call: Call,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let cwd = match &call.cwd {
            Some(cwd) => self.roots.open_folder(cwd),
            None => self.roots.start(),
        };
        let cwd = cwd.map_err(|error| format!("cwd: {error}"))?;
        let shown = call.shown();
        let (program, args) = match call.args.is_empty() {
            true => ("/bin/sh".to_owned(), vec!["-c".to_owned(), call.command]),
            false => (call.command, call.args),
        };
        let job = Job {
            program: program.clone().into(),
            args: args.into_iter().map(Into::into).collect(),
            cwd,
            timeout: self.timeout,
        };
        let result = Box::pin(process::run(job, &context.ct, &self.ended)).await;
        let JobResult {
            end,
            stdout,
            stderr,
        } = result.map_err(|error| not_started(&program, &error))?;
        match end {
            JobEnd::Exited(code) => Ok(done(json!({
                "stdout": stdout,
                "stderr": stderr,
                "exitCode": code,
            }))),
            JobEnd::TimedOut => Err(format!(
                "{shown} was killed with all processes that it had started, because it ran longer than \
                 {} s: run less at once, or start the server with a larger --timeout\nstdout so far:\n\
                 {stdout}\nstderr so far:\n{stderr}",
                self.timeout.as_secs_f64()
            )),
            JobEnd::Cancelled => Err(format!(
                "{shown} was killed, because the call was cancelled"
            )),
        }
    }
}

impl OneTool for ShellExec {
    const SERVER: &'static str = "mcp-server-shell-exec";
    const DEFINITION: &'static str = include_str!("tool.json");

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> CallToolResponse {
        match self.answer(request, &context).await {
            Ok(response) => response,
            Err(message) => failed(message).into(),
        }
    }
}

impl Call {
    fn read(request: &mut CallToolRequestParams) -> Result<Self, String> {
        let arguments = Arguments::new(request.arguments.take(), &["command", "args", "cwd"])?;
        let command = arguments.required("command", "the command to run, e.g. \"ls -l\"")?;
        let call = Self {
            command: command.to_owned(),
            args: arguments.texts("args")?,
            cwd: arguments.text("cwd")?.map(str::to_owned),
        };
        if call.command.trim().is_empty() {
            return Err("command is empty: give a command, e.g. \"ls -l\"".to_owned());
        }
        let texts = std::iter::once(&call.command).chain(&call.args);
        let length: usize = texts.clone().map(|text| text.len() + 1).sum();
        if length > MAX_CALL {
            return Err(format!(
                "command and args have {length} bytes, and the limit is {MAX_CALL}: write long content \
                 to a file"
            ));
        }
        match texts.into_iter().any(|text| text.contains('\0')) {
            true => Err("command or args contain a NUL character: remove it".to_owned()),
            false => Ok(call),
        }
    }

    /// Applies the policy, on another thread: a hostile command line may take long.
    async fn judge(self, policy: Arc<ShellPolicy>) -> Result<(Self, ShellVerdict), String> {
        let judged = tokio::task::spawn_blocking(move || {
            let verdict = policy.judge(match self.args.is_empty() {
                true => ShellCommand::Script(&self.command),
                false => ShellCommand::Program {
                    name: &self.command,
                    args: &self.args,
                },
            });
            (self, verdict)
        });
        judged
            .await
            .map_err(|error| format!("the policy could not be applied to the command: {error}"))
    }

    /// Identifies the call, to bind an agreement to it.
    fn identity(&self) -> String {
        json!([self.command, self.args, self.cwd]).to_string()
    }

    /// For messages: on one line, and truncated.
    fn shown(&self) -> String {
        const MAX_SHOWN: usize = 2000;
        let whole = match self.args.is_empty() {
            true => format!("{:?}", self.command),
            false => format!("{:?} with {:?}", self.command, self.args),
        };
        match whole.char_indices().nth(MAX_SHOWN) {
            Some((at, _)) => format!("{}... ({} bytes)", &whole[..at], whole.len()),
            None => whole,
        }
    }
}

fn not_started(program: &str, error: &std::io::Error) -> String {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound if program.contains(' ') => {
            "with args, command must be the name of a program only: put its arguments into args, or give \
             the whole line as command without args"
        }
        std::io::ErrorKind::NotFound => "check the name, or whether the program is installed",
        _ => "check the program and its permissions",
    };
    format!("{program} could not be started: {error}: {hint}")
}
