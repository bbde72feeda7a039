//! One step through the real tools, the real worker code and a real sandbox, with checkpoints and journal: a
//! command that does nothing, a new file of 2 KB, an edit of it, a view of it.
//!
//! The model answers at once, so a step lasts from an answer to the next request. The floor is what a step cannot
//! do without: the command alone and the write alone, by a shell in a sandbox of the same kind; bytes to a program
//! in the sandbox and back; and the journal's writes. CPU time is that of this process (worker, store and forge),
//! and of all processes of the sandbox.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_domain::{TaskId, Usage};
use agentmine_llm::{Delta, LlmError, Model, ModelReply, ModelRequest, Stop, ToolCall};
use agentmine_process::{Process, descendants};
use agentmine_sandbox::{Sandbox, from_config};
use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::Backend;
use crate::command::{batch_alone, printed_nanos};
use crate::count::{Counter, Counts};
use crate::cycle::{Act, KINDS};
use crate::editor::echo;
use crate::fleet::{Fleet, executor, sandbox, work};
use crate::machine;
use crate::steps::store_alone;
use crate::table::{Samples, Table, quiet_ratio};
use crate::tree::{container_of, container_time, pids_of, sandboxes_time, time_of};

/// Rounds of the cycle before measuring. The first call makes the bulk.
const WARM_UP: usize = 5;
const EDITOR: &str = "text_editor";
const COMMAND: &str = "command-executor_execute_command";
/// Files that a project of any size may have beside it, for the first call.
const BULK: &str = "fallocate -l 1G untracked.bin; mkdir node_modules; \
     for a in $(seq 50); do mkdir node_modules/$a; for b in $(seq 100); do : > node_modules/$a/$b; done; done";
/// Writes 2 KB as often as the first argument says, and prints how many nanoseconds that took.
const WRITES: &str = r#"
rounds=$1; text=$(head -c 2000 /dev/zero | tr '\0' x)
a=$(date +%s%N); b=$(date +%s%N); i=0
while [ $i -lt $rounds ]; do printf '%s\n' "$text" > /workspace/tmp/floor.$i; i=$((i + 1)); done
c=$(date +%s%N); echo $((c - b - (b - a)))
"#;

/// The name of the file of [`Project::large`].
const LARGE: &str = "large.txt";

/// What the steps work on.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Project {
    /// Edit a committed file of so many kilobytes in place of the new one
    #[arg(long, default_value_t = 0)]
    pub(crate) large: u32,
    /// Do not ignore the 5,000 files that the first call makes
    #[arg(long)]
    pub(crate) visible: bool,
}

impl Project {
    /// Makes it, with so many files.
    fn write(self, folder: &Path, files: u32) {
        write_files(folder, files);
        let put = |name: &str, text: String| {
            std::fs::write(folder.join(name), text)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        };
        if self.visible {
            put(".gitignore", "*.log\n".into());
        }
        if self.large > 0 {
            put(LARGE, self.large_text());
        }
    }

    /// Lines of 32 bytes, all different.
    fn large_text(self) -> String {
        (0..self.large * 32)
            .map(|n| format!("{:<31}\n", format!("line {n} of a large file")))
            .collect()
    }

    /// The call of the cycle, with the large file in place of the small one.
    fn act(self, n: usize) -> Act {
        match Act::at(n) {
            Act::Edit { new, .. } if self.large > 0 => Act::Edit {
                file: LARGE.into(),
                old: format!("line {n} of a large file"),
                new,
            },
            act => act,
        }
    }

    /// What the first call makes.
    fn bulk(self) -> String {
        let kind = if self.visible { "untracked" } else { "ignored" };
        format!("1 GB in a file and 5,000 {kind} files")
    }
}

/// Fails if a step takes more than `most` times its floor.
pub(crate) async fn run(
    backend: Backend,
    project: Project,
    files: &[u32],
    steps: u32,
    most: Option<f64>,
) -> anyhow::Result<()> {
    let mut exceeded = Vec::new();
    for &files in files {
        let ratio = one(backend, project, files, steps).await?;
        if most.is_some_and(|most| ratio > most) {
            exceeded.push(format!("{ratio:.2}x with {files} files"));
        }
    }
    ensure!(
        exceeded.is_empty(),
        "a step takes too long: {}",
        exceeded.join(", ")
    );
    Ok(())
}

