//! `shell_exec`: runs a command (spec 004 §3).
//!
//! Without `args`, `command` is a script for `/bin/sh -c`; with `args` it is a program that gets them as
//! they are, and no shell is between. [`ShellPolicy`] decides what is run, what is asked for and what is
//! refused; it is a guard rail and no sandbox.
//!
//! A question to the user goes the way that the client's era has for it: a request of its own up to
//! 2025-11-25, an answer that wants input from 2026-07-28 on. An agreement holds once, for the very call
//! that it was asked for. Where the client cannot ask its user, what would be asked for is refused.

mod ask;
mod capture;
pub(crate) mod process;
mod relatives;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use agentmine_shell_policy::{BuiltinRules, ShellCommand, ShellPolicy, ShellVerdict};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::host::ShellOptions;
use crate::one_tool::{Arguments, OneTool, done, failed};
use crate::paths::OpenRoots;
use ask::{Answer, Questions};
use process::{End, Job, Outcome};

/// Longest command with all its arguments, in bytes. The kernel takes no longer argument either.
const MAX_CALL: usize = 128 * 1024;

pub(crate) struct ShellExec {
    roots: OpenRoots,
    timeout: Duration,
    policy: Arc<ShellPolicy>,
    questions: Questions,
    ended: CancellationToken,
}

/// A call, as asked for.
struct Call {
    command: String,
    args: Vec<String>,
    cwd: Option<String>,
}

impl ShellExec {
    /// Opens the folders and reads the rules.
    ///
    /// # Errors
    /// When one of them is faulty.
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

    /// Cancelled when the server ends: all that runs is killed then.
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
        let outcome = Box::pin(process::run(job, &context.ct, &self.ended)).await;
        let outcome = outcome.map_err(|error| not_started(&program, &error))?;
        let Outcome {
            end,
            stdout,
            stderr,
        } = outcome;
        match end {
            End::Exited(code) => Ok(done(json!({
                "stdout": stdout.text,
                "stderr": stderr.text,
                "exitCode": code,
            }))),
            End::TimedOut => Err(format!(
                "{shown} was killed with all that it had started, since it ran longer than {} s: \
                 run less at once, or start the server with a larger --timeout\nstdout so far:\n{}\n\
                 stderr so far:\n{}",
                self.timeout.as_secs_f64(),
                stdout.text,
                stderr.text
            )),
            End::Cancelled => Err(format!("{shown} was killed, since the call was cancelled")),
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
                "command and args have {length} bytes and at most {MAX_CALL} are taken: write what \
                 is long to a file"
            ));
        }
        match texts.into_iter().any(|text| text.contains('\0')) {
            true => Err("command or args have a NUL character: remove it".to_owned()),
            false => Ok(call),
        }
    }

    /// Judged on another thread: a hostile line may take long.
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
            .map_err(|error| format!("the command could not be judged: {error}"))
    }

    /// All of it, to bind an agreement to.
    fn identity(&self) -> String {
        json!([self.command, self.args, self.cwd]).to_string()
    }

    /// As it is told: on one line, and not endless.
    fn shown(&self) -> String {
        const MOST: usize = 2000;
        let whole = match self.args.is_empty() {
            true => format!("{:?}", self.command),
            false => format!("{:?} with {:?}", self.command, self.args),
        };
        match whole.char_indices().nth(MOST) {
            Some((at, _)) => format!("{}... ({} bytes)", &whole[..at], whole.len()),
            None => whole,
        }
    }
}

fn not_started(program: &str, error: &std::io::Error) -> String {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound if program.contains(' ') => {
            "with args, command is the name of a program alone: put its arguments into args, or give \
             the whole line as command and no args"
        }
        std::io::ErrorKind::NotFound => "check the name, or whether the program is installed",
        _ => "check the program and its permissions",
    };
    format!("{program} could not be started: {error}: {hint}")
}
