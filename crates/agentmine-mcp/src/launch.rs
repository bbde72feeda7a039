//! Starts a server's process, on the worker or in a sandbox.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::McpError;
use crate::config::ServerConfig;

/// A byte stream.
pub trait ServerStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ServerStream for T {}

/// Starts stdio servers in one place.
#[async_trait]
pub trait Launcher: Send + Sync + 'static {
    /// Starts the server's command.
    ///
    /// # Errors
    /// [`McpError::Process`] where it does not start.
    async fn launch(&self, server: &ServerConfig) -> Result<Launched, McpError>;

    /// The files of the server's program on this machine that its command names, the program first. When one
    /// changes, the server is restarted.
    fn files(&self, server: &ServerConfig) -> Vec<PathBuf> {
        let _ = server;
        Vec::new()
    }
}

/// A server that was started.
pub struct Launched {
    /// Its stdin (write) and stdout (read). Dropping it closes both.
    pub stream: Box<dyn ServerStream>,
    /// The server's process.
    pub process: Box<dyn ServerProcess>,
}

/// A server's process, with everything that it started. Dropping it kills all of them.
#[async_trait]
pub trait ServerProcess: Send + Sync + 'static {
    /// The end of its stderr, at most 64 KiB: hostile text, without our secrets.
    async fn stderr(&self) -> String;
    /// Resolves when the process has ended, to how it ended: `exit code 1`, `signal 9`. Pending for ever if that
    /// cannot be observed; then the end of the stream counts.
    async fn ended(&self) -> String;
    /// Closes its stdin, sends SIGTERM after `grace` and SIGKILL after another `grace`, to the whole group.
    /// Returns when nothing of it is left.
    async fn stop(&self, grace: Duration);
    /// Sends SIGKILL without waiting. Dropping the process must do the same.
    fn kill(&self) {}
    /// Its process id, if it is a process of this machine.
    fn pid(&self) -> Option<u32>;
}
