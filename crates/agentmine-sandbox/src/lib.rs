//! Where a task's commands run: a Docker container or a local jail, with no network but the tunnel.
//!
//! Both backends start a sandbox, start the guest in it, and speak to it over the guest's stdin and
//! stdout. What comes out of a sandbox is hostile: every frame is length-checked and every field
//! read as data.

mod assets;
mod client;
#[cfg(test)]
mod contract;
pub mod docker;
mod guarded;
pub mod local;
mod metrics;
mod name;
mod paths;
mod tunnel;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Epoch, TaskId};
pub use agentmine_guest::protocol::{OutboundKind, StdioEnd};
use agentmine_runtime::config::{self, CommandExecutor};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
pub use docker::DockerBackend;
pub use local::LocalBackend;
pub use name::{PREFIX, sandbox_name};
use tokio::io::{AsyncRead, AsyncWrite};

/// Why a sandbox did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine cannot be reached.
    #[error("the sandbox engine is unavailable: {0}")]
    Unavailable(String),
    /// The engine refused: no such image, no such runtime, no resources.
    #[error("the sandbox could not be made: {0}")]
    Refused(String),
    /// The guest or the tunnel ended: the sandbox is gone.
    #[error("the sandbox is gone: {0}")]
    Gone(String),
    /// The guest answered what the protocol does not allow.
    #[error("the sandbox broke the protocol: {0}")]
    Protocol(String),
    /// The guest could not do it; the sandbox goes on.
    #[error("{0}")]
    Failed(String),
}

/// What to make.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// For the name and labels.
    pub task: TaskId,
    /// For the labels.
    pub epoch: Epoch,
    /// `main` for the agent's own; another name gets its own sandbox, `coding-agent-exec-{uuid}-{role}`.
    pub role: String,
    /// Instead of the configured image (Docker only).
    pub image: Option<String>,
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments. A shell line is `["/bin/sh", "-c", line]`.
    pub argv: Vec<String>,
    /// Where; absolute, or relative to `/workspace/project`.
    pub cwd: String,
    /// Added to the sandbox's own environment.
    pub env: BTreeMap<String, String>,
    /// Fed to stdin, which is then closed.
    pub stdin: Vec<u8>,
    /// After this the whole process group is killed.
    pub timeout: Duration,
    /// Bytes kept of stdout and of stderr, each: the first and the last half.
    pub max_output: usize,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandResult {
    /// Exit code; 128 + signal number where a signal ended it; 124 on the time limit.
    pub exit_code: i32,
    /// Captured output. A cut in the middle is told in the text itself.
    pub stdout: Vec<u8>,
    /// Captured errors, likewise.
    pub stderr: Vec<u8>,
    /// Whether anything was cut.
    pub truncated: bool,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// How long it took.
    pub duration: Duration,
}

/// A byte stream.
pub trait TunnelStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> TunnelStream for T {}

/// A connection out of the sandbox.
pub struct Outbound {
    /// What for.
    pub kind: OutboundKind,
    /// The bytes.
    pub stream: Box<dyn TunnelStream>,
}

/// A stdio program started in the sandbox, e.g. an MCP server.
pub struct StdioProgram {
    /// Its stdin and stdout.
    pub stream: Box<dyn TunnelStream>,
    /// Names it in [`Sandbox::stdio_stderr`].
    pub id: u64,
}

/// A snapshot of the project's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The snapshot commit's hash.
    pub commit: String,
    /// A git bundle of what is new since the snapshot before; `None` when nothing changed.
    pub bundle: Option<Vec<u8>>,
}

