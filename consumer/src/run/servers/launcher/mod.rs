//! Starts MCP servers inside a sandbox, through its guest.
//!
//! A server in a sandbox has no process on the worker: its stdin and stdout are a stream of the tunnel,
//! and the guest reports how it exited and kills its processes. After [`SandboxLauncher::detach`]
//! nothing waits for the sandbox any more: it is about to be removed together with everything in it,
//! even if it is frozen and cannot answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentmine_mcp::config::{ServerConfig, Transport};
use agentmine_mcp::{Launched, Launcher, McpError, ProcessFault, ServerProcess};
use agentmine_runtime::config::Secret;
use agentmine_sandbox::{Sandbox, SandboxError};
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::record::redact::Redactor;
use crate::record::secret::looks_secret;

/// How long to wait for a sandbox to return a server's stderr.
const STDERR_LIMIT: Duration = Duration::from_secs(5);

/// Starts MCP servers inside one sandbox.
pub struct SandboxLauncher {
    sandbox: Arc<dyn Sandbox>,
    detached: CancellationToken,
}

impl SandboxLauncher {
    /// Starts servers in `sandbox`.
    #[must_use]
    pub fn new(sandbox: Arc<dyn Sandbox>) -> Self {
        Self {
            sandbox,
            detached: CancellationToken::new(),
        }
    }

    /// Checks that the sandbox still answers.
    ///
    /// # Errors
    /// Returns why it does not. A refused request is an answer.
    pub async fn answers(&self) -> Result<(), SandboxError> {
        match self
            .sandbox
            .get_file("/workspace/project/.git/HEAD", 1024)
            .await
        {
            Ok(_) | Err(SandboxError::Failed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Stops waiting for anything in the sandbox. Call this right before it is removed.
    pub fn detach(&self) {
        self.detached.cancel();
    }
}

#[async_trait]
impl Launcher for SandboxLauncher {
    async fn launch(&self, server: &ServerConfig) -> Result<Launched, McpError> {
        let failed = |detail: String| McpError::Process {
            server: server.name.clone(),
            what: ProcessFault::Start,
            detail,
            stderr: String::new(),
        };
        let Transport::Stdio { command, env, .. } = &server.transport else {
            return Err(failed("only a command can be started in a sandbox".into()));
        };
        let secrets = stderr_redactor(env);
        let env: BTreeMap<String, String> = env
            .iter()
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect();
        let started = tokio::select! {
            () = self.detached.cancelled() => return Err(failed("the sandbox is being removed".into())),
            started = self.sandbox.start_stdio(command.clone(), env) => started,
        };
        let program = started.map_err(|error| failed(error.to_string()))?;
        Ok(Launched {
            stream: Box::new(program.stream),
            process: Box::new(SandboxProcess {
                sandbox: Arc::clone(&self.sandbox),
                detached: self.detached.clone(),
                id: program.id,
                exited: AtomicBool::new(false),
                secrets,
            }),
        })
    }
}

/// A server inside a sandbox.
struct SandboxProcess {
    sandbox: Arc<dyn Sandbox>,
    detached: CancellationToken,
    id: u64,
    exited: AtomicBool,
    /// Redacts the values of the entry's environment in its stderr.
    secrets: Redactor,
}

/// Redacts the values of `env`, whole and line by line, except paths.
fn stderr_redactor(env: &BTreeMap<String, Secret>) -> Redactor {
    let is_path = |value: &str| value.starts_with('/') && !looks_secret(value);
    let values = env.values().map(Secret::expose);
    Redactor::new(
        values
            .filter(|value| !is_path(value))
            .flat_map(|value| std::iter::once(value).chain(value.lines()))
            .map(Secret::new),
    )
}

#[async_trait]
impl ServerProcess for SandboxProcess {
    async fn stderr(&self) -> String {
        let request = tokio::time::timeout(STDERR_LIMIT, self.sandbox.stdio_stderr(self.id));
        tokio::select! {
            () = self.detached.cancelled() => String::new(),
            answer = request => {
                let stderr = answer.ok().and_then(Result::ok).unwrap_or_default();
                self.secrets.redact(stderr)
            }
        }
    }

    async fn ended(&self) -> String {
        let how = match self.sandbox.stdio_ended(self.id).await {
            Ok(end) => end.to_string(),
            // The guest forgets processes that exited long ago.
            Err(SandboxError::Failed(_)) => "it has exited".to_owned(),
            Err(error) => error.to_string(),
        };
        self.exited.store(true, Ordering::Relaxed);
        how
    }

    async fn stop(&self, grace: Duration) {
        tokio::select! {
            () = self.detached.cancelled() => {}
            stopped = self.sandbox.stop_stdio(self.id, grace) => match stopped {
                Ok(()) => self.exited.store(true, Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "a server in the sandbox could not be stopped; it ends with the sandbox"),
            },
        }
    }

    fn kill(&self) {
        self.request_kill();
    }

    fn pid(&self) -> Option<u32> {
        None
    }
}

impl SandboxProcess {
    /// Requests that the guest kills the process, without waiting.
    fn request_kill(&self) {
        if self.exited.swap(true, Ordering::Relaxed) || self.detached.is_cancelled() {
            return;
        }
        // Without a runtime the tunnel is gone too, and the sandbox with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (sandbox, detached, id) = (Arc::clone(&self.sandbox), self.detached.clone(), self.id);
        runtime.spawn(async move {
            tokio::select! {
                () = detached.cancelled() => {}
                _ = sandbox.stop_stdio(id, Duration::ZERO) => {}
            }
        });
    }
}

impl Drop for SandboxProcess {
    fn drop(&mut self) {
        self.request_kill();
    }
}

#[cfg(test)]
mod tests;
