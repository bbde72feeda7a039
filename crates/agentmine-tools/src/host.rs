//! Starts any of the four servers.
//!
//! Over stdio a server exits when its stdin ends, and what `shell_exec` has started ends with it.

use std::path::PathBuf;

use rmcp::handler::server::ServerHandler;
use rmcp::service::ServiceExt;
use rmcp::transport::io::stdio_pipes;
use tokio_util::sync::CancellationToken;

use crate::file_read::FileRead;
use crate::file_write::FileWrite;
use crate::gate::{Full, Gate};
use crate::lines::answered;
use crate::one_tool::OneToolServer;
use crate::paths::OpenRoots;
use crate::roots::AllowedRoots;
use crate::server::MAX_LINE;
use crate::shell_exec::{ShellExec, ShellOptions};
use crate::terminated::terminated;
use crate::{Editor, TextEditorServer};

/// A server, with everything that it needs to start.
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

    /// Serves over streamable HTTP at `/mcp` until the future is dropped, or on SIGTERM or SIGINT. `ready` gets
    /// the address; the kernel chooses the port if `addr` has port 0.
    ///
    /// # Errors
    /// When the address is not a loopback address or cannot be bound, and those of
    /// [`ToolServer::serve_stdio`].
    #[cfg(feature = "http")]
    pub async fn serve_http(
        self,
        addr: std::net::SocketAddr,
        ready: impl FnOnce(std::net::SocketAddr),
    ) -> anyhow::Result<()> {
        use crate::http::{self, HttpAccess};
        match self {
            Self::TextEditor { root } => {
                let server = TextEditorServer::new(Editor::open_at(root)?);
                http::serve(server, addr, HttpAccess::Anybody, ready).await
            }
            Self::FileRead(roots) => {
                let tool = FileRead::new(OpenRoots::open(&roots)?);
                http::serve(OneToolServer::new(tool), addr, HttpAccess::Anybody, ready).await
            }
            Self::FileWrite(roots) => {
                let tool = FileWrite::new(OpenRoots::open(&roots)?);
                http::serve(OneToolServer::new(tool), addr, HttpAccess::Anybody, ready).await
            }
            Self::ShellExec(options) => {
                let tool = ShellExec::new(&options)?;
                let _ended = tool.ended().drop_guard();
                http::serve(OneToolServer::new(tool), addr, HttpAccess::Anybody, ready).await
            }
        }
    }
}

/// Serves until stdin ends, or on SIGTERM or SIGINT. `ended` is cancelled at that moment, before the server
/// waits for the responses that are still due.
async fn stdio(
    server: impl ServerHandler,
    full: Full,
    ended: CancellationToken,
) -> anyhow::Result<()> {
    let _ended = ended.clone().drop_guard();
    let (stdin, stdout) = stdio_pipes();
    let stdin = crate::one_tool::UntilEnd::new(stdin, ended.clone());
    let transport = Gate::new(answered(stdin, stdout, MAX_LINE), full);
    let serving = async {
        server.serve(transport).await?.waiting().await?;
        anyhow::Ok(())
    };
    tokio::select! {
        outcome = serving => outcome,
        signal = terminated() => signal,
    }
}

/// Commands get a reduced environment; without this they could read all of it from the server's entry in
/// /proc. Root still can.
fn hide_environment() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // The server works without it.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
