//! A running sandbox, as the worker uses it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use agentmine_guest::protocol::{OutboundKind, StdioEnd};
use agentmine_process::{Excerpt, LeftOut};
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::SandboxError;
use crate::template::WorkspaceTemplate;

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments. A shell line is `["/bin/sh", "-c", line]`.
    pub argv: Vec<String>,
    /// The working folder; absolute, or relative to `/workspace/project`.
    pub cwd: String,
    /// Added to the sandbox's own environment.
    pub env: BTreeMap<String, String>,
    /// Written to stdin, which is then closed.
    pub stdin: Vec<u8>,
    /// After this the whole process group is killed.
    pub timeout: Duration,
    /// Bytes kept of stdout and of stderr, each: the first and the last half.
    pub max_output: usize,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandResult {
    /// Exit code; 128 + signal number if a signal ended it; 124 at the time limit.
    pub exit_code: i32,
    /// Captured output.
    pub stdout: CommandOutput,
    /// Captured error output.
    pub stderr: CommandOutput,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// How long it ran.
    pub duration: Duration,
}

/// What was captured of one output of a command: all of it, or its start and its end. As bytes it is the two
/// without a gap; [`Self::excerpt`] knows what is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    bytes: Vec<u8>,
    head_len: usize,
    left_out: LeftOut,
}

impl CommandOutput {
    /// The first bytes, what is missing after them, and the last bytes.
    pub(crate) fn new(head: Vec<u8>, left_out: LeftOut, tail: &[u8]) -> Self {
        let (head_len, mut bytes) = (head.len(), head);
        bytes.extend_from_slice(tail);
        Self {
            bytes,
            head_len,
            left_out,
        }
    }

    /// Whether something is missing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.left_out.bytes > 0
    }

    /// The output as text.
    #[must_use]
    pub fn excerpt(&self) -> Excerpt {
        let (head, tail) = self.bytes.split_at(self.head_len);
        Excerpt::of_parts(head, self.left_out, tail)
    }
}

/// An output that was captured whole.
impl From<Vec<u8>> for CommandOutput {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            head_len: bytes.len(),
            bytes,
            left_out: LeftOut::default(),
        }
    }
}

impl Deref for CommandOutput {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes of one connection or program, in both directions.
pub trait TunnelStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> TunnelStream for T {}

/// A connection out of the sandbox.
pub struct Outbound {
    /// What it is for.
    pub kind: OutboundKind,
    /// The bytes.
    pub stream: Box<dyn TunnelStream>,
}

/// A stdio program running in the sandbox, e.g. an MCP server.
pub struct StdioProgram {
    /// Its stdin and stdout.
    pub stream: Box<dyn TunnelStream>,
    /// Identifies it in the `stdio` methods of [`Sandbox`].
    pub id: u64,
}

/// A snapshot of the project's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The snapshot commit's hash.
    pub commit: String,
    /// A git bundle of what is new since the previous snapshot; `None` when nothing changed.
    pub bundle: Option<Vec<u8>>,
    /// Names of files that are not in it, since they are larger than the bundle may be or cannot be read, and of repositories
    /// in the project, with a slash at the end; at most twenty.
    pub left_out: Vec<String>,
}

/// Ports of the guest's listeners on 127.0.0.1 inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestPorts {
    /// Git smart HTTP.
    pub git: u16,
    /// Web proxy.
    pub web: u16,
}

