//! Answers of the MCP server and of the command line, over a store with 10,000 tasks and 100,000 steps.
//!
//! The server is in this process, behind a pipe, so a figure is its own work, the protocol's and the store's. The floor
//! is one task by its number from the store alone. A command is a process, which connects to the store first.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_control::fleet::Fleet;
use agentmine_control::mcp::{Context, ControlServer};
use agentmine_control::worker::Place;
use agentmine_domain::TaskNumber;
use agentmine_runtime::config::{Config, Secret, StoreConfig};
use agentmine_runtime::redact::Redactor;
use agentmine_store::Store;
use anyhow::{Context as _, ensure};
use rmcp::model::{CallToolRequestParams, ReadResourceRequestParams};
use rmcp::service::{RoleClient, RunningService, ServiceExt as _};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::process::Command;

use crate::fleet::Database;
use crate::table::{Samples, Table};

/// The rows, which the tests of the store's plans have too.
const SQLITE: &str = include_str!("../../../../crates/agentmine-store/testdata/crowd/sqlite.sql");
const POSTGRES: &str =
    include_str!("../../../../crates/agentmine-store/testdata/crowd/postgres.sql");
/// Records in the memory of the project.
const RECORDS: u32 = 200;
/// How often a command is run.
const COMMANDS: u32 = 10;

/// A failure if an answer takes longer.
const GOAL: Duration = Duration::from_millis(100);

pub(crate) async fn run(rounds: u32, postgres: Option<&str>, check: bool) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.db");
    let sqlite = format!("sqlite:{}", file.display());
    let fill = async || {
        let mut connection = sqlx::SqliteConnection::connect(&sqlite).await?;
        sqlx::raw_sql(AssertSqlSafe(SQLITE.to_owned()))
            .execute(&mut connection)
            .await?;
        anyhow::Ok(connection.close().await?)
    };
    let slow = over("SQLite", &sqlite, folder.path(), rounds, fill).await?;
    let mut failed = slow;
    if let Some(server) = postgres {
        let database = Database::new(server);
        let url = database.url()?;
        let fill = async || {
            let mut connection = sqlx::PgConnection::connect(&url).await?;
            sqlx::raw_sql(AssertSqlSafe(POSTGRES.to_owned()))
                .execute(&mut connection)
                .await?;
            anyhow::Ok(connection.close().await?)
        };
        let measured = over("Postgres", &url, folder.path(), rounds, fill).await;
        database.drop().await?;
        failed.extend(measured?);
    }
    ensure!(
        failed.is_empty() || !check,
        "slower than {GOAL:?}: {}",
        failed.join(", ")
    );
    Ok(())
}

/// Measures over one store. Returns what was slower than the goal, by the 90th percentile.
async fn over(
    name: &str,
    url: &str,
    folder: &Path,
    rounds: u32,
    fill: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let config = StoreConfig {
        url: Secret::new(url.to_owned()),
        ..StoreConfig::default()
    };
    let store = agentmine_store::connect(&config)
        .await
        .context("the store is not available; run tests/run --services")?;
    fill().await?;
    let client = serve(Arc::clone(&store), project(folder)?).await?;
    remember(&client).await?;
    let mut table = Table::new(&format!("an answer, {name}"));
    let floor = floor(store.as_ref(), rounds).await?;
    table.row("one task, from the store alone", &floor);
    let mut slow = Vec::new();
    let mut measured = |what: &str, samples: &Samples, table: &mut Table| {
        table.against(what, samples, &floor);
        if samples.quantile(90) > GOAL {
            slow.push(format!("{what} on {name}"));
        }
    };
    all_reads_are_measured(&client).await?;
    for (tool, args) in calls() {
        let samples = tool_call(&client, tool, &args, rounds).await?;
        let shown = match args.as_object().is_some_and(|it| it.is_empty()) {
            true => tool.to_owned(),
            false => format!("{tool} {args}"),
        };
        measured(&shown, &samples, &mut table);
    }
    for uri in ["task://1", "project://memory", "agent://default"] {
        measured(uri, &read(&client, uri, rounds).await?, &mut table);
    }
    let config = folder.join(format!("{name}.yaml"));
    std::fs::write(&config, json!({ "store": { "url": url } }).to_string())?;
    for args in [
        &["task", "list"][..],
        &["session", "list"],
        &["task", "why", "9011"],
        &["top", "--once"],
    ] {
        let samples = command(&config, folder, args).await?;
        measured(
            &format!("agentmine {}", args.join(" ")),
            &samples,
            &mut table,
        );
    }
    table.print("each answer in under 100 ms")?;
    client.cancel().await?;
    store.close().await;
    Ok(slow)
}

type Client = RunningService<RoleClient, ()>;

async fn serve(store: Arc<dyn Store>, project: PathBuf) -> anyhow::Result<Client> {
    let context = Context {
        store,
        place: Place {
            worktrees: project.with_file_name("worktrees"),
            project,
            operator_agents: None,
            config: None,
            allowed_images: Vec::new(),
        },
        broker: None,
        fleet: Fleet::new(Config::default()),
        secrets: Arc::new(Redactor::new([])),
        memory_tokens: 2000,
    };
    let (near, far) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        if let Ok(running) = ControlServer::new(context).serve(far).await {
            let _ = running.waiting().await;
        }
    });
    Ok(().serve(near).await?)
}