/// Returns how often a step takes its floor.
pub(crate) async fn one(
    backend: Backend,
    project: Project,
    files: u32,
    steps: u32,
) -> anyhow::Result<f64> {
    let (fleet, model) = session(backend, project, files, steps, Meter::Cpu).await?;
    let floor = floor(&fleet, backend, steps).await?;
    fleet.store.close().await;
    print(&model, &floor, backend, files)
}

/// Counts the programs that a step starts, and its system calls.
pub(crate) async fn count(
    backend: Backend,
    project: Project,
    files: &[u32],
    steps: u32,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    for &files in files {
        let (fleet, model) = session(backend, project, files, steps, Meter::Counts).await?;
        fleet.store.close().await;
        let counts = model.measured().counts;
        let [worker, sandbox] = counts.context("the session ended before the last step")?;
        writeln!(out, "a step in {}, {files} files", place(backend))?;
        for (what, Counts { programs, calls }) in
            [("worker, store and forge", worker), ("sandbox", sandbox)]
        {
            let each = |sum: u64| sum as f64 / f64::from(steps);
            let (programs, calls) = (each(programs), each(calls));
            writeln!(
                out,
                "{what:<26}{programs:>6.2} programs{calls:>8.0} system calls"
            )?;
        }
    }
    writeln!(
        out,
        "one call of four is a command, which is a program; goal: no other\n"
    )?;
    Ok(())
}

/// One session of the cycle.
async fn session(
    backend: Backend,
    project: Project,
    files: u32,
    steps: u32,
    meter: Meter,
) -> anyhow::Result<(Fleet, Arc<Cycle>)> {
    let mut fleet = Fleet::with(None, move |folder| project.write(folder, files)).await?;
    fleet.config.command_executor = executor(backend);
    let task = fleet.enqueue().await?;
    let model = Arc::new(Cycle {
        backend,
        project,
        task,
        steps: steps as usize,
        meter,
        measured: Mutex::default(),
    });
    let sandboxes = from_config(&fleet.config.command_executor).await?;
    let deps = fleet.deps(sandboxes, model.clone(), None).await?;
    let sessions = work(deps).await;
    ensure!(sessions == 1, "{sessions} sessions ran");
    Ok((fleet, model))
}

struct Floor {
    exec: Samples,
    write: Samples,
    echo: Samples,
    journal: Samples,
}

impl Floor {
    /// What a step of this kind cannot do without.
    fn of(&self, kind: usize, percent: usize) -> Duration {
        let acts = [&self.exec, &self.write, &self.write, &self.echo];
        acts[kind].quantile(percent) + self.journal.quantile(percent)
    }

    /// The mean of all kinds.
    fn mean(&self, percent: usize) -> Duration {
        (0..4).map(|kind| self.of(kind, percent)).sum::<Duration>() / 4
    }
}

async fn floor(fleet: &Fleet, backend: Backend, steps: u32) -> anyhow::Result<Floor> {
    let sandbox = sandbox(backend).await?;
    let inside = tokio::spawn(in_sandbox(Arc::clone(&sandbox), steps)).await;
    sandbox.remove().await?;
    let (exec, write, echo) = inside??;
    store_alone(fleet, steps / 5).await?;
    Ok(Floor {
        exec,
        write,
        echo,
        journal: store_alone(fleet, steps).await?,
    })
}

async fn in_sandbox(
    sandbox: Arc<dyn Sandbox>,
    steps: u32,
) -> anyhow::Result<(Samples, Samples, Samples)> {
    let sandbox = sandbox.as_ref();
    let (mut exec, mut write) = (Samples::default(), Samples::default());
    for batch in 0..=(steps / 20).max(5) {
        let one = batch_alone(sandbox, &["/bin/sh", "-c", ":"]).await?;
        let other = writes(sandbox).await?;
        // The first one warms the caches.
        if batch > 0 {
            exec.push(one);
            write.push(other);
        }
    }
    Ok((exec, write, echo(sandbox, steps).await?))
}

async fn writes(sandbox: &dyn Sandbox) -> anyhow::Result<Duration> {
    const BATCH: u32 = 20;
    let rounds = BATCH.to_string();
    Ok(printed_nanos(sandbox, &["/bin/sh", "-c", WRITES, "sh", &rounds]).await? / BATCH)
}

