//! Builds a producer from its configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::config::{self, Config, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::http::{self, Health};
use agentmine_runtime::shutdown::Shutdown;
use agentmine_runtime::{healthcheck, logging, metrics, program_pages, tls, trace};
use agentmine_store::StoreError;
use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::deps::ProducerDeps;
use crate::loops::{ProducerMode, run};

/// Scans trackers and enqueues tasks.
#[derive(Debug, Parser)]
#[command(
    name = "producer",
    version,
    about = "Scans trackers for labelled items and enqueues a task for each"
)]
pub struct ProducerArgs {
    /// Configuration file [default: ./config.yaml, then ~/.config/agentmine/config.yaml]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Scan once, then exit
    #[arg(long, conflicts_with = "continuous")]
    pub once: bool,
    /// Scan every `producer.interval_seconds` until stopped (the default)
    #[arg(long)]
    pub continuous: bool,
    /// Run this command instead of scanning
    #[command(subcommand)]
    pub command: Option<ProducerCommand>,
}

/// What a producer does instead of scanning.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ProducerCommand {
    /// Bring the database to this version's schema, as a user who owns its tables, and exit
    Migrate,
    /// Exit with 0 if the producer with this configuration is ready
    Healthcheck,
}

/// Runs the producer's process: loads the configuration, connects, serves `/ready` and `/metrics`,
/// scans, and drains on shutdown.
///
/// # Errors
/// Returns an error if the configuration is invalid, a required service is unavailable, or the scan of
/// `--once` failed.
pub async fn main(args: ProducerArgs) -> Result<()> {
    tls::install_default_provider();
    let sources = Sources::from_process(args.config);
    let config = config::load(&sources)?;
    logging::init(&config.log, config.secrets())?;
    match args.command {
        Some(ProducerCommand::Migrate) => return migrate(&config).await,
        Some(ProducerCommand::Healthcheck) => {
            return healthcheck::check(config.http.listen.as_deref()).await;
        }
        None => {}
    }
    config.warn_of_exposures(&sources);
    config::warn_of_unread_variables(&sources);
    config::follow_secret_files();
    let metrics = metrics::install("producer");
    trace::start(config.traces.endpoint.as_ref(), "producer");
    let mode = if args.once {
        ProducerMode::Once
    } else {
        ProducerMode::Continuous
    };
    // Before connecting, which may wait for a migration: without a handler, PID 1 of a container ignores SIGTERM.
    let shutdown = Shutdown::on_signals(Duration::from_secs(config.consumer.drain_seconds))?;
    let connecting = Box::pin(connect(config));
    let Some(connected) = shutdown.draining().run_until_cancelled(connecting).await else {
        tracing::info!("stopped before it was connected");
        return Ok(());
    };
    let deps = Arc::new(connected?);
    if let Some(listen) = &deps.config.http.listen {
        http::serve(listen, health(&deps), metrics, shutdown.clone()).await?;
    }
    program_pages::release_those_of_the_start();
    let done = run(Arc::clone(&deps), mode, shutdown).await;
    for tracker in &deps.trackers {
        tracker.close().await;
    }
    deps.queue.close().await;
    deps.store.close().await;
    trace::flush().await;
    done.map(|_| ())
}

/// Applies the missing migrations. The other processes of this version wait for it (`store.migrations: wait`).
async fn migrate(config: &Config) -> Result<()> {
    agentmine_store::check(&config.store).map_err(of("store"))?;
    let shutdown = Shutdown::on_signals(Duration::from_secs(config.consumer.drain_seconds))?;
    let migrating = agentmine_store::migrate(&config.store);
    match shutdown.draining().run_until_cancelled(migrating).await {
        Some(migrated) => migrated.map_err(StoreError::at_start)?,
        None => anyhow::bail!("stopped before the schema was up to date"),
    }
    tracing::info!("the schema is up to date");
    Ok(())
}

/// Connects to everything that `config` names.
///
/// # Errors
/// Returns an error, with a hint, if something is missing. An unavailable broker is not an error: tasks
/// are recorded, and announced when it is available again.
pub async fn connect(config: Config) -> Result<ProducerDeps> {
    config.trackers.require_one()?;
    let trackers = agentmine_trackers::from_config(&config.trackers).map_err(of("trackers"))?;
    agentmine_store::check(&config.store).map_err(of("store"))?;
    let store = agentmine_store::connect(&config.store)
        .await
        .map_err(StoreError::at_start)?;
    let queue = agentmine_queue::connect(&config.queue).map_err(of("queue"))?;
    // A broker that is away is reported at once, and not with the first task.
    let asked = Arc::clone(&queue);
    tokio::spawn(async move { asked.healthy().await });
    let backend = match config.producer.cleanup {
        false => None,
        true => match agentmine_sandbox::from_config(&config.command_executor).await {
            Ok(backend) => Some(backend),
            Err(error) => {
                tracing::warn!(%error, "this producer does not remove stale sandboxes");
                None
            }
        },
    };
    Ok(ProducerDeps {
        config,
        store,
        queue,
        trackers,
        backend,
        pulls: crate::SeenPulls::default(),
        commands: crate::SeenCommands::default(),
        dashboards: crate::SeenDashboards::default(),
    })
}

/// The error for a section of the configuration that cannot work.
fn of<E: Into<anyhow::Error>>(section: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| Failure::new(Exit::Config, section).because(error)
}

/// The readiness checks of this process.
fn health(deps: &Arc<ProducerDeps>) -> Health {
    let health = Health::new();
    health.check("store", deps, |deps| async move {
        Ok(deps.store.healthy().await?)
    });
    health.check("queue", deps, |deps| async move {
        Ok(deps.queue.healthy().await?)
    });
    health
}