/// A project with one commit.
fn project(folder: &Path) -> anyhow::Result<PathBuf> {
    let project = folder.join("project");
    std::fs::create_dir_all(&project)?;
    std::fs::write(project.join("a.txt"), "one\n")?;
    for args in [
        &["init", "--quiet"][..],
        &["add", "."],
        &["commit", "--quiet", "--allow-empty", "-m", "One"],
    ] {
        let done = std::process::Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@localhost", "-C"])
            .arg(&project)
            .args(args)
            .status()?;
        ensure!(done.success(), "git {args:?} failed");
    }
    Ok(project)
}

async fn remember(client: &Client) -> anyhow::Result<()> {
    for n in 0..RECORDS {
        let record = json!({ "id": format!("record-{n}"), "category": "tooling", "title": format!("Decision {n}"),
            "source": "human", "content": "What was decided, and why. ".repeat(20) });
        call(client, "memory_add", &record).await?;
    }
    Ok(())
}

/// What is measured: each tool that only reads, and those that make a task or change one.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("task_list", json!({})),
        ("task_list", json!({ "limit": 500 })),
        ("task_list", json!({ "status": "failed" })),
        (
            "task_list",
            json!({ "status": "in_progress", "cursor": 9000 }),
        ),
        ("task_list", json!({ "assignee": "assignee-3" })),
        ("task_list", json!({ "assignee": "nobody" })),
        ("task_get", json!({ "taskId": 9020 })),
        ("task_why", json!({ "taskId": 9011 })),
        ("task_why", json!({ "taskId": 9015 })),
        ("task_why", json!({ "taskId": 1 })),
        ("queue_status", json!({})),
        ("session_list", json!({})),
        ("session_list", json!({ "limit": 500 })),
        ("session_list", json!({ "taskId": 1 })),
        ("session_get", json!({ "sessionId": 10001 })),
        ("session_logs", json!({ "sessionId": 10001 })),
        (
            "session_logs",
            json!({ "sessionId": 10001, "after": 4000, "limit": 500 }),
        ),
        ("worker_list", json!({})),
        ("agent_list", json!({})),
        ("agent_get", json!({ "name": "default" })),
        ("memory_list", json!({})),
        ("memory_get", json!({ "id": "record-7" })),
        ("memory_preview", json!({})),
        ("task_create", json!({ "title": "One more" })),
        (
            "task_update",
            json!({ "taskId": 9020, "title": "Another title" }),
        ),
    ]
}

/// So that no new tool is omitted.
async fn all_reads_are_measured(client: &Client) -> anyhow::Result<()> {
    let calls = calls();
    for tool in client.list_all_tools().await? {
        let reads = tool.annotations.as_ref().and_then(|it| it.read_only_hint) == Some(true);
        let is_measured = calls.iter().any(|(name, _)| *name == tool.name);
        ensure!(!reads || is_measured, "{} is not measured", tool.name);
    }
    Ok(())
}

async fn floor(store: &dyn Store, rounds: u32) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for n in 0..rounds {
        let begun = Instant::now();
        let found = store
            .task_by_number(TaskNumber(i64::from(n % 9000) + 1))
            .await?;
        samples.push(begun.elapsed());
        ensure!(found.is_some(), "the store has no task {n}");
    }
    Ok(samples)
}

async fn tool_call(
    client: &Client,
    tool: &'static str,
    args: &Value,
    rounds: u32,
) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let begun = Instant::now();
        call(client, tool, args).await?;
        samples.push(begun.elapsed());
    }
    Ok(samples)
}

async fn call(client: &Client, tool: &'static str, args: &Value) -> anyhow::Result<()> {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = args.as_object().cloned();
    let result = client.call_tool(request).await?;
    ensure!(
        result.is_error != Some(true),
        "{tool} {args}: {:?}",
        result.structured_content
    );
    Ok(())
}

async fn read(client: &Client, uri: &str, rounds: u32) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let begun = Instant::now();
        client
            .read_resource(ReadResourceRequestParams::new(uri))
            .await?;
        samples.push(begun.elapsed());
    }
    Ok(samples)
}

async fn command(config: &Path, folder: &Path, args: &[&str]) -> anyhow::Result<Samples> {
    let program = std::env::current_exe()?.with_file_name("agentmine");
    ensure!(
        program.exists(),
        "{} is not built. hint: cargo build --release --workspace --bins",
        program.display()
    );
    let mut samples = Samples::default();
    for _ in 0..COMMANDS {
        let begun = Instant::now();
        let done = Command::new(&program)
            .arg("--config")
            .arg(config)
            .args(args)
            .arg("--json")
            .current_dir(folder.join("project"))
            .env("HOME", folder)
            .stdin(Stdio::null())
            .output()
            .await?;
        samples.push(begun.elapsed());
        let errors = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{args:?}: {errors}");
    }
    Ok(samples)
}
