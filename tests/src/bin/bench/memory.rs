//! Memory of the real `consumer` program: idle, and with tasks held in the middle of their work.
//!
//! Shows `VmRSS` of `/proc/PID/status` and, since that includes pages of the program's file, `RssAnon`.
//! Sandboxes are not included: they are processes of the engine, or beside the worker.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, ScriptedModel, edit_view, say, shell};
use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::Backend;
use crate::fleet::{Database, Fleet, image};

/// The turn at which tasks are held, after they have run a command and used the editor.
const HELD_AT: usize = 2;
/// Time for the allocator to return freed memory, if it does.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory of a process, in KiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) rss: u64,
    pub(crate) anon: u64,
    /// The highest that `rss` was.
    pub(crate) peak: u64,
}

pub(crate) async fn run(backend: Backend, tasks: &[usize]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{:<24}{:>10}{:>10}", "consumer", "RSS", "anonymous")?;
    let mut held = Vec::new();
    for &count in tasks {
        let (idle, working) = measure(backend, count).await?;
        for (what, memory) in [
            ("idle".to_owned(), idle),
            (format!("{count} tasks running"), working),
        ] {
            let (rss, anon) = (mib(memory.rss), mib(memory.anon));
            writeln!(out, "{what:<24}{rss:>6.1} MiB{anon:>6.1} MiB")?;
        }
        held.push((count, idle, working));
    }
    if let [(few, idle, at_few), .., (many, _, at_many)] = held.as_slice()
        && many > few
    {
        let further = mib(at_many.rss.saturating_sub(at_few.rss)) / (many - few) as f64;
        let first = mib(at_few.rss.saturating_sub(idle.rss)) / *few as f64;
        writeln!(out, "each of the first {few}:     {first:>6.1} MiB")?;
        writeln!(out, "each further task:  {further:>6.1} MiB")?;
    }
    writeln!(
        out,
        "goal: idle under 20 MB, each further task under 2 MB\n"
    )?;
    Ok(())
}

pub(crate) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// One consumer, idle and then with `count` tasks.
async fn measure(backend: Backend, count: usize) -> anyhow::Result<(Memory, Memory)> {
    let database = Database::new(&service(
        "AGENTMINE_TEST_POSTGRES_URL",
        "postgres://postgres@127.0.0.1:54329/postgres",
    ));
    let fleet = Fleet::new(Some(&database.url()?)).await?;
    let model = ScriptedModel::start(Scenario::new("waits").replies([
        shell("ls && sh test.sh"),
        edit_view("greet.sh"),
        say("Done."),
    ]))
    .await;
    model.hold_at(HELD_AT);
    let folder = tempfile::tempdir()?;
    let config = write_config(folder.path(), &fleet, &model, &database, (backend, count))?;
    let mut consumer = start_consumer(&config, fleet.forge.token()).await?;
    let pid = consumer.id().context("the consumer has ended")?;
    let measured = hold(&fleet, &model, pid, count).await;
    end(&mut consumer, pid).await?;
    fleet.store.close().await;
    delete_queues(&database.name).await?;
    database.drop().await?;
    measured
}

async fn hold(
    fleet: &Fleet,
    model: &ScriptedModel,
    pid: u32,
    count: usize,
) -> anyhow::Result<(Memory, Memory)> {
    sleep(SETTLE).await;
    let idle = memory_of(pid)?;
    for _ in 0..count {
        fleet.enqueue().await?;
    }
    model.wait_for_held(count).await;
    sleep(SETTLE).await;
    Ok((idle, memory_of(pid)?))
}

