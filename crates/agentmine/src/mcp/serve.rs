//! `agentmine mcp serve-tools`: our own tool servers for any MCP client. Only the protocol is written to
//! stdout.

use std::path::{Path, PathBuf};

use agentmine_runtime::exit::{Exit, Failure};
use agentmine_tools::{AllowedRoots, ShellOptions, ToolServer};
use anyhow::{Context as _, Result};

use super::args::{Folders, ServeTools};
use super::setup::folder;

/// Serves until stdin ends.
pub(super) async fn run(what: ServeTools) -> Result<Exit> {
    let server = server(what)?;
    // One thread, so that calls are made in the order in which they arrive.
    let serving = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(server.serve_stdio());
        // Does not wait for a thread that may be blocked in a read of stdin.
        runtime.shutdown_background();
        outcome
    });
    serving.await.context("the server ended unexpectedly")??;
    Ok(Exit::Done)
}

fn server(what: ServeTools) -> Result<ToolServer> {
    Ok(match what {
        ServeTools::TextEditor { root } => ToolServer::TextEditor { root: start(root)? },
        ServeTools::FileRead(folders) => ToolServer::FileRead(roots(folders)?),
        ServeTools::FileWrite(folders) => ToolServer::FileWrite(roots(folders)?),
        ServeTools::ShellExec {
            folders,
            timeout,
            deny,
            ask,
            allow,
        } => {
            let mut options = ShellOptions::new(roots(folders)?);
            if let Some(timeout) = timeout {
                options.timeout = timeout;
            }
            options.deny = deny;
            options.ask = ask;
            options.allow = allow;
            ToolServer::ShellExec(options)
        }
    })
}

fn roots(folders: Folders) -> Result<AllowedRoots> {
    let allowed = folders.allow_path.iter();
    Ok(AllowedRoots {
        start: start(folders.root)?,
        allowed: allowed
            .map(|folder| opened(folder))
            .collect::<Result<_>>()?,
    })
}

/// The named folder, else the current one. Some clients start servers in `/`, but do not mean the whole
/// machine.
fn start(root: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(root) = root {
        return opened(&root);
    }
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    if here.parent().is_none() {
        return Err(Failure::new(
            Exit::Validation,
            "the current folder is /, which would allow access to every file on this machine",
        )
        .hint("name a folder with --root DIR")
        .into());
    }
    Ok(here)
}

fn opened(named: &Path) -> Result<PathBuf> {
    folder(named, "--root and --allow-path name folders that exist")
}
