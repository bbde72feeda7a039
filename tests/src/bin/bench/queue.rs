//! What the queue and the store cost a fleet: many tasks, and slots that do for each what a consumer does with both of
//! them, with nothing in between. The slots are connections of their own to the real database and broker, in this process.
//!
//! For each task: its row and its entry in the outbox; the wake-up, published with a confirm and taken; a look at the row,
//! the claim, the acknowledgement; a heartbeat, a phase, four steps, the usage; one effect; the end. Relay and sweep run
//! beside, as in a consumer. Celery does the same with rows of the same kind ([`PEER`]), if it is installed.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_domain::{
    EffectKey, EndState, ItemKind, ItemRef, NewTask, Phase, Priority, StepKind, StepPayload,
    TaskId, TaskLabel, TrackerKind, Usage, WorkerId,
};
use agentmine_effects::announce;
use agentmine_queue::Queue;
use agentmine_runtime::config::{QueueConfig, Secret, StoreConfig};
use agentmine_store::{Enqueued, LeaseEnd, NewStep, Store, SweepPolicy};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::fleet::Database;
use crate::table::Samples;

const LEASE: Duration = Duration::from_secs(60);
/// Tasks that are enqueued one by one, while all slots wait.
const PICKED: u32 = 200;
const BETWEEN_PICKED: Duration = Duration::from_millis(20);
/// Tasks that are over.
const ENDED: &str = "
    INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key, trigger_event,
        dedup_key, title, url, priority, state, epoch, attempt, last_seq, created_at, updated_at, end_reported)
    SELECT ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, n, 'github', 'h', '1', 'a/b', 'issue', n,
        'old|' || n, 'e', 'old|' || n, 't', 'u', 1, 'done', 1, 1, 0, now() - interval '30 days', now() - interval '30 days',
        true FROM generate_series(1, COUNT) AS n;
    INSERT INTO sessions (task, epoch, worker, started_at, ended_at, ending)
    SELECT id, 1, 'w', created_at, updated_at, 'done' FROM tasks;
    INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
    SELECT id, 'label', 'done', 1, '{}', created_at, updated_at FROM tasks;
    INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, recorded_at, token)
    SELECT id, 1, 1, 'note', '{}', 1, created_at, gen_random_uuid() FROM tasks";
/// What a server does by itself in the months in which so many tasks end: without it the first tasks of the benchmark
/// pay for the million rows that were written just before.
const SETTLED: [&str; 2] = ["VACUUM ANALYZE", "CHECKPOINT"];
/// The peer, and how to install it.
const PEER: &str = include_str!("celery_fleet.py");

pub(crate) struct Servers {
    pub(crate) postgres: String,
    pub(crate) amqp: String,
    /// Where pip has installed Celery.
    pub(crate) celery: Option<String>,
}

pub(crate) async fn run(
    servers: &Servers,
    tasks: u32,
    consumers: &[usize],
    ended: &[u32],
    whole: u32,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let heads = [
        "enqueued/s",
        "ended/s",
        "first 10th",
        "last 10th",
        "pick-up p50",
        "p99",
        "database",
        "commits",
        "messages",
    ];
    write!(out, "{:<34}", format!("{tasks} tasks"))?;
    for head in heads {
        write!(out, "{head:>12}")?;
    }
    writeln!(out)?;
    for &ended in ended {
        for &slots in consumers {
            let ran = agentmine(servers, tasks, slots, ended).await?;
            print(&format!("{slots} slots, {ended} tasks are over"), &ran)?;
        }
    }
    for &slots in consumers.iter().filter(|_| whole > 0) {
        let ran = crate::whole::run(servers, whole, slots).await?;
        print(&format!("{slots} slots, {whole} whole sessions"), &ran)?;
    }
    if let Some(celery) = &servers.celery {
        for &slots in consumers {
            let ran = peer(servers, Path::new(celery), tasks, slots).await?;
            print(&format!("Celery, {slots} processes"), &ran)?;
        }
    }
    writeln!(
        out,
        "\ndatabase: time in statements a task; commits and messages: a task"
    )?;
    Ok(())
}

