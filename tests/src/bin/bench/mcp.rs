//! The client manager compared with `rmcp` alone: the same server and the same calls in the same run,
//! taking turns. On the worker, and in sandboxes that are already running.
//!
//! The server is our text editor: in a sandbox the static program that every sandbox has, on the worker
//! the one that was built with this program.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_consumer::SandboxLauncher;
use agentmine_mcp::config::{ServerConfig, ServerPlace};
use agentmine_mcp::{Launchers, Manager, ManagerPolicy, ServerState, Watch, WorkerLauncher};
use agentmine_sandbox::Sandbox;
use agentmine_tests::mcp::{resident_kib, server};
use anyhow::{Context as _, ensure};
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService, ServiceExt as _};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::Backend;
use crate::fleet::{put_file, sandbox};
use crate::table::{Samples, Table};

const EDITOR: &str = "mcp-server-text-editor";
/// Calls of one side before the other takes its turn.
const BATCH: u32 = 20;
/// Time for the allocator to return freed memory, if it does.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) async fn run(rounds: u32, starts: u32, backends: &[Backend]) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let worker = Worker::new(folder.path())?;
    // First, before this process has done anything else.
    memory(&worker).await?;
    let mut sandboxes = Vec::new();
    for &backend in backends {
        sandboxes.push((backend, sandbox(backend).await?));
    }
    let measured = measure(&worker, &sandboxes, rounds, starts).await;
    for (_, sandbox) in &sandboxes {
        sandbox.remove().await?;
    }
    measured
}

async fn measure(
    worker: &Worker,
    sandboxes: &[(Backend, Arc<dyn Sandbox>)],
    rounds: u32,
    starts: u32,
) -> anyhow::Result<()> {
    start(worker, sandboxes, starts).await?;
    round_trips(worker, sandboxes, rounds).await?;
    edits(worker, rounds).await
}

/// Starts servers on this machine.
struct Worker {
    folder: PathBuf,
    program: PathBuf,
}

impl Worker {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name(EDITOR);
        ensure!(
            program.exists(),
            "{} is not built. hint: cargo build --release --workspace --bins",
            program.display()
        );
        Ok(Self {
            folder: folder.to_owned(),
            program,
        })
    }

    fn command(&self) -> [String; 3] {
        let path = |path: &Path| path.display().to_string();
        [path(&self.program), "--root".into(), path(&self.folder)]
    }

    fn launchers(&self) -> Launchers {
        let launcher = WorkerLauncher::new(self.folder.clone(), |name| std::env::var(name).ok());
        Launchers {
            worker: Some(Arc::new(launcher)),
            sandbox: None,
        }
    }

    /// One server for each name.
    async fn manager(&self, count: usize) -> anyhow::Result<Manager> {
        let names = (0..count).map(|n| format!("editor-{n}"));
        let servers = names.map(|name| server(&name, ServerPlace::Worker, self.command()));
        managed(servers, self.launchers()).await
    }

    async fn alone(&self) -> anyhow::Result<Alone> {
        let [program, args @ ..] = self.command();
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let streams = child.stdout.take().zip(child.stdin.take());
        let client = ().serve(streams.context("no streams")?).await?;
        Ok(Alone { client, child })
    }
}

/// `rmcp` alone.
struct Alone {
    client: RunningService<RoleClient, ()>,
    child: Child,
}

impl Alone {
    async fn call(&self, arguments: &Value) -> anyhow::Result<()> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let call = CallToolRequestParams::new("text_editor").with_arguments(arguments);
        let result = self.client.call_tool(call).await?;
        ensure!(result.is_error != Some(true), "the editor said {result:?}");
        Ok(())
    }

    async fn end(mut self) -> anyhow::Result<()> {
        self.client.cancel().await?;
        self.child.wait().await?;
        Ok(())
    }
}