/// A running sandbox.
#[async_trait]
pub trait Sandbox: Send + Sync + 'static {
    /// `coding-agent-exec-{uuid}`, or with the role at its end.
    fn name(&self) -> &str;
    /// The guest's ports.
    fn ports(&self) -> GuestPorts;
    /// What a person should know about this sandbox, e.g. that the jail is the weaker one.
    fn warnings(&self) -> Vec<String>;
    /// The real path of `/workspace` inside. It differs only in the jail without namespaces; paths given
    /// to these methods may begin with `/workspace` there too, but those in a command's text may not.
    fn workspace_root(&self) -> &str {
        "/workspace"
    }
    /// What its workspace began as; `None` if it was empty, and after [`Self::end_saving`].
    fn template(&self) -> Option<WorkspaceTemplate> {
        None
    }
    /// Whether its workspace has a file system of its own.
    fn has_own_volume(&self) -> bool {
        false
    }
    /// Saves the project as it is now as a template for other sandboxes. `None` if it cannot be saved: the workspace has no file
    /// system of its own or more than `max_bytes`, a process has a file open for writing, or the disk has no room. Meanwhile writes
    /// fail. An error means that the sandbox is of no use any longer.
    async fn save_workspace(
        &self,
        _max_bytes: u64,
    ) -> Result<Option<WorkspaceTemplate>, SandboxError> {
        Ok(None)
    }
    /// From now on it cannot be saved, and the worker no longer keeps the file system: it ends with the sandbox, even if
    /// another worker removes it.
    fn end_saving(&self) {}
    /// Runs a command to its end. Dropping the future kills the process group.
    async fn run(&self, command: Command) -> Result<CommandResult, SandboxError>;
    /// Runs a command whose result is evidence about what runs in it. What earlier commands left running is
    /// killed first, and what it starts cannot reach into its shell (`agentmine-guest/src/evidence.rs` says what
    /// remains).
    async fn check(&self, command: Command) -> Result<CommandResult, SandboxError>;
    /// Starts a stdio program in the project's folder. Dropping the stream closes its stdin; two
    /// seconds later its group gets SIGTERM, two more seconds later SIGKILL.
    async fn start_stdio(
        &self,
        argv: Vec<String>,
        env: BTreeMap<String, String>,
    ) -> Result<StdioProgram, SandboxError>;
    /// The last 64 KiB of a stdio program's stderr.
    async fn stdio_stderr(&self, id: u64) -> Result<String, SandboxError>;
    /// Waits until a stdio program has ended and its group was killed. Returns how it ended.
    async fn stdio_ended(&self, id: u64) -> Result<StdioEnd, SandboxError>;
    /// Ends a stdio program: stdin is closed, after `grace` its group gets SIGTERM, after another
    /// `grace` SIGKILL, with everything it started. Returns when all of it has ended.
    async fn stop_stdio(&self, id: u64, grace: Duration) -> Result<(), SandboxError>;
    /// Reads a file of at most `max` bytes under `/workspace`; `None` if it does not exist.
    async fn get_file(&self, path: &str, max: usize) -> Result<Option<Vec<u8>>, SandboxError>;
    /// Takes a snapshot of `/workspace/project` on a hidden ref. `since` is the commit of the previous
    /// one.
    async fn snapshot(
        &self,
        since: Option<&str>,
        max_bundle: usize,
    ) -> Result<Snapshot, SandboxError>;
    /// Applies the bundles of snapshots, in order, and checks out the files of the last.
    async fn restore(&self, bundles: Vec<Vec<u8>>, commit: &str) -> Result<(), SandboxError>;
    /// The next connection out; `None` when the sandbox is gone. Called by one task.
    async fn next_outbound(&self) -> Option<Outbound>;
    /// Waits until the sandbox is gone by itself. Returns the reason.
    async fn gone(&self) -> String;
    /// Whether it is gone and what ran in it is not the cause, as far as the engine knows: the engine was restarted, or the
    /// connection to it was cut.
    async fn ended_from_outside(&self) -> bool {
        false
    }
    /// Freezes every process in it.
    async fn pause(&self) -> Result<(), SandboxError>;
    /// Lets them continue.
    async fn unpause(&self) -> Result<(), SandboxError>;
    /// Stops (10 s grace), kills and removes it with its volumes, in up to three tries. The error names
    /// what is left behind.
    async fn remove(&self) -> Result<(), SandboxError>;
}
