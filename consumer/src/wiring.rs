//! Builds a consumer from its configuration.

use std::path::PathBuf;
use std::sync::Arc;

use agentmine_runtime::config::{self, Config, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::http::{self, Health};
use agentmine_runtime::shutdown::Shutdown;
use agentmine_runtime::{healthcheck, logging, metrics, program_pages, tls, trace};
use agentmine_store::StoreError;
use anyhow::{Result, anyhow};
use clap::{Parser, Subcommand};

use crate::mode::ConsumerMode;
use crate::run::servers;
use crate::session::deps::ConsumerDeps;
use crate::slots::run;

/// Claims tasks and works on them.
#[derive(Debug, Parser)]
#[command(
    name = "consumer",
    version,
    about = "Claims tasks from the queue and turns each into a pull request"
)]
pub struct ConsumerArgs {
    /// Configuration file [default: ./config.yaml, then ~/.config/agentmine/config.yaml]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Exit when no task is waiting
    #[arg(long, conflicts_with = "continuous")]
    pub once: bool,
    /// Keep waiting for tasks until stopped (the default)
    #[arg(long)]
    pub continuous: bool,
    /// Run this command instead of working
    #[command(subcommand)]
    pub command: Option<ConsumerCommand>,
}

/// What a consumer does instead of working.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ConsumerCommand {
    /// Exit with 0 if the consumer with this configuration is ready
    Healthcheck,
}

/// Runs the consumer's process: loads the configuration, serves `/live`, `/ready` and `/metrics`, connects,
/// works, and drains on shutdown.
///
/// # Errors
/// Returns an error if the configuration is invalid or a required service is unavailable.
pub async fn main(args: ConsumerArgs) -> Result<()> {
    tls::install_default_provider();
    let sources = Sources::from_process(args.config);
    let config = config::load(&sources)?;
    logging::init(&config.log, config.secrets())?;
    if let Some(ConsumerCommand::Healthcheck) = args.command {
        return healthcheck::check(config.http.listen.as_deref()).await;
    }
    config.warn_of_exposures(&sources);
    config::warn_of_unread_variables(&sources);
    config::follow_secret_files();
    let metrics = metrics::install("consumer");
    trace::start(config.traces.endpoint.as_ref(), "consumer");
    let mode = if args.once {
        ConsumerMode::Once
    } else {
        ConsumerMode::Continuous
    };
    // Before connecting, which may wait for a migration: without a handler, PID 1 of a container ignores SIGTERM.
    let shutdown = Shutdown::on_signals(std::time::Duration::from_secs(
        config.consumer.drain_seconds,
    ))?;
    // Also before connecting, which may take minutes to pull the sandbox image: the process has to answer `/live` meanwhile.
    let health = health_of_start();
    if let Some(listen) = &config.http.listen {
        http::serve(listen, health.clone(), metrics, shutdown.clone()).await?;
    }
    let connecting = Box::pin(connect(config));
    let Some(connected) = shutdown.draining().run_until_cancelled(connecting).await else {
        tracing::info!("stopped before it was connected");
        return Ok(());
    };
    let deps = Arc::new(connected?);
    check_services(&health, &deps);
    tracing::info!(
        model.name = deps.model.name(),
        concurrency = deps.config.consumer.concurrency,
        "consumer ready"
    );
    program_pages::release_those_of_the_start();
    let sessions = run(Arc::clone(&deps), mode, shutdown).await;
    deps.queue.close().await;
    deps.store.close().await;
    trace::flush().await;
    tracing::info!(sessions, "consumer ended");
    Ok(())
}

/// Connects to everything that `config` names.
///
/// # Errors
/// Returns an error, with a hint, if something is missing. An unavailable broker is not an error: rows
/// are polled meanwhile.
pub async fn connect(config: Config) -> Result<ConsumerDeps> {
    config.trackers.require_one()?;
    config.require_a_tool()?;
    let trackers = agentmine_trackers::from_config(&config.trackers).map_err(of("trackers"))?;
    let model = agentmine_llm::from_config(&config.model).map_err(of("model"))?;
    agentmine_store::check(&config.store).map_err(of("store"))?;
    let store = agentmine_store::connect(&config.store)
        .await
        .map_err(StoreError::at_start)?;
    let heartbeat = agentmine_store::connect_heartbeat(&config.store)
        .await
        .map_err(StoreError::at_start)?;
    let queue = agentmine_queue::connect(&config.queue).map_err(of("queue"))?;
    // A broker that is away is reported at once, and not with the first task.
    let asked = Arc::clone(&queue);
    tokio::spawn(async move { asked.healthy().await });
    let backend = agentmine_sandbox::from_config(&config.command_executor).await?;
    backend.check().await?;
    if !config.command_executor.enabled {
        tracing::warn!(
            "command_executor.enabled is false: the model can edit files but not run commands"
        );
    }
    for fault in servers::operator_faults(&config) {
        tracing::warn!(fault, "an entry of the MCP file is skipped");
    }
    Ok(ConsumerDeps {
        config,
        store,
        heartbeat,
        queue,
        trackers,
        backend,
        model,
        watch: None,
        templates: Arc::default(),
    })
}

/// The error for a section of the configuration that cannot work.
fn of<E: Into<anyhow::Error>>(section: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| Failure::new(Exit::Config, section).because(error)
}

/// The last of the checks of [`check_services`].
const LAST_CHECK: &str = "sandbox";

/// The readiness of a process that is still connecting: none.
fn health_of_start() -> Health {
    let health = Health::new();
    health.check(LAST_CHECK, &Arc::new(()), |_| async {
        Err(anyhow!(
            "the consumer is still connecting. hint: see its log for what it waits for"
        ))
    });
    health
}

/// The readiness checks of a connected process. The last one replaces that of the start.
fn check_services(health: &Health, deps: &Arc<ConsumerDeps>) {
    health.check("store", deps, |deps| async move {
        Ok(deps.store.healthy().await?)
    });
    health.check("queue", deps, |deps| async move {
        Ok(deps.queue.healthy().await?)
    });
    health.check(LAST_CHECK, deps, |deps| async move {
        Ok(deps.backend.check().await?)
    });
}