async fn managed(
    servers: impl IntoIterator<Item = ServerConfig>,
    launchers: Launchers,
) -> anyhow::Result<Manager> {
    let policy = ManagerPolicy {
        watch: Watch::Nothing,
        ..ManagerPolicy::default()
    };
    let manager = Manager::start(servers, launchers, policy).await;
    for status in manager.status() {
        ensure!(status.state == ServerState::Ready, "{status:#?}");
    }
    Ok(manager)
}

async fn managed_in(sandbox: &Arc<dyn Sandbox>) -> anyhow::Result<Manager> {
    let launchers = Launchers {
        worker: None,
        sandbox: Some(Arc::new(SandboxLauncher::new(Arc::clone(sandbox)))),
    };
    managed(
        [server("editor-0", ServerPlace::Sandbox, [EDITOR])],
        launchers,
    )
    .await
}

fn place(backend: Backend) -> &'static str {
    match backend {
        Backend::Docker => "in a container",
        Backend::Local => "in a jail",
    }
}

async fn start(
    worker: &Worker,
    sandboxes: &[(Backend, Arc<dyn Sandbox>)],
    rounds: u32,
) -> anyhow::Result<()> {
    let (mut floor, mut ours) = (Samples::default(), Samples::default());
    let mut inside = vec![Samples::default(); sandboxes.len()];
    // The first round warms the page cache.
    for round in 0..=rounds {
        let began = Instant::now();
        let alone = worker.alone().await?;
        alone.client.list_all_tools().await?;
        let took_alone = began.elapsed();
        alone.end().await?;
        let began = Instant::now();
        let manager = worker.manager(1).await?;
        let took = began.elapsed();
        manager.shutdown().await;
        if round > 0 {
            floor.push(took_alone);
            ours.push(took);
        }
        for ((_, sandbox), samples) in sandboxes.iter().zip(&mut inside) {
            let began = Instant::now();
            let manager = managed_in(sandbox).await?;
            if round > 0 {
                samples.push(began.elapsed());
            }
            manager.shutdown().await;
        }
    }
    let mut table = Table::new("start to first list of tools");
    table.row("rmcp alone, on the worker", &floor);
    table.against("manager, on the worker", &ours, &floor);
    for ((backend, _), samples) in sandboxes.iter().zip(&inside) {
        table.against(&format!("manager, {}", place(*backend)), samples, &floor);
    }
    table.print("none; a sandbox adds the tunnel and its exec")?;
    Ok(())
}

async fn round_trips(
    worker: &Worker,
    sandboxes: &[(Backend, Arc<dyn Sandbox>)],
    rounds: u32,
) -> anyhow::Result<()> {
    std::fs::write(worker.folder.join("small.txt"), lines(40))?;
    let alone = worker.alone().await?;
    let manager = worker.manager(1).await?;
    let mut inside = Vec::new();
    for (backend, sandbox) in sandboxes {
        let small = "/workspace/project/small.txt";
        put_file(sandbox.as_ref(), small, lines(40).into_bytes()).await?;
        inside.push((
            place(*backend),
            managed_in(sandbox).await?,
            Samples::default(),
        ));
    }
    let call = |root: &Path| json!({ "command": "view", "path": root.join("small.txt") });
    let (here, there) = (call(&worker.folder), call(Path::new("/workspace/project")));
    let (mut floor, mut ours) = (Samples::default(), Samples::default());
    for batch in 0..=rounds.div_ceil(BATCH) {
        let mut warm = Samples::default();
        let (floor, ours) = if batch == 0 {
            (&mut warm.clone(), &mut warm)
        } else {
            (&mut floor, &mut ours)
        };
        for _ in 0..BATCH {
            let began = Instant::now();
            alone.call(&here).await?;
            floor.push(began.elapsed());
        }
        through(&manager, &here, ours).await?;
        for (_, manager, samples) in &mut inside {
            let mut warm = Samples::default();
            through(
                manager,
                &there,
                if batch == 0 { &mut warm } else { samples },
            )
            .await?;
        }
    }
    alone.end().await?;
    manager.shutdown().await;
    let mut table = Table::new("a call's round trip (view, 40 lines)");
    table.row("rmcp alone, on the worker", &floor);
    table.against("manager, on the worker", &ours, &floor);
    for (place, manager, samples) in inside {
        manager.shutdown().await;
        table.against(&format!("manager, {place}"), &samples, &floor);
    }
    table.print("on the worker within 1.5x")?;
    Ok(())
}

