//! One door for the four servers.
//!
//! Over stdio a server ends when its stdin ends, and what `shell_exec` has started ends with it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rmcp::handler::server::ServerHandler;
use rmcp::service::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use tokio_util::sync::CancellationToken;

use crate::file_read::FileRead;
use crate::file_write::FileWrite;
use crate::gate::{Full, Gate};
use crate::one_tool::OneToolServer;
use crate::paths::OpenRoots;
use crate::server::MAX_LINE;
use crate::shell_exec::ShellExec;
use crate::{Editor, TextEditorServer};

/// The time that a command of `shell_exec` may take if nothing else is said.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// The folders in which a server may work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedRoots {
    /// Where relative paths start, and commands run.
    pub start: PathBuf,
    /// What else is allowed (`--allow-path`): folders.
    pub allowed: Vec<PathBuf>,
}

impl AllowedRoots {
    /// The current folder, and what else is allowed.
    ///
    /// # Errors
    /// When the current folder is gone.
    pub fn here(allowed: Vec<PathBuf>) -> anyhow::Result<Self> {
        let start = std::env::current_dir().context("the current folder cannot be found")?;
        Ok(Self { start, allowed })
    }
}

/// How `shell_exec` works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellOptions {
    /// Where commands may run.
    pub roots: AllowedRoots,
    /// After this a command is killed, with all it has started.
    pub timeout: Duration,
    /// Further commands that are refused, as words: `git push --force`.
    pub deny: Vec<String>,
    /// Further commands that are run only if the user agrees.
    pub ask: Vec<String>,
    /// Commands that the built-in lists would refuse or ask for, and that are run.
    pub allow: Vec<String>,
}

impl ShellOptions {
    /// The default policy in these folders.
    #[must_use]
    pub fn new(roots: AllowedRoots) -> Self {
        Self {
            roots,
            timeout: DEFAULT_TIMEOUT,
            deny: Vec::new(),
            ask: Vec::new(),
            allow: Vec::new(),
        }
    }
}

/// A server, with all that it needs to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolServer {
    /// The tool `text_editor`. Relative paths start at `root`.
    TextEditor {
        /// The only folder whose files are viewed and edited.
        root: PathBuf,
    },
    /// The tool `file_read`.
    FileRead(AllowedRoots),
    /// The tool `file_write`.
    FileWrite(AllowedRoots),
    /// The tool `shell_exec`.
    ShellExec(ShellOptions),
}

impl ToolServer {
    /// Serves over stdin and stdout until stdin ends.
    ///
    /// # Errors
    /// When a folder cannot be opened, a rule cannot be read, or the client does not speak the
    /// protocol.
    pub async fn serve_stdio(self) -> anyhow::Result<()> {
        match self {
            Self::TextEditor { root } => {
                crate::server::serve_stdio(TextEditorServer::new(Editor::open_at(root)?)).await
            }
            Self::FileRead(roots) => {
                let tool = FileRead::new(OpenRoots::open(&roots)?);
                stdio(
                    OneToolServer::new(tool),
                    Full::Wait,
                    CancellationToken::new(),
                )
                .await
            }
            Self::FileWrite(roots) => {
                let tool = FileWrite::new(OpenRoots::open(&roots)?);
                stdio(
                    OneToolServer::new(tool),
                    Full::Wait,
                    CancellationToken::new(),
                )
                .await
            }
            Self::ShellExec(options) => {
                let tool = ShellExec::new(&options)?;
                let ended = tool.ended();
                hide_environment();
                stdio(OneToolServer::new(tool), Full::Refuse, ended).await
            }
        }
    }

    /// Serves over streamable HTTP at `/mcp` until the future is dropped or SIGTERM or SIGINT comes.
    /// `ready` is told the address, whose port is the kernel's choice where `addr` has port 0.
    ///
    /// # Errors
    /// When the address is not a loopback address or cannot be bound, and as
    /// [`ToolServer::serve_stdio`].
    #[cfg(feature = "http")]
    pub async fn serve_http(
        self,
        addr: std::net::SocketAddr,
        ready: impl FnOnce(std::net::SocketAddr),
    ) -> anyhow::Result<()> {
        match self {
            Self::TextEditor { root } => {
                let server = TextEditorServer::new(Editor::open_at(root)?);
                crate::http::serve(server, addr, ready).await
            }
            Self::FileRead(roots) => {
                let tool = FileRead::new(OpenRoots::open(&roots)?);
                crate::http::serve(OneToolServer::new(tool), addr, ready).await
            }
            Self::FileWrite(roots) => {
                let tool = FileWrite::new(OpenRoots::open(&roots)?);
                crate::http::serve(OneToolServer::new(tool), addr, ready).await
            }
            Self::ShellExec(options) => {
                let tool = ShellExec::new(&options)?;
                let _ended = tool.ended().drop_guard();
                crate::http::serve(OneToolServer::new(tool), addr, ready).await
            }
        }
    }
}

/// Serves until stdin ends, SIGTERM or SIGINT comes; `ended` is cancelled at that moment, before the
/// answers still due are waited for.
async fn stdio(
    server: impl ServerHandler,
    full: Full,
    ended: CancellationToken,
) -> anyhow::Result<()> {
    let _ended = ended.clone().drop_guard();
    let (stdin, stdout) = stdio_pipes();
    let stdin = crate::one_tool::UntilEnd::new(stdin, ended.clone());
    let transport = AsyncRwTransport::new_server(stdin, stdout).with_max_line_length(MAX_LINE);
    let transport = Gate::new(transport, full);
    let serving = async {
        server.serve(transport).await?.waiting().await?;
        anyhow::Ok(())
    };
    tokio::select! {
        outcome = serving => outcome,
        signal = terminated() => signal,
    }
}

/// Commands get a reduced environment; without this they could read the whole of it from the server's
/// entry in /proc. Root still can.
fn hide_environment() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // A kernel without it serves none the worse.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// SIGTERM or SIGINT.
pub(crate) async fn terminated() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).context("SIGTERM cannot be watched")?;
    let mut int = signal(SignalKind::interrupt()).context("SIGINT cannot be watched")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}
