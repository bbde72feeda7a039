//! Starts MCP servers inside a sandbox, through its guest.
//!
//! A server in a sandbox has no process of its own on the worker: its stdin and stdout are a stream of
//! the tunnel, and the guest tells how it ended and kills what it started. Once a launcher has let go
//! ([`SandboxLauncher::let_go`]), nothing more is waited for: the sandbox is about to be removed, and
//! everything in it ends with it, also where it is frozen and can answer nothing.

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

/// How long a sandbox may take to say what a server wrote to stderr.
const STDERR_LIMIT: Duration = Duration::from_secs(5);

/// Starts MCP servers inside one sandbox.
pub struct SandboxLauncher {
    sandbox: Arc<dyn Sandbox>,
    let_go: CancellationToken,
}

impl SandboxLauncher {
    /// Starts servers in `sandbox`.
    #[must_use]
    pub fn new(sandbox: Arc<dyn Sandbox>) -> Self {
        Self {
            sandbox,
            let_go: CancellationToken::new(),
        }
    }

    /// Asks the sandbox for something small.
    ///
    /// # Errors
    /// Why it does not answer any more. A refusal is an answer.
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

    /// From here on nothing in the sandbox is waited for. Say this right before its removal.
    pub fn let_go(&self) {
        self.let_go.cancel();
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
        let secrets = blanked(env);
        let env: BTreeMap<String, String> = env
            .iter()
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect();
        let started = tokio::select! {
            () = self.let_go.cancelled() => return Err(failed("the sandbox is being removed".into())),
            started = self.sandbox.start_stdio(command.clone(), env) => started,
        };
        let program = started.map_err(|error| failed(error.to_string()))?;
        Ok(Launched {
            stream: Box::new(program.stream),
            process: Box::new(SandboxProcess {
                sandbox: Arc::clone(&self.sandbox),
                let_go: self.let_go.clone(),
                id: program.id,
                over: AtomicBool::new(false),
                secrets,
            }),
        })
    }
}

/// A server inside a sandbox.
struct SandboxProcess {
    sandbox: Arc<dyn Sandbox>,
    let_go: CancellationToken,
    id: u64,
    over: AtomicBool,
    /// Values of the entry's environment, which its stderr does not show.
    secrets: Redactor,
}

/// Values and their lines; a path is no secret.
fn blanked(env: &BTreeMap<String, Secret>) -> Redactor {
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
        let said = tokio::time::timeout(STDERR_LIMIT, self.sandbox.stdio_stderr(self.id));
        tokio::select! {
            () = self.let_go.cancelled() => String::new(),
            said = said => {
                let said = said.ok().and_then(Result::ok).unwrap_or_default();
                self.secrets.redact(said)
            }
        }
    }

    async fn ended(&self) -> String {
        let how = match self.sandbox.stdio_ended(self.id).await {
            Ok(end) => end.to_string(),
            // The guest forgets those that ended long ago.
            Err(SandboxError::Failed(_)) => "it has ended".to_owned(),
            Err(error) => error.to_string(),
        };
        self.over.store(true, Ordering::Relaxed);
        how
    }

    async fn stop(&self, grace: Duration) {
        tokio::select! {
            () = self.let_go.cancelled() => {}
            stopped = self.sandbox.stop_stdio(self.id, grace) => match stopped {
                Ok(()) => self.over.store(true, Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "a server in the sandbox could not be stopped; it ends with the sandbox"),
            },
        }
    }

    fn kill(&self) {
        self.kill_at_once();
    }

    fn pid(&self) -> Option<u32> {
        None
    }
}

impl SandboxProcess {
    /// Has the guest kill it, without waiting for that.
    fn kill_at_once(&self) {
        if self.over.swap(true, Ordering::Relaxed) || self.let_go.is_cancelled() {
            return;
        }
        // Without a runtime the tunnel is gone too, and the sandbox with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (sandbox, let_go, id) = (Arc::clone(&self.sandbox), self.let_go.clone(), self.id);
        runtime.spawn(async move {
            tokio::select! {
                () = let_go.cancelled() => {}
                _ = sandbox.stop_stdio(id, Duration::ZERO) => {}
            }
        });
    }
}

impl Drop for SandboxProcess {
    fn drop(&mut self) {
        self.kill_at_once();
    }
}

#[cfg(test)]
mod tests;
