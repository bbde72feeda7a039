//! The whole fleet in one process with nothing installed: in-process queue, SQLite, local jail.
//! The code is the fleet's own; only the adapters differ.

use std::sync::Arc;
use std::time::Duration;

use agentmine_consumer as consumer;
use agentmine_llm::Model;
use agentmine_producer as producer;
use agentmine_runtime::config::Config;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_trackers::Tracker;
use anyhow::Result;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use crate::paths::database_url;
use crate::print;
use agentmine_consumer::Progress;
use agentmine_runtime::config::{Secret, StoreConfig};

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Items that asked for work.
    pub(crate) found: u64,
    /// Sessions that ran.
    pub(crate) sessions: u64,
}

/// A fleet that runs, and what it tells.
pub(crate) struct Embedded {
    pub(crate) progress: UnboundedReceiver<Progress>,
    pub(crate) fleet: JoinHandle<Result<Ran>>,
}

/// The store of the embedded mode, unless the configuration file names one.
pub(crate) fn default_store(config: &mut Config) -> Result<()> {
    if config.store.url.expose() == StoreConfig::default().url.expose() {
        config.store.url = Secret::new(database_url()?);
    }
    Ok(())
}

/// Scans once, then works until nothing waits. Ctrl-C gives the running task back, files included.
pub(crate) async fn start(
    config: Config,
    tracker: Arc<dyn Tracker>,
    model: Arc<dyn Model>,
) -> Result<Embedded> {
    let store = agentmine_store::connect(&config.store).await?;
    let heartbeat = agentmine_store::connect_heartbeat(&config.store).await?;
    let queue = agentmine_queue::inproc();
    let backend = agentmine_sandbox::from_config(&config.command_executor).await?;
    backend.check().await?;
    let (watch, progress) = tokio::sync::mpsc::unbounded_channel();
    let producer = Arc::new(producer::ProducerDeps {
        config: config.clone(),
        store: Arc::clone(&store),
        queue: Arc::clone(&queue),
        trackers: vec![Arc::clone(&tracker)],
        backend: Some(Arc::clone(&backend)),
    });
    let consumer = Arc::new(consumer::ConsumerDeps {
        config,
        store,
        heartbeat,
        queue,
        trackers: vec![tracker],
        backend,
        model,
        watch: Some(watch),
    });
    let shutdown = Shutdown::on_signals(Duration::from_secs(2))?;
    let fleet = tokio::spawn(async move {
        let scan = producer::run(producer, producer::ProducerMode::Once, shutdown.clone()).await?;
        let sessions =
            consumer::run(consumer, consumer::ConsumerMode::Once, shutdown.clone()).await;
        if shutdown.is_draining() {
            print::line("interrupted; the task is kept and goes on with the next run");
        }
        Ok(Ran {
            found: scan.found,
            sessions,
        })
    });
    Ok(Embedded { progress, fleet })
}
