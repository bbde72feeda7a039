//! `agentmine mcp serve-tools`: our own tool servers for any MCP client. Only the protocol is written to
//! stdout.

use std::path::{Path, PathBuf};

use agentmine_runtime::exit::{Exit, Failure};
use agentmine_tools::{AllowedRoots, ShellOptions, ToolServer};
use anyhow::{Context as _, Result};

use super::args::ServeTools;

/// Serves until stdin ends.
pub(super) async fn run(what: ServeTools) -> Result<Exit> {
    let server = server(what)?;
    // One thread, so that calls are made in the order in which they arrive.
    let serving = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(server.serve_stdio());
        // A read of stdin may still block a thread, and is not waited for.
        runtime.shutdown_background();
        outcome
    });
    serving.await.context("the server ended by itself")??;
    Ok(Exit::Done)
}

fn server(what: ServeTools) -> Result<ToolServer> {
    Ok(match what {
        ServeTools::TextEditor { root } => ToolServer::TextEditor { root: start(root)? },
        ServeTools::FileRead { root, allow_path } => ToolServer::FileRead(roots(root, allow_path)?),
        ServeTools::FileWrite { root, allow_path } => {
            ToolServer::FileWrite(roots(root, allow_path)?)
        }
        ServeTools::ShellExec {
            root,
            allow_path,
            timeout,
            deny,
            ask,
            allow,
        } => {
            let mut options = ShellOptions::new(roots(root, allow_path)?);
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

fn roots(root: Option<PathBuf>, allowed: Vec<PathBuf>) -> Result<AllowedRoots> {
    let start = start(root)?;
    let allowed = allowed
        .iter()
        .map(|folder| opened(folder))
        .collect::<Result<_>>()?;
    Ok(AllowedRoots { start, allowed })
}

/// The folder that was named, else the current one. Some clients start servers in `/`, which is never meant
/// as the whole machine.
fn start(root: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(root) = root {
        return opened(&root);
    }
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    if here.parent().is_none() {
        return Err(Failure::new(
            Exit::Validation,
            "the current folder is /, which would allow every file of this machine",
        )
        .hint("name a folder with --root DIR")
        .into());
    }
    Ok(here)
}

fn opened(folder: &Path) -> Result<PathBuf> {
    match std::fs::canonicalize(folder) {
        Ok(real) if real.is_dir() => Ok(real),
        _ => Err(Failure::new(
            Exit::NotFound,
            format!("{} is not a folder", folder.display()),
        )
        .hint("--root and --allow-path name folders that exist")
        .into()),
    }
}