fn print(model: &Cycle, floor: &Floor, backend: Backend, files: u32) -> anyhow::Result<f64> {
    let taken = model.taken();
    ensure!(
        taken.len() == model.steps,
        "the session ended after {} steps",
        taken.len()
    );
    let mut table = Table::new(&format!("a step in {}, {files} files", place(backend)));
    table.row("floor: fork, exec and wait of `sh -c :`", &floor.exec);
    table.row("floor: a shell writes 2 KB", &floor.write);
    table.row("floor: `cat` through the tunnel", &floor.echo);
    table.row("floor: the journal's writes, in SQLite", &floor.journal);
    let all: Samples = taken.iter().map(|(_, took)| *took).collect();
    for (kind, name) in KINDS.iter().enumerate() {
        let own = taken.iter().filter(|(of, _)| *of == kind);
        let own: Samples = own.map(|(_, took)| *took).collect();
        table.against(name, &own, &|percent: usize| floor.of(kind, percent));
    }
    let least = |percent: usize| floor.mean(percent);
    table.against("a step of the cycle", &all, &least);
    table.print("median and CPU under 5 ms, the same for all sizes")?;
    let cpu = model.cpu().context("no CPU time was read")?;
    let each = |time: Duration| time.as_secs_f64() * 1e3 / taken.len() as f64;
    if let Some(first) = model.first() {
        let bulk = model.project.bulk();
        writeln!(
            std::io::stdout(),
            "the first call, which makes {bulk}: {:.0} ms",
            first.as_secs_f64() * 1e3
        )?;
    }
    let (worker, inside) = (each(cpu.worker), each(cpu.sandbox));
    let sum = worker + inside;
    writeln!(
        std::io::stdout(),
        "CPU a step: {sum:.2} ms (worker, store and forge {worker:.2} ms, sandbox {inside:.2} ms); {}\n",
        machine::load()
    )?;
    Ok(quiet_ratio(&all, &least))
}

fn place(backend: Backend) -> &'static str {
    match backend {
        Backend::Docker => "Docker",
        Backend::Local => "the jail",
    }
}

/// A project of so many files, a hundred in a folder.
pub(crate) fn write_files(folder: &Path, files: u32) {
    write_files_of(folder, files, 0);
}

/// The same, with so many bytes of random digits in each file, of which git's packs keep about half.
pub(crate) fn write_files_of(folder: &Path, files: u32, bytes: usize) {
    let digits = |n: u32| {
        let numbers = (0_u64..).map(|at| {
            let seed = (u64::from(n) << 32) | at;
            let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let digits = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            format!("{digits:016x}")
        });
        numbers.take(bytes.div_ceil(16)).collect::<String>()
    };
    let write = |path: String, text: String| {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .unwrap_or_else(|error| panic!("{}: {error}", parent.display()));
        }
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    };
    write(".gitignore".into(), "node_modules/\n*.log\n".into());
    for n in 0..files {
        let (group, part) = (n / 10_000, n / 100);
        write(
            format!("src/{group}/{part}/file_{n}.txt"),
            format!("file {n}\n").repeat(20) + &digits(n),
        );
    }
}

/// CPU time.
#[derive(Debug, Clone, Copy, Default)]
struct Cpu {
    worker: Duration,
    sandbox: Duration,
}

/// A model that requests the calls of the cycle, one after another.
struct Cycle {
    backend: Backend,
    project: Project,
    task: TaskId,
    steps: usize,
    meter: Meter,
    measured: Mutex<Measured>,
}

/// What is read at the first measured step and after the last.
#[derive(Debug, Clone, Copy)]
enum Meter {
    Cpu,
    Counts,
}

#[derive(Default)]
struct Measured {
    /// When each request came, and when it was answered.
    requests: Vec<(Instant, Instant)>,
    /// At the first measured step and after the last.
    cpu: Vec<Cpu>,
    /// Of this process, and of the sandbox, while the steps run.
    counters: Option<[Counter; 2]>,
    counts: Option<[Counts; 2]>,
}