pub(crate) fn service(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

pub(crate) fn amqp_url() -> String {
    service(
        "AGENTMINE_TEST_AMQP_URL",
        "amqp://guest:guest@127.0.0.1:56729/%2f",
    )
}

pub(crate) fn write_config(
    folder: &Path,
    fleet: &Fleet,
    model: &ScriptedModel,
    database: &Database,
    (backend, concurrency): (Backend, usize),
) -> anyhow::Result<PathBuf> {
    let config = config(fleet, model, database, (backend, concurrency))?;
    let path = folder.join("config.yaml");
    std::fs::write(&path, serde_json::to_string_pretty(&config)?)?;
    Ok(path)
}

/// The configuration of a consumer.
pub(crate) fn config(
    fleet: &Fleet,
    model: &ScriptedModel,
    database: &Database,
    (backend, concurrency): (Backend, usize),
) -> anyhow::Result<Value> {
    Ok(json!({
        "capacity": { "running_tasks": 0, "open_pull_requests": 0, "pull_requests_per_day": 0 },
        "trackers": { "github": { "api_url": fleet.forge.api_url(), "repositories": [DEMO] } },
        "queue": { "url": amqp_url(), "prefix": database.name },
        "store": { "url": database.url()? },
        "model": { "base_url": model.base_url(), "name": "scripted" },
        "command_executor": {
            "enabled": true,
            "backend": match backend { Backend::Docker => "docker", Backend::Local => "local" },
            // So that the disk has room for the file systems of all slots, and of as many verifications.
            "docker": { "base_image": image(), "resources": { "memory_limit": "512m", "disk_limit": "1g" } },
        },
        "consumer": { "concurrency": concurrency, "drain_seconds": 1 },
    }))
}

/// Starts the program that was built with this one, and waits until it is ready.
pub(crate) async fn start_consumer(config: &Path, token: &str) -> anyhow::Result<Child> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name("consumer");
    ensure!(
        program.exists(),
        "{} is not built. hint: cargo build --release",
        program.display()
    );
    let mut child = Command::new(program)
        .arg("--continuous")
        .arg("--config")
        .arg(config)
        .env("GITHUB_PERSONAL_ACCESS_TOKEN", token)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stderr = child.stderr.take().context("no stderr")?;
    let mut lines = BufReader::new(stderr).lines();
    let mut log = String::new();
    loop {
        match timeout(PATIENCE, lines.next_line()).await?? {
            Some(line) if line.contains("consumer ready") => break,
            Some(line) => log.push_str(&line),
            None => bail!("the consumer exited: {log}"),
        }
    }
    // A full pipe would block it.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(child)
}

/// Drains the consumer: running tasks are returned to the queue, and their sandboxes removed.
pub(crate) async fn end(consumer: &mut Child, pid: u32) -> anyhow::Result<()> {
    // SAFETY: `kill` takes two numbers and touches no memory of this program.
    let sent = unsafe { libc::kill(i32::try_from(pid)?, libc::SIGTERM) };
    ensure!(sent == 0, "the consumer has ended by itself");
    timeout(PATIENCE, consumer.wait())
        .await
        .context("the consumer did not exit")??;
    Ok(())
}

pub(crate) fn memory_of(pid: u32) -> anyhow::Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        let number = number.and_then(|number| number.parse().ok());
        number.with_context(|| format!("no {name} in the status of process {pid}"))
    };
    Ok(Memory {
        rss: field("VmRSS:")?,
        anon: field("RssAnon:")?,
        peak: field("VmHWM:")?,
    })
}

pub(crate) async fn delete_queues(prefix: &str) -> anyhow::Result<()> {
    let options = lapin::ConnectionProperties::default();
    let broker = lapin::Connection::connect(&amqp_url(), options).await?;
    let waits = (1..=3).map(|n| format!("retry.{n}"));
    let classes = ["low", "medium", "high", "critical"].map(|class| format!("tasks.{class}"));
    for queue in classes.into_iter().chain(waits).chain(["dead".to_owned()]) {
        let channel = broker.create_channel().await?;
        let name = format!("{prefix}.{queue}");
        // Deleting a queue that does not exist closes the channel, and does nothing else.
        let _ = channel
            .queue_delete(name.into(), lapin::options::QueueDeleteOptions::default())
            .await;
    }
    Ok(())
}