/// The figures of one run; those of the database are for each task.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) enqueued: f64,
    pub(crate) ended: f64,
    pub(crate) tenths: Option<[f64; 2]>,
    pub(crate) picked: Option<[Duration; 2]>,
    pub(crate) database: Duration,
    pub(crate) commits: f64,
    pub(crate) messages: f64,
}

impl Ran {
    /// What the database did for each of so many tasks.
    pub(crate) fn between(before: &Used, after: &Used, tasks: u32) -> Self {
        let each = |sum: f64| sum / f64::from(tasks);
        Self {
            database: Duration::from_secs_f64(each(after.millis - before.millis) / 1e3),
            commits: each(after.commits - before.commits),
            messages: each(after.messages),
            ..Self::default()
        }
    }
}

fn print(name: &str, ran: &Ran) -> anyhow::Result<()> {
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let tenth = |n: usize| {
        ran.tenths
            .map_or(String::new(), |tenths| format!("{:.0}", tenths[n]))
    };
    let picked = |n: usize| ran.picked.map_or(String::new(), |picked| ms(picked[n]));
    let cells = [
        format!("{:.0}", ran.enqueued),
        format!("{:.0}", ran.ended),
        tenth(0),
        tenth(1),
        picked(0),
        picked(1),
        ms(ran.database),
        format!("{:.1}", ran.commits),
        format!("{:.2}", ran.messages),
    ];
    let mut out = std::io::stdout();
    write!(out, "{name:<34}")?;
    for cell in cells {
        write!(out, "{cell:>12}")?;
    }
    writeln!(out)?;
    Ok(())
}

async fn agentmine(servers: &Servers, tasks: u32, slots: usize, ended: u32) -> anyhow::Result<Ran> {
    let database = Database::new(&servers.postgres);
    let ran = agentmine_on(servers, &database, tasks, slots, ended).await;
    database.drop().await?;
    ran
}

async fn agentmine_on(
    servers: &Servers,
    database: &Database,
    tasks: u32,
    slots: usize,
    ended: u32,
) -> anyhow::Result<Ran> {
    let connections = StoreConfig {
        url: Secret::new(database.url()?),
        max_connections: 2,
        ..StoreConfig::default()
    };
    let broker = QueueConfig {
        url: Secret::new(&servers.amqp),
        prefix: format!("bench-{}", Uuid::new_v4().simple()),
        ..QueueConfig::default()
    };
    let store = agentmine_store::connect(&connections).await?;
    let queue = agentmine_queue::connect(&broker)?;
    if ended > 0 {
        let mut admin = PgConnection::connect(&database.url()?).await?;
        let rows = AssertSqlSafe(ENDED.replace("COUNT", &ended.to_string()));
        sqlx::raw_sql(rows).execute(&mut admin).await?;
        for statement in SETTLED {
            sqlx::raw_sql(statement).execute(&mut admin).await?;
        }
    }
    let before = Used::of(database).await?;
    let began = Instant::now();
    for n in 0..tasks {
        enqueue(store.as_ref(), n).await?;
    }
    let enqueued = f64::from(tasks) / began.elapsed().as_secs_f64();
    while announce(store.as_ref(), queue.as_ref()).await? > 0 {}
    let work = Arc::new(Work::default());
    let mut all = JoinSet::new();
    for slot in 0..slots {
        let own = StoreConfig {
            max_connections: 1,
            ..connections.clone()
        };
        let store = agentmine_store::connect(&own).await?;
        let queue = agentmine_queue::connect(&broker)?;
        all.spawn(one_slot(slot, store, queue, Arc::clone(&work)));
    }
    let mut beside = JoinSet::new();
    beside.spawn(relay_and_sweep(Arc::clone(&store), Arc::clone(&queue)));
    let times = until(&work, &mut all, u64::from(tasks)).await?;
    for n in 0..PICKED {
        let task = enqueue(store.as_ref(), tasks + n).await?;
        work.made().insert(task, Instant::now());
        announce(store.as_ref(), queue.as_ref()).await?;
        tokio::time::sleep(BETWEEN_PICKED).await;
    }
    let total = tasks + PICKED;
    until(&work, &mut all, u64::from(total)).await?;
    beside.shutdown().await;
    all.shutdown().await;
    store.close().await;
    // The statistics of a connection are written when it ends.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = Used::of(database).await?;
    remove_queues(queue.as_ref(), &servers.amqp).await?;
    queue.close().await;
    let picked: Samples = work.picked().iter().copied().collect();
    ensure!(picked.len() == PICKED as usize, "{} picked", picked.len());
    Ok(Ran {
        enqueued,
        ended: rate(&times, 0..times.len()),
        tenths: Some([
            rate(&times, 0..times.len() / 10),
            rate(&times, times.len() * 9 / 10..times.len()),
        ]),
        picked: Some([picked.median(), picked.quantile(99)]),
        ..Ran::between(&before, &used, total)
    })
}