/// A sandbox that runs.
#[async_trait]
pub trait Sandbox: Send + Sync + 'static {
    /// `coding-agent-exec-{uuid}`.
    fn name(&self) -> &str;
    /// Ports of the guest's listeners on 127.0.0.1 inside: (git, web).
    fn ports(&self) -> (u16, u16);
    /// What a person should know of this sandbox, e.g. that the jail is the weaker one.
    fn warnings(&self) -> Vec<String>;
    /// Where `/workspace` really is inside. It differs only in the jail without namespaces; paths given
    /// to these methods may begin with `/workspace` there too, but those in a command's text may not.
    fn workspace_root(&self) -> &str {
        "/workspace"
    }
    /// Runs a command to its end. Dropping the future kills the process group.
    async fn run(&self, command: Command) -> Result<CommandResult, SandboxError>;
    /// Starts a stdio program in the project's folder. Dropping the stream closes its stdin, two
    /// seconds later its group gets SIGTERM, after two more SIGKILL.
    async fn start_stdio(
        &self,
        argv: Vec<String>,
        env: BTreeMap<String, String>,
    ) -> Result<StdioProgram, SandboxError>;
    /// The last 64 KiB of a stdio program's stderr.
    async fn stdio_stderr(&self, id: u64) -> Result<String, SandboxError>;
    /// Resolves when a stdio program has ended and its group was killed, with how. Never resolves
    /// where that cannot be seen; the end of its stream tells then.
    async fn stdio_ended(&self, _id: u64) -> Result<StdioEnd, SandboxError> {
        std::future::pending().await
    }
    /// Ends a stdio program: stdin is closed, after `grace` its group gets SIGTERM, after another
    /// SIGKILL, with all that it started. Returns when nothing of it is left.
    async fn stop_stdio(&self, _id: u64, _grace: Duration) -> Result<(), SandboxError> {
        Ok(())
    }
    /// Writes a file (parents made). Under `/workspace` only.
    async fn put_file(&self, path: &str, content: Vec<u8>, mode: u32) -> Result<(), SandboxError>;
    /// Reads a file, at most `max` bytes; `None` if there is none.
    async fn get_file(&self, path: &str, max: usize) -> Result<Option<Vec<u8>>, SandboxError>;
    /// Takes a snapshot of `/workspace/project` on a hidden ref. `since`: the commit of the one before.
    async fn snapshot(
        &self,
        since: Option<&str>,
        max_bundle: usize,
    ) -> Result<Snapshot, SandboxError>;
    /// Applies the bundles of snapshots, in order, and makes the files those of the last.
    async fn restore(&self, bundles: Vec<Vec<u8>>, commit: &str) -> Result<(), SandboxError>;
    /// Bytes used under `/workspace`.
    async fn disk_used(&self) -> Result<u64, SandboxError>;
    /// The next connection out; `None` when the sandbox is gone. Called by one task.
    async fn next_outbound(&self) -> Option<Outbound>;
    /// Resolves when the sandbox is gone by itself, with why.
    async fn gone(&self) -> String;
    /// Freezes every process in it.
    async fn pause(&self) -> Result<(), SandboxError>;
    /// Goes on.
    async fn unpause(&self) -> Result<(), SandboxError>;
    /// Stops (10 s grace), kills, removes with its volumes; three tries. An error names what is left.
    async fn remove(&self) -> Result<(), SandboxError>;
}

/// A sandbox found on the engine, perhaps left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSandbox {
    /// Its name.
    pub name: String,
    /// What tells it from another of the same name, made before or after: Docker's container id, or
    /// the time of making.
    pub instance: String,
    /// From its labels, or its name.
    pub task: Option<TaskId>,
    /// From its labels.
    pub epoch: Option<Epoch>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// A way of making sandboxes.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Whether the engine answers and has what the configuration names (image, runtime). What is
    /// missing is told with what to do about it.
    async fn check(&self) -> Result<(), SandboxError>;
    /// Makes and starts one; an existing one of the same name is removed first.
    async fn start(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError>;
    /// Every sandbox of ours on the engine.
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError>;
    /// Removes this very one, as [`Sandbox::remove`] does; another that has taken its name since is
    /// left alone.
    async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError>;
}

/// The backend that the configuration names.
///
/// # Errors
/// What is missing, with what to do about it.
pub async fn from_config(config: &CommandExecutor) -> Result<Arc<dyn Backend>, SandboxError> {
    metrics::describe();
    Ok(match config.backend {
        config::BackendKind::Docker => Arc::new(DockerBackend::connect(config).await?),
        config::BackendKind::Local => {
            Arc::new(LocalBackend::new(config, &local::default_state_dir())?)
        }
    })
}