async fn through(manager: &Manager, call: &Value, samples: &mut Samples) -> anyhow::Result<()> {
    for _ in 0..BATCH {
        let began = Instant::now();
        one_call(manager, call).await?;
        samples.push(began.elapsed());
    }
    Ok(())
}

async fn one_call(manager: &Manager, call: &Value) -> anyhow::Result<()> {
    let output = manager
        .call("editor-0", "text_editor", call.clone())
        .await?;
    ensure!(!output.is_error, "the editor said {}", output.text);
    Ok(())
}

/// The text editor on small and on large files, on the worker.
async fn edits(worker: &Worker, rounds: u32) -> anyhow::Result<()> {
    let mut table = Table::new("the text editor, on the worker");
    let alone = worker.alone().await?;
    let manager = worker.manager(1).await?;
    for (what, name, count) in [("40 lines", "few.txt", 40), ("1 MB", "many.txt", 40_000)] {
        let path = worker.folder.join(name);
        let text = lines(count);
        std::fs::write(&path, &text)?;
        let middle = count / 2;
        let replace = |n: u32| {
            let (few, many) = (format!("line {middle} of"), format!("line <{middle}> of"));
            let (old, new) = if n.is_multiple_of(2) {
                (few, many)
            } else {
                (many, few)
            };
            json!({ "command": "str_replace", "path": path, "old_str": old, "new_str": new })
        };
        let range = [middle, middle + 20];
        let view = json!({ "command": "view", "path": path, "view_range": range });
        // The two edits alternate: the second reverts the first.
        let [there, back] = [0, 1].map(replace);
        for (how, floors, our) in [
            ("view, 21 lines", &view, &view),
            ("str_replace", &there, &back),
        ] {
            let (mut floor, mut ours) = (Samples::default(), Samples::default());
            for _ in 0..rounds {
                let began = Instant::now();
                alone.call(floors).await?;
                floor.push(began.elapsed());
                let began = Instant::now();
                one_call(&manager, our).await?;
                ours.push(began.elapsed());
            }
            table.row(&format!("{how} of {what}: rmcp alone"), &floor);
            table.against(&format!("{how} of {what}: manager"), &ours, &floor);
        }
    }
    alone.end().await?;
    manager.shutdown().await;
    table.print("none; the server's own work is in both")?;
    Ok(())
}

/// Lines of about 26 bytes.
fn lines(count: u32) -> String {
    (0..count)
        .map(|n| format!("line {n} of a file of text\n"))
        .collect()
}

/// Memory of this process with several managers, without the servers' processes.
async fn memory(worker: &Worker) -> anyhow::Result<()> {
    let own = || resident_kib(std::process::id(), "VmRSS").context("no VmRSS");
    let mut out = std::io::stdout();
    let before = own()?;
    writeln!(out, "{:<28}{:>10}", "memory", "RSS")?;
    writeln!(out, "{:<28}{:>6.1} MiB", "before", mib(before))?;
    let mut last = (0, before);
    for count in [1, 10] {
        let manager = worker.manager(count).await?;
        sleep(SETTLE).await;
        let (servers, rss) = (count, own()?);
        writeln!(
            out,
            "{:<28}{:>6.1} MiB",
            format!("servers: {servers}"),
            mib(rss)
        )?;
        let each = if last.0 == 0 {
            "  the first"
        } else {
            "  each further one"
        };
        let further = mib(rss.saturating_sub(last.1)) / (servers - last.0) as f64;
        writeln!(out, "{:<28}{further:>6.2} MiB", each)?;
        last = (servers, rss);
        manager.shutdown().await;
    }
    writeln!(out)?;
    Ok(())
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