/// Ends a second, over this part of the ends.
fn rate(times: &[Instant], part: std::ops::Range<usize>) -> f64 {
    match times.get(part) {
        Some([first, .., last]) => {
            let count = times
                .iter()
                .filter(|at| (first..=last).contains(at))
                .count();
            count as f64 / (*last - *first).as_secs_f64().max(1e-9)
        }
        _ => 0.0,
    }
}

/// What the slots have done.
#[derive(Default)]
struct Work {
    count: AtomicU64,
    ends: Mutex<Vec<Instant>>,
    made: Mutex<HashMap<TaskId, Instant>>,
    picked: Mutex<Vec<Duration>>,
}

impl Work {
    fn made(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Instant>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn picked(&self) -> std::sync::MutexGuard<'_, Vec<Duration>> {
        self.picked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, Vec<Instant>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for so many ends, and returns when each came.
async fn until(
    work: &Work,
    slots: &mut JoinSet<anyhow::Result<()>>,
    count: u64,
) -> anyhow::Result<Vec<Instant>> {
    while work.count.load(Ordering::Relaxed) < count {
        if let Some(ended) = slots.try_join_next() {
            ended??;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(work.ends().clone())
}

async fn enqueue(store: &dyn Store, number: u32) -> anyhow::Result<TaskId> {
    let new = NewTask {
        item: ItemRef {
            tracker: TrackerKind::GitHub,
            host: "github.com".into(),
            repo_id: "42".into(),
            repo_path: "acme/shop".into(),
            kind: ItemKind::Issue,
            number: u64::from(number),
        },
        trigger: "e".into(),
        title: "An issue".into(),
        url: "https://github.com/acme/shop/issues/1".into(),
        priority: Priority::Medium,
    };
    match store.enqueue(&new).await? {
        Enqueued::Created(task) => Ok(task.id),
        Enqueued::Known(task) => anyhow::bail!("known: {}", task.number.0),
    }
}

async fn relay_and_sweep(store: Arc<dyn Store>, queue: Arc<dyn Queue>) {
    let policy = SweepPolicy {
        max_attempts: 3,
        wakeup_after: LEASE,
        lease: LEASE,
    };
    for turn in 0_u32.. {
        let _ = announce(store.as_ref(), queue.as_ref()).await;
        if turn.is_multiple_of(30) {
            let _ = store.sweep(&policy).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn one_slot(
    slot: usize,
    store: Arc<dyn Store>,
    queue: Arc<dyn Queue>,
    work: Arc<Work>,
) -> anyhow::Result<()> {
    let worker = WorkerId(format!("bench/1/{slot}"));
    loop {
        let Some(message) = queue.next(Duration::from_secs(5)).await? else {
            continue;
        };
        let task = message.wake_up().map_err(anyhow::Error::msg)?.task;
        store.task(task).await?.context("no row")?;
        let claim = store.claim(task, &worker, Uuid::new_v4(), LEASE, 3).await?;
        message.ack().await?;
        let Some(claim) = claim else { continue };
        if let Some(made) = work.made().remove(&task) {
            work.picked().push(made.elapsed());
        }
        let lease = claim.lease;
        store.heartbeat(&lease, LEASE).await?;
        store.set_phase(&lease, Phase::Running).await?;
        for _ in 0..4 {
            let payload = StepPayload::encode(&json!({ "text": "A step. ".repeat(60) }))?;
            let step = NewStep::new(StepKind::Note, payload, 1);
            store.append_step(&lease, &step).await?;
        }
        store.record_usage(&lease, "m", &Usage::default()).await?;
        let label = EffectKey::label(TaskLabel::Processing, lease.epoch);
        store.effect_begin(task, Some(&lease), &label).await?;
        store.effect_done(task, &label, &json!({})).await?;
        let end = LeaseEnd::Finish {
            state: EndState::Done,
            reason: None,
            pull_request_url: None,
        };
        store.end_lease(&lease, &end).await?;
        work.ends().push(Instant::now());
        work.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a database has done.
pub(crate) struct Used {
    millis: f64,
    commits: f64,
    messages: f64,
}

impl Used {
    pub(crate) async fn of(database: &Database) -> anyhow::Result<Self> {
        let mut connection = PgConnection::connect(&database.url()?).await?;
        let row = sqlx::query(
            "SELECT active_time, xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()",
        )
        .fetch_one(&mut connection)
        .await?;
        let sent = "SELECT count(*)::float8 FROM outbox WHERE sent_at IS NOT NULL";
        // The peer has no such table.
        let messages = sqlx::query_scalar(sent).fetch_one(&mut connection).await;
        Ok(Self {
            millis: row.try_get(0)?,
            commits: row.try_get(1)?,
            messages: messages.unwrap_or(0.0),
        })
    }
}

pub(crate) async fn remove_queues(queue: &dyn Queue, amqp: &str) -> anyhow::Result<()> {
    let connection =
        lapin::Connection::connect(amqp, lapin::ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    for depth in queue.depths().await? {
        let options = lapin::options::QueueDeleteOptions::default();
        channel.queue_delete(depth.name.into(), options).await?;
    }
    connection.close(200, "done".into()).await?;
    Ok(())
}

async fn peer(
    servers: &Servers,
    installed: &Path,
    tasks: u32,
    processes: usize,
) -> anyhow::Result<Ran> {
    let database = Database::new(&servers.postgres);
    let mut admin = PgConnection::connect(&servers.postgres).await?;
    let create = AssertSqlSafe(format!("CREATE DATABASE {}", database.name));
    sqlx::raw_sql(create).execute(&mut admin).await?;
    let ran = peer_on(servers, &database, installed, tasks, processes).await;
    database.drop().await?;
    ran
}

async fn peer_on(
    servers: &Servers,
    database: &Database,
    installed: &Path,
    tasks: u32,
    processes: usize,
) -> anyhow::Result<Ran> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("celery_fleet.py");
    std::fs::write(&script, PEER)?;
    let path = std::env::join_paths([installed, folder.path()])?;
    let before = Used::of(database).await?;
    let queue = format!("celery-bench-{}", Uuid::new_v4().simple());
    let done = tokio::process::Command::new("/usr/bin/python3")
        .arg(&script)
        .args([tasks.to_string(), processes.to_string(), PICKED.to_string()])
        .current_dir(folder.path())
        .env("PYTHONPATH", path)
        .env("BENCH_POSTGRES", database.url()?)
        .env("BENCH_AMQP", servers.amqp.replace("%2f", "/"))
        .env("BENCH_QUEUE", &queue)
        .output()
        .await?;
    ensure!(
        done.status.success(),
        "Celery failed: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    let printed: Value = serde_json::from_slice(&done.stdout)?;
    let figure = |name: &str| printed[name].as_f64().unwrap_or(0.0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = Used::of(database).await?;
    let connection =
        lapin::Connection::connect(&servers.amqp, lapin::ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let options = lapin::options::QueueDeleteOptions::default();
    channel.queue_delete(queue.into(), options).await?;
    connection.close(200, "done".into()).await?;
    Ok(Ran {
        enqueued: figure("enqueued"),
        ended: figure("ended"),
        picked: Some(["p50", "p99"].map(|name| Duration::from_secs_f64(figure(name)))),
        messages: 1.0,
        ..Ran::between(&before, &used, tasks + PICKED)
    })
}
