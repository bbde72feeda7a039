//! The memory of the real `producer` while it scans: a separate process, with its database and its broker.
//!
//! All hours are quiet hours, so that every task waits: no label moves, and no look at a repository for its capacity adds
//! requests. It looks for commands as always, and at its pull requests, on which nothing happens.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_domain::{ItemKind, ItemRef, NewTask, Priority, TrackerKind};
use agentmine_runtime::config::{Secret, StoreConfig};
use agentmine_store::{Enqueued, Store};
use agentmine_tests::forge::{BOT, Forge};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use super::goals::Goals;
use super::{Kind, OWNER, Size, change, counted, filled, names, settle};
use crate::fleet::Database;
use crate::memory::{Memory, amqp_url, delete_queues, end, memory_of, mib, service};

/// Seconds between two scans.
const INTERVAL: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(1800);
/// The tasks whose pull requests are open are over, and none is announced.
const OVER: &str = "UPDATE tasks SET state = 'done', end_reported = true; DELETE FROM outbox";

pub(super) async fn measure(size: Size, goals: &mut Goals) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(
        out,
        "\n| the program | requests | that count | seconds | items | peak MiB | of it anonymous now |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for kind in [Kind::Github, Kind::Gitlab] {
        let server = service(
            "AGENTMINE_TEST_POSTGRES_URL",
            "postgres://postgres@127.0.0.1:54329/postgres",
        );
        let database = Database::new(&server);
        let measured = measure_on(kind, size, &database, goals).await;
        delete_queues(&database.name).await?;
        database.drop().await?;
        measured?;
    }
    Ok(())
}

async fn measure_on(kind: Kind, size: Size, database: &Database, goals: &mut Goals) -> Result<()> {
    let forge = filled(size).await;
    open_pulls(kind, size, database, &forge).await?;
    settle(&forge, size);
    let folder = tempfile::tempdir()?;
    let config = write_config(folder.path(), (kind, size), database, &forge)?;
    let mut producer = Producer::start(kind, &config, &forge)?;
    producer.until(size.items).await?;
    producer.print(&forge, "until all are found")?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(size.idle) {
        producer.scan().await?;
    }
    let idle = format!("{} seconds in which nothing changes", size.idle);
    producer.print(&forge, &idle)?;
    change(&forge, size);
    producer.until(size.items + size.changes).await?;
    let memory = producer.print(&forge, &format!("{} changes", size.changes))?;
    goals.memory(kind, mib(memory.peak));
    end(&mut producer.child, producer.pid).await
}

/// A pull request of the fleet in each repository.
async fn open_pulls(kind: Kind, size: Size, database: &Database, forge: &Forge) -> Result<()> {
    let config = StoreConfig {
        url: Secret::new(database.url()?),
        max_connections: 2,
        ..StoreConfig::default()
    };
    let store: Arc<dyn Store> = agentmine_store::connect(&config).await?;
    let (tracker, api) = match kind {
        Kind::Github => (TrackerKind::GitHub, forge.api_url()),
        Kind::Gitlab => (TrackerKind::GitLab, forge.gitlab_url()),
    };
    let port = api.port().context("a port")?;
    let host = format!("{}:{port}", api.host_str().context("a host")?);
    for path in names(size.repositories) {
        let item = ItemRef {
            tracker,
            host: host.clone(),
            repo_id: forge.repo_id(&path).to_string(),
            kind: ItemKind::Issue,
            number: forge.add_issue(&path, "Done", "It greets.", &[]),
            repo_path: path.clone(),
        };
        let new = NewTask {
            item,
            trigger: "1".to_owned(),
            title: "Done".to_owned(),
            url: forge.html_url().to_string(),
            priority: Priority::Medium,
        };
        let (Enqueued::Created(task) | Enqueued::Known(task)) = store.enqueue(&new).await?;
        store.watch_pull(task.id).await?;
        forge.add_pull_as(BOT, &path, (&task.branch(), "main"), "Ours", &[]);
    }
    let mut admin = PgConnection::connect(&database.url()?).await?;
    sqlx::raw_sql(OVER).execute(&mut admin).await?;
    store.close().await;
    Ok(())
}

fn write_config(
    folder: &Path,
    (kind, size): (Kind, Size),
    database: &Database,
    forge: &Forge,
) -> Result<PathBuf> {
    let trackers = match kind {
        Kind::Github => {
            json!({ "github": { "api_url": forge.api_url(), "repositories": names(size.repositories) } })
        }
        Kind::Gitlab => json!({ "gitlab": { "api_url": forge.gitlab_url(), "groups": [OWNER] } }),
    };
    let config = json!({
        "trackers": trackers,
        "queue": { "url": amqp_url(), "prefix": database.name },
        "store": { "url": database.url()? },
        "producer": { "interval_seconds": INTERVAL, "cleanup": false },
        "capacity": { "quiet_hours": ["00:00-12:00", "12:00-00:00"] },
        "log": { "format": "json" },
    });
    let path = folder.join("config.yaml");
    std::fs::write(&path, serde_json::to_string_pretty(&config)?)?;
    Ok(path)
}

/// The program, and what it has cost so far.
struct Producer {
    kind: Kind,
    child: Child,
    pid: u32,
    log: Lines<BufReader<ChildStderr>>,
    requests: usize,
    since: Instant,
    /// Items with the label, in the latest scan.
    found: u64,
}

impl Producer {
    /// Starts the program that was built with this one.
    fn start(kind: Kind, config: &Path, forge: &Forge) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("producer");
        ensure!(
            program.exists(),
            "{} is not built. hint: cargo build --workspace",
            program.display()
        );
        let mut child = Command::new(program)
            .args(["--continuous", "--config"])
            .arg(config)
            .env("GITHUB_PERSONAL_ACCESS_TOKEN", forge.token())
            .env("GITLAB_PERSONAL_ACCESS_TOKEN", forge.token())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let log = child.stderr.take().context("its log")?;
        Ok(Self {
            kind,
            pid: child.id().context("it has ended")?,
            child,
            log: BufReader::new(log).lines(),
            requests: 0,
            since: Instant::now(),
            found: 0,
        })
    }

    /// Waits for the end of a scan.
    async fn scan(&mut self) -> Result<()> {
        loop {
            let line = timeout(PATIENCE, self.log.next_line()).await;
            let Some(line) = line.context("no scan ended")?? else {
                bail!("the producer exited");
            };
            let line: Value = serde_json::from_str(&line)?;
            match line["level"].as_str() {
                Some("ERROR") => bail!("the producer logged {line}"),
                _ if line["message"] == "scanned" => {
                    self.found = line["found"].as_u64().context("found")?;
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Waits until a scan finds so many items.
    async fn until(&mut self, items: u64) -> Result<()> {
        let began = Instant::now();
        while self.found < items {
            self.scan().await?;
            let found = self.found;
            ensure!(began.elapsed() < PATIENCE, "{found} of {items} were found");
        }
        Ok(())
    }

    /// Prints what it cost since the last time.
    fn print(&mut self, forge: &Forge, what: &str) -> Result<Memory> {
        let memory = memory_of(self.pid)?;
        let requests = forge.requests();
        let (requests, counted) = counted(self.kind, &requests[self.requests..]);
        self.requests += requests;
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        let (kind, found) = (self.kind, self.found);
        let (peak, anon) = (mib(memory.peak), mib(memory.anon));
        writeln!(
            std::io::stdout(),
            "| {kind:?}, {what} | {requests} | {counted} | {seconds:.0} | {found} | {peak:.1} | {anon:.1} |"
        )?;
        Ok(memory)
    }
}
