//! Servers as processes of this machine.
//!
//! Guaranteed: a server gets only the variables in [`ALLOWED_ENV`] of our environment; it has its own session
//! and no terminal; when it is stopped or dropped, nothing that it started is left, in whatever group or session
//! that is. If this process is killed (SIGKILL), the kernel kills the server, and the processes that the server
//! has started see the end of their stdin.
//!
//! What a server started is found among its descendants and by a mark in the environment ([`Family`]). Accepted:
//! a process that cleared its environment and whose parents all ended before the first look is not found.
//!
//! [`Family`]: agentmine_process::Family

mod command;
mod environment;
mod running;
mod spawn;
mod stderr;
mod stream;

#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;
use std::process::Stdio;

use agentmine_process::Mark;
use async_trait::async_trait;
use tokio::process::Command;

use crate::config::{ServerConfig, ServerPlace, Transport};
use crate::{Launched, Launcher, McpError, ProcessFault, watch};

use command::{resolve, search_path};
pub use environment::ALLOWED_ENV;
use running::WorkerProcess;

/// The variable that marks a server and all processes that it starts.
const MARK: &str = "AGENTMINE_MCP_RUN";

/// Looks up an environment variable.
type Lookup = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Starts servers on this machine.
pub struct WorkerLauncher {
    cwd: PathBuf,
    env: Lookup,
}

impl WorkerLauncher {
    /// Servers start in the folder `cwd`, with the variables of [`ALLOWED_ENV`] that `env` has.
    pub fn new(cwd: PathBuf, env: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            // A relative path would be applied twice: to find a program, and to start it.
            cwd: std::path::absolute(&cwd).unwrap_or(cwd),
            env: Box::new(env),
        }
    }
}

#[async_trait]
impl Launcher for WorkerLauncher {
    async fn launch(&self, server: &ServerConfig) -> Result<Launched, McpError> {
        let failed = |detail: String| McpError::Process {
            server: server.name.clone(),
            what: ProcessFault::Start,
            detail,
            stderr: String::new(),
        };
        let Transport::Stdio {
            command,
            env,
            place: ServerPlace::Worker,
        } = &server.transport
        else {
            return Err(failed("it is not configured to run on the worker".into()));
        };
        let Some((program, args)) = command.split_first() else {
            return Err(failed("its command is empty".into()));
        };
        let variables = environment::of(&self.env, env);
        let path = search_path(variables.get("PATH").map(String::as_str));
        let file = resolve(program, &self.cwd, &path).map_err(&failed)?;
        if !self.cwd.is_dir() {
            return Err(failed(format!("{} is not a folder", self.cwd.display())));
        }
        let mark = Mark::new(MARK);
        let (mark_name, mark_value) = mark.variable();
        let mut command = Command::new(&file);
        command
            .args(args)
            .env_clear()
            .envs(&variables)
            .env(mark_name, mark_value)
            .current_dir(&self.cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = spawn::spawn(command)
            .await
            .map_err(|error| failed(command::refusal(&file, &error)))?;
        let secrets = environment::secrets(env);
        WorkerProcess::adopt(&server.name, child, mark, secrets).map_err(failed)
    }

    fn files(&self, server: &ServerConfig) -> Vec<PathBuf> {
        let Transport::Stdio {
            command,
            env,
            place: ServerPlace::Worker,
        } = &server.transport
        else {
            return Vec::new();
        };
        let path = environment::of(&self.env, env).remove("PATH");
        let file = command.split_first().and_then(|(program, args)| {
            let program = resolve(program, &self.cwd, &search_path(path.as_deref())).ok()?;
            Some(watch::files_of(&program, args, &self.cwd))
        });
        file.unwrap_or_default()
    }
}
