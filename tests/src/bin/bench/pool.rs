//! Memory of an idle pool of sandboxes that are started ahead of tasks (`consumer.warm_sandboxes`): of the consumer, and
//! of what is ours in each sandbox.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use agentmine_tests::model::{Scenario, ScriptedModel};
use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::time::sleep;

use crate::Backend;
use crate::fleet::{Database, Fleet};
use crate::memory::{SETTLE, config, delete_queues, end, service, start_consumer};
use crate::tree::{Tree, containers};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Prints what a pool of `size` adds to an idle consumer.
pub(crate) async fn run(backend: Backend, size: usize) -> anyhow::Result<()> {
    let without = idle(backend, 0).await?;
    let with = idle(backend, size).await?;
    let mb = |kib: u64| kib as f64 * 1024.0 / 1e6;
    let added = mb(with.saturating_sub(without));
    writeln!(
        std::io::stdout(),
        "proportional set size of an idle consumer: {:.1} MB; with {size} warm sandboxes {:.1} MB, so {added:.1} MB more; \
         goal: under 5 MB\n",
        mb(without),
        mb(with)
    )?;
    Ok(())
}

/// The memory of an idle consumer and its sandboxes, in KiB.
async fn idle(backend: Backend, size: usize) -> anyhow::Result<u64> {
    let database = Database::new(&service(
        "AGENTMINE_TEST_POSTGRES_URL",
        "postgres://postgres@127.0.0.1:54329/postgres",
    ));
    let fleet = Fleet::new(Some(&database.url()?)).await?;
    let model = ScriptedModel::start(Scenario::new("none")).await;
    let folder = tempfile::tempdir()?;
    let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut config = config(&fleet, &model, &database, (backend, 1))?;
    config["consumer"]["warm_sandboxes"] = json!(size);
    config["http"] = json!({ "listen": listen.to_string() });
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, config.to_string())?;
    let before = match backend {
        Backend::Docker => Some(containers().await?),
        Backend::Local => None,
    };
    let mut consumer = start_consumer(&path, fleet.forge.token()).await?;
    let pid = consumer.id().context("the consumer has ended")?;
    let measured = async {
        until_full(&format!("http://{listen}/metrics"), size).await?;
        sleep(SETTLE).await;
        Tree::new(pid.cast_signed(), before).memory().await
    }
    .await;
    end(&mut consumer, pid).await?;
    fleet.store.close().await;
    delete_queues(&database.name).await?;
    database.drop().await?;
    measured
}

async fn until_full(metrics: &str, size: usize) -> anyhow::Result<()> {
    if size == 0 {
        return Ok(());
    }
    let begun = Instant::now();
    let full = format!("agentmine_warm_sandboxes {size}");
    loop {
        let shown = reqwest::get(metrics).await?.text().await?;
        if shown.lines().any(|line| line == full) {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "the pool is not full after a minute"
        );
        sleep(LOOK).await;
    }
}