impl Cycle {
    fn measured(&self) -> std::sync::MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The measured steps: which kind, and how long.
    fn taken(&self) -> Vec<(usize, Duration)> {
        let measured = self.measured();
        let pairs = measured.requests.windows(2).enumerate();
        pairs
            .map(|(n, pair)| (n % 4, pair[1].0 - pair[0].1))
            .skip(4 * WARM_UP)
            .take(self.steps)
            .collect()
    }

    /// How long the first call took.
    fn first(&self) -> Option<Duration> {
        match self.measured().requests.as_slice() {
            [(_, answered), (next, _), ..] => Some(*next - *answered),
            _ => None,
        }
    }

    fn cpu(&self) -> Option<Cpu> {
        match self.measured().cpu.as_slice() {
            [first, last] => Some(Cpu {
                worker: last.worker - first.worker,
                sandbox: last.sandbox.saturating_sub(first.sandbox),
            }),
            _ => None,
        }
    }

    async fn read(&self) -> anyhow::Result<()> {
        match self.meter {
            Meter::Cpu => {
                let cpu = self.read_cpu().await?;
                self.measured().cpu.push(cpu);
            }
            Meter::Counts => {
                let running = self.measured().counters.take();
                if let Some([worker, sandbox]) = running {
                    let counts = [worker.end().await?, sandbox.end().await?];
                    self.measured().counts = Some(counts);
                } else {
                    let counters = self.count().await?;
                    self.measured().counters = Some(counters);
                }
            }
        }
        Ok(())
    }

    async fn count(&self) -> anyhow::Result<[Counter; 2]> {
        let own = std::process::id().cast_signed();
        let inside = match self.backend {
            Backend::Docker => pids_of(&self.container().await?).await?,
            Backend::Local => descendants(own).into_iter().map(Process::pid).collect(),
        };
        let sandbox = Counter::attach(&inside).await?;
        Ok([Counter::attach(&[own]).await?, sandbox])
    }

    async fn container(&self) -> anyhow::Result<String> {
        container_of(&format!("coding-agent-exec-{}", self.task.0)).await
    }

    async fn read_cpu(&self) -> anyhow::Result<Cpu> {
        let own = Process::of(std::process::id().cast_signed());
        let worker = own.map_or(Duration::ZERO, |own| time_of(own.pid(), false));
        let sandbox = match self.backend {
            Backend::Docker => container_time(&self.container().await?).await?,
            Backend::Local => sandboxes_time(),
        };
        Ok(Cpu { worker, sandbox })
    }
}

#[async_trait]
impl Model for Cycle {
    fn name(&self) -> &str {
        "bench"
    }

    async fn reply(
        &self,
        _request: ModelRequest<'_>,
        _watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let asked = Instant::now();
        let n = self.measured().requests.len();
        let end = 4 * WARM_UP + self.steps;
        if n == 4 * WARM_UP || n == end {
            self.read().await.map_err(|error| LlmError::Refused {
                status: 400,
                body: format!("{error:#}"),
            })?;
        }
        let reply = match n < end {
            true => request(n, self.project.act(n)),
            false => ModelReply {
                text: "Done.".into(),
                ..ModelReply::default()
            },
        };
        self.measured().requests.push((asked, Instant::now()));
        Ok((reply, Usage::default()))
    }
}

fn request(n: usize, act: Act) -> ModelReply {
    let path = |file: &str| format!("/workspace/project/{file}");
    let (name, arguments) = match act {
        Act::Command(_) if n == 0 => (COMMAND, json!({ "command": BULK })),
        Act::Command(command) => (COMMAND, json!({ "command": command })),
        Act::Create { file, text } => {
            let all = json!({ "command": "create", "path": path(&file), "file_text": text });
            (EDITOR, all)
        }
        Act::Edit { file, old, new } => {
            let path = path(&file);
            let all =
                json!({ "command": "str_replace", "path": path, "old_str": old, "new_str": new });
            (EDITOR, all)
        }
        Act::View { file } => (EDITOR, json!({ "command": "view", "path": path(&file) })),
    };
    ModelReply {
        text: String::new(),
        calls: vec![ToolCall {
            id: format!("call_{n}"),
            name: name.into(),
            arguments: arguments.to_string(),
            ..ToolCall::default()
        }],
        stop: Stop::ToolCalls,
        ..ModelReply::default()
    }
}
