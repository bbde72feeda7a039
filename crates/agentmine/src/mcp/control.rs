//! `agentmine mcp serve`: tasks, sessions and workers for any MCP client. Only the protocol is written to stdout.

use std::net::SocketAddr;
use std::sync::Arc;

use agentmine_control::mcp::{Context, MAX_LINE, serve};
use agentmine_runtime::config::{self, Log, Sources};
use agentmine_runtime::exit::Exit;
use agentmine_runtime::logging;
use agentmine_tools::stdio_transport;
use anyhow::{Context as _, Result};

use super::args::With;
use super::setup::folder;
use crate::control::redactor;
use crate::embedded::{broker, fleet, open_configured, place};

/// Serves until stdin ends.
pub(super) async fn run(with: With, verbose: bool, http: Option<SocketAddr>) -> Result<Exit> {
    let With {
        config: file,
        which,
    } = with;
    // As every other command on tasks: an editor starts this in the project's folder.
    let mut config = config::load(&Sources::from_process(file.clone()))?;
    let log = match verbose {
        true => Log {
            format: config.log.format,
            level: "debug".to_owned(),
        },
        false => config.log.clone(),
    };
    logging::init(&log, config.secrets())?;
    let project = match which.project {
        Some(named) => folder(&named, "--project names a folder that exists")?,
        None => std::env::current_dir().context("the current folder cannot be found")?,
    };
    let context = Context {
        fleet: fleet(&config),
        broker: broker(&config)?,
        store: open_configured(&mut config).await?,
        place: place(project, &config, file)?,
        secrets: Arc::new(redactor(&config)),
        memory_tokens: config.memory.limit(),
    };
    if let Some(addr) = http {
        return super::http::serve(context, addr).await;
    }
    // On its own thread, with its own runtime: a read of stdin that is blocked must not keep the program.
    let serving = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(async { serve(context, stdio_transport(MAX_LINE)).await });
        runtime.shutdown_background();
        outcome
    });
    serving.await.context("the server ended unexpectedly")??;
    Ok(Exit::Done)
}
